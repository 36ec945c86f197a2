//! One connection to a runtime: made when it is needed, made anew when it broke, with a limit on every call.

use std::{sync::Arc, time::Duration};

use larder_runtime_proto::runtime::v1::{
    image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};

use crate::{RuntimeEndpoint, RuntimeError, RuntimeText, classify::classify};

/// Largest message we take. The kubelet's own limit: a node with many images sends lists beyond gRPC's usual 4 MiB.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// How long a runtime may take to answer anything but a pull. Lists of a busy node take seconds; a runtime that needs
/// longer than this hangs.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How long connecting to a local socket may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Link {
    endpoint: Arc<RuntimeEndpoint>,
    channel: Channel,
    limit: Duration,
}

impl Link {
    /// Opens nothing yet: the first call connects, and so does the next one after a break. Needs a tokio runtime.
    pub(crate) fn new(endpoint: &RuntimeEndpoint, limit: Duration) -> Result<Self, RuntimeError> {
        let address = Endpoint::from_shared(endpoint.to_string()).map_err(|error| RuntimeError::Down {
            doing: "connect".to_owned(),
            endpoint: endpoint.to_string(),
            source: RuntimeText::new(error.to_string()),
        })?;
        Ok(Self {
            endpoint: Arc::new(endpoint.clone()),
            channel: address.connect_timeout(CONNECT_LIMIT).connect_lazy(),
            limit,
        })
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel())
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn ask<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, RuntimeError> {
        self.bounded(doing, async { call.await.map(Response::into_inner) })
            .await
    }

    /// Like [`ask`](Self::ask) for an exchange of several messages.
    pub(crate) async fn bounded<T>(
        &self,
        doing: &str,
        exchange: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, RuntimeError> {
        match tokio::time::timeout(self.limit, exchange).await {
            Ok(answer) => answer.map_err(|status| self.refused(doing, &status)),
            Err(_) => Err(RuntimeError::Unanswered {
                doing: doing.to_owned(),
                endpoint: self.endpoint.to_string(),
                after: self.limit,
            }),
        }
    }

    /// What a failed call means. A status that the runtime sent has no cause on our side; one that tonic made up because
    /// the connection failed carries that failure.
    pub(crate) fn refused(&self, doing: &str, status: &Status) -> RuntimeError {
        let doing = doing.to_owned();
        match std::error::Error::source(status) {
            Some(cause) => RuntimeError::Down {
                doing,
                endpoint: self.endpoint.to_string(),
                source: RuntimeText::new(innermost(cause)),
            },
            None if status.code() == Code::Unimplemented => RuntimeError::Unsupported {
                doing,
                why: RuntimeText::new(status.message()).to_string(),
            },
            None => RuntimeError::Refused {
                doing,
                reason: classify(status.code(), status.message()),
                source: RuntimeText::new(status.message()),
            },
        }
    }
}

/// The last cause says what happened (`No such file or directory`); those above it say `transport error`.
fn innermost(cause: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = cause;
    while let Some(deeper) = innermost.source() {
        innermost = deeper;
    }
    innermost.to_string()
}
