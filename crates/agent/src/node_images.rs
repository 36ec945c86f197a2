//! The few requests that an agent sends: read its own NodeImage, watch it, patch its status. Each has a time limit.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use larder_api::NodeImage;
use serde_json::Value;
use tokio::time::timeout;

/// Longest time of a read. MetaServer asks the cloud for up to 10 s before it answers from its own store.
const READ_LIMIT: Duration = Duration::from_secs(15);

/// Longest time of a write.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// No answer in time.
    #[error("the API server did not answer within {} s while we tried to {doing}", .limit.as_secs())]
    Late {
        /// What we were doing.
        doing: &'static str,
        /// How long we waited.
        limit: Duration,
    },
    /// It said no, or the connection broke.
    #[error("cannot {doing}")]
    Failed {
        /// What we were doing.
        doing: &'static str,
        /// The answer.
        source: Box<kube::Error>,
    },
}

impl ApiError {
    /// Whether the version to watch from is too old.
    pub(crate) fn is_too_old(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 410))
    }

    /// Whether the object is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if matches!(&**source, kube::Error::Api(status) if status.is_not_found()))
    }

    /// Whether the server refused a patch for what it holds: the object is another one, or not as the patch assumes. MetaServer
    /// makes 500 of all that the cloud refuses.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if matches!(&**source, kube::Error::Api(status) if [400, 409, 422, 500].contains(&status.code)))
    }

    /// The whole chain in one line.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Late { .. } => self.to_string(),
            Self::Failed { source, .. } => format!("{self}: {source}"),
        }
    }
}

/// What a list said.
pub(crate) struct Listed {
    /// The object, if it is there.
    pub(crate) object: Option<NodeImage>,
    /// Where to watch from; empty where the server gives none, and then an empty list proves nothing.
    pub(crate) resource_version: String,
}

pub(crate) type Events = BoxStream<'static, Result<WatchEvent<NodeImage>, ApiError>>;

/// Access to one NodeImage.
#[derive(Clone)]
pub(crate) struct NodeImages {
    api: Api<NodeImage>,
    name: String,
    selector: String,
}

impl NodeImages {
    pub(crate) fn new(client: kube::Client, name: &str) -> Self {
        Self {
            api: Api::all(client),
            name: name.to_owned(),
            selector: format!("metadata.name={name}"),
        }
    }

    /// Lists, so that a watch can follow.
    pub(crate) async fn list(&self) -> Result<Listed, ApiError> {
        let params = ListParams::default().fields(&self.selector);
        let list = within("list our NodeImage", READ_LIMIT, self.api.list(&params)).await?;
        // MetaServer may ignore the selector.
        let object = list
            .items
            .into_iter()
            .find(|object| object.metadata.name.as_deref() == Some(&self.name));
        Ok(Listed {
            object,
            resource_version: list.metadata.resource_version.unwrap_or_default(),
        })
    }

    /// Reads the object as it is now, not as some cache remembers it.
    pub(crate) async fn get(&self) -> Result<Option<NodeImage>, ApiError> {
        within("read our NodeImage", READ_LIMIT, self.api.get_opt(&self.name)).await
    }

    /// Watches from this version on, for at most this long.
    pub(crate) async fn watch(&self, resource_version: &str, seconds: u32) -> Result<Events, ApiError> {
        let doing = "watch our NodeImage";
        let params = WatchParams::default().fields(&self.selector).timeout(seconds);
        let from = if resource_version.is_empty() {
            "0"
        } else {
            resource_version
        };
        // `watch` borrows the API; the stream does not.
        let stream = within(doing, READ_LIMIT, self.api.watch(&params, from)).await?;
        Ok(stream.map_err(move |source| failed(doing, source)).boxed())
    }

    /// Applies a JSON patch to the status, and returns the object as it is then.
    pub(crate) async fn patch_status(&self, patch: Value) -> Result<NodeImage, ApiError> {
        let doing = "write our status";
        let params = PatchParams::default();
        let patch = serde_json::from_value(patch).map_err(|error| failed(doing, kube::Error::SerdeError(error)))?;
        let patch: Patch<NodeImage> = Patch::Json(patch);
        within(doing, WRITE_LIMIT, self.api.patch_status(&self.name, &params, &patch)).await
    }
}

async fn within<T>(
    doing: &'static str,
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApiError> {
    match timeout(limit, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(failed(doing, source)),
        Err(_) => Err(ApiError::Late { doing, limit }),
    }
}

fn failed(doing: &'static str, source: kube::Error) -> ApiError {
    ApiError::Failed {
        doing,
        source: Box::new(source),
    }
}
