//! Leases keep what is being fetched from containerd's garbage collection.
//!
//! Each try makes a lease of its own that ends by itself after a day: what a killed agent leaves behind is there for the next
//! try, and not for ever. When CRI has pulled the image, all leases of its manifest go.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use larder_model::Digest;
use larder_runtime_proto::containerd::services::leases::v1::{
    CreateRequest, DeleteRequest, ListRequest, leases_client::LeasesClient,
};
use tonic::{Request, metadata::MetadataValue, transport::Channel};
use tracing::warn;

use super::{
    filter,
    services::{Services, absent_is_none, scoped},
};
use crate::{RuntimeError, RuntimeText};

/// Label that says which manifest a lease is for. Its presence makes a lease ours.
const MANIFEST: &str = "larder.local/fetch";

/// Label by which containerd ends a lease.
const EXPIRE: &str = "containerd.io/gc.expire";

/// As long as containerd itself keeps downloads that nobody continues.
const LIFETIME: Duration = Duration::from_hours(24);

/// A lease under which content is written.
pub(super) struct Lease {
    services: Services,
    manifest: Digest,
    id: String,
}

impl Lease {
    pub(super) async fn create(services: &Services, manifest: &Digest) -> Result<Self, RuntimeError> {
        let now = now();
        let id = format!("larder-fetch-{}-{}", &manifest.hex()[..16], now.as_nanosecond());
        let expire = now.checked_add(LIFETIME).unwrap_or(now);
        let labels: HashMap<String, String> = [
            (MANIFEST.to_owned(), manifest.to_string()),
            (EXPIRE.to_owned(), expire.to_string()),
        ]
        .into();
        let request = CreateRequest { id: id.clone(), labels };
        services
            .link
            .ask("create a lease", leases(services).create(scoped(request)))
            .await?;
        Ok(Self {
            services: services.clone(),
            manifest: manifest.clone(),
            id,
        })
    }

    /// Adds the lease to a call: what the call creates belongs to it.
    pub(super) fn cover<T>(&self, mut request: Request<T>) -> Result<Request<T>, RuntimeError> {
        let value = MetadataValue::try_from(self.id.as_str()).map_err(|error| RuntimeError::Unsupported {
            doing: "use a lease".to_owned(),
            why: RuntimeText::new(error.to_string()).to_string(),
        })?;
        request.metadata_mut().insert("containerd-lease", value);
        Ok(request)
    }

    /// Ends this lease and those of earlier tries. The image keeps its content itself now; a lease that stays ends by
    /// itself.
    pub(super) async fn release(&self) {
        if let Err(error) = self.delete_all().await {
            warn!(
                error = error.text(),
                "a lease was left behind; it ends by itself within a day"
            );
        }
    }

    async fn delete_all(&self) -> Result<(), RuntimeError> {
        let filters = vec![filter::label_is(MANIFEST, &self.manifest.to_string())];
        let mut client = leases(&self.services);
        let link = &self.services.link;
        let ours = link
            .ask("list leases", client.list(scoped(ListRequest { filters })))
            .await?;
        for lease in ours.leases {
            let request = DeleteRequest {
                id: lease.id,
                sync: false,
            };
            let exchange = async { absent_is_none(client.delete(scoped(request)).await).map(drop) };
            link.bounded("delete a lease", exchange).await?;
        }
        Ok(())
    }
}

fn leases(services: &Services) -> LeasesClient<Channel> {
    LeasesClient::new(services.link.channel())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a lease ends by the wall clock that containerd on the same machine reads"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default()
}
