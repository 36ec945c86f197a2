//! Asks the registry what a pull would fetch, and compares it with what is on the node.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_model::{ByteSize, Digest, ImageRef, Reason};
use larder_registry::{Credential, Platform};
use larder_runtime::ImageRuntime;
use tokio::time::timeout;

use crate::pull::{Failure, Puller};

/// How long a registry may take. It is asked only to look before leaping.
const LIMIT: Duration = Duration::from_secs(20);

/// How long it may take to say how long it wants to be left alone.
const PATIENCE_LIMIT: Duration = Duration::from_secs(5);

/// What a pull would fetch.
pub(crate) struct RegistryProbe {
    /// What the reference points at.
    pub(crate) digest: Option<Digest>,
    /// Compressed bytes of the image.
    pub(crate) total: ByteSize,
    /// Those of them that are not on the node. Where the runtime does not tell, all of them.
    pub(crate) missing: ByteSize,
    /// The very image is there under this name.
    pub(crate) there: bool,
}

impl Puller {
    /// Asks the registry and the runtime.
    pub(crate) async fn probe_registry(
        &self,
        image: &ImageRef,
        runtime: &dyn ImageRuntime,
        logins: Vec<Credential>,
    ) -> Result<RegistryProbe, Failure> {
        let ask = async {
            let repository = self.registry.repository(image, logins)?;
            repository.image_for(&Platform::of_this_machine()).await
        };
        let found = match timeout(LIMIT, ask).await {
            Ok(found) => found?,
            Err(_) => return Err(Failure::new(Reason::Unreachable, "the registry did not answer in time")),
        };
        let digest = found.root().map(|root| root.digest.clone());
        let there = runtime.status(image).await?.is_some_and(|there| {
            let mut known = there.digests.iter().filter_map(|name| name.reference().digest());
            known.any(|known| Some(known) == digest.as_ref())
        });
        let mut missing: BTreeMap<Digest, u64> = found.blobs().map(|blob| (blob.digest.clone(), blob.size)).collect();
        if there {
            // A runtime may have thrown the compressed layers away once they were unpacked.
            missing.clear();
        } else {
            let blobs: Vec<Digest> = missing.keys().cloned().collect();
            let held = runtime.held_blobs(&blobs).await?.unwrap_or_default();
            missing.retain(|digest, _| !held.contains(digest));
        }
        Ok(RegistryProbe {
            digest,
            total: found.download_size(),
            missing: missing.into_values().map(ByteSize).sum(),
            there,
        })
    }

    /// How long the registry asks to be left alone. Runtimes keep that to themselves, so it is asked once more, for the
    /// price of a HEAD request.
    pub(crate) async fn patience(&self, image: &ImageRef, login: Option<Credential>) -> Option<Duration> {
        let repository = self.registry.repository(image, login.into_iter().collect()).ok()?;
        let error = timeout(PATIENCE_LIMIT, repository.resolve()).await.ok()?.err()?;
        error.retry_after.filter(|_| error.reason == Reason::RateLimited)
    }
}
