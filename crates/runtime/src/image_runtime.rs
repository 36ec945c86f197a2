//! The one face that every runtime shows to the rest of Larder.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use larder_model::{Digest, ImageRef};
use larder_registry::Platform;

use crate::{
    capability::Capabilities,
    error::RuntimeError,
    event::ImageEvents,
    image::{ImageFs, LocalImage, OwnReference, Progress, PulledImage, RuntimeVersion},
    pull_request::PullRequest,
};

/// The images of one node.
///
/// Every call except [`pull`](Self::pull) is bounded in time by the back end. Dropping a call's future gives it up; a
/// dropped pull is cancelled in the runtime too. No call panics or ends for good when the runtime is away: it fails
/// with [`Reason::RuntimeDown`](larder_model::Reason::RuntimeDown), and a later call connects again.
#[async_trait]
pub trait ImageRuntime: Send + Sync {
    /// What this runtime can do beyond pulling. Asked of the runtime, because an upgrade may change it.
    async fn capabilities(&self) -> Result<Capabilities, RuntimeError>;

    /// Name and version, which is also the cheapest question to ask whether the runtime is there.
    async fn version(&self) -> Result<RuntimeVersion, RuntimeError>;

    /// Every image of the node.
    async fn list(&self) -> Result<Vec<LocalImage>, RuntimeError>;

    /// The image that the runtime would start a container from, given this tag or digest. `None`: it is not there.
    async fn status(&self, image: &ImageRef) -> Result<Option<LocalImage>, RuntimeError>;

    /// What an image that is there is built for. `None`: nobody says.
    async fn platform(&self, _image: &ImageRef) -> Result<Option<Platform>, RuntimeError> {
        Ok(None)
    }

    /// Pulls, and returns only when the runtime itself shows the image afterwards. Bounded by the caller alone.
    async fn pull(&self, request: &PullRequest) -> Result<PulledImage, RuntimeError>;

    /// Removes the image **under all its names**, as CRI specifies; look at [`status`](Self::status) first. An image
    /// that is not there is success.
    async fn remove(&self, image: &ImageRef) -> Result<(), RuntimeError>;

    /// The filesystem that pulled images fill.
    async fn image_fs(&self) -> Result<ImageFs, RuntimeError>;

    /// How far a pull that this very object runs has come. `None`: no such pull, or its size is not known yet.
    ///
    /// `done == total` means that every byte has arrived, not that the image is ready: unpacking comes after.
    async fn progress(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError>;

    /// Which of these blobs are on the node, so that a pull would not fetch them. `None`: this runtime does not tell.
    async fn held_blobs(&self, _blobs: &[Digest]) -> Result<Option<BTreeSet<Digest>>, RuntimeError> {
        Ok(None)
    }

    /// Keeps the image from the kubelet's clean-up until [`unpin`](Self::unpin). Returns when the runtime reports it as
    /// pinned. Calling it again moves the pin to where the tag points now.
    async fn pin(&self, image: &ImageRef) -> Result<(), RuntimeError>;

    /// Takes the pin back. An image that is not pinned by us is success.
    async fn unpin(&self, image: &ImageRef) -> Result<(), RuntimeError>;

    /// Gives `image` the second name `name`. A name that somebody else put there is never overwritten:
    /// [`RuntimeError::ForeignReference`].
    async fn alias(&self, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError>;

    /// Takes an alias back. A name that is gone, or is not ours, is left alone, and that is success.
    async fn unalias(&self, name: &ImageRef) -> Result<(), RuntimeError>;

    /// The pins and aliases that we put there, now or in an earlier life of this process.
    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError>;

    /// Images that others delete or move. The stream ends when the runtime goes away; what happened meanwhile is found
    /// by [`list`](Self::list).
    async fn events(&self) -> Result<ImageEvents, RuntimeError>;
}

#[async_trait]
impl<R: ImageRuntime + ?Sized> ImageRuntime for Arc<R> {
    async fn capabilities(&self) -> Result<Capabilities, RuntimeError> {
        (**self).capabilities().await
    }

    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        (**self).version().await
    }

    async fn list(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        (**self).list().await
    }

    async fn status(&self, image: &ImageRef) -> Result<Option<LocalImage>, RuntimeError> {
        (**self).status(image).await
    }

    async fn platform(&self, image: &ImageRef) -> Result<Option<Platform>, RuntimeError> {
        (**self).platform(image).await
    }

    async fn pull(&self, request: &PullRequest) -> Result<PulledImage, RuntimeError> {
        (**self).pull(request).await
    }

    async fn remove(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        (**self).remove(image).await
    }

    async fn image_fs(&self) -> Result<ImageFs, RuntimeError> {
        (**self).image_fs().await
    }

    async fn progress(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        (**self).progress(image).await
    }

    async fn held_blobs(&self, blobs: &[Digest]) -> Result<Option<BTreeSet<Digest>>, RuntimeError> {
        (**self).held_blobs(blobs).await
    }

    async fn pin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        (**self).pin(image).await
    }

    async fn unpin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        (**self).unpin(image).await
    }

    async fn alias(&self, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        (**self).alias(image, name).await
    }

    async fn unalias(&self, name: &ImageRef) -> Result<(), RuntimeError> {
        (**self).unalias(name).await
    }

    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError> {
        (**self).own_references().await
    }

    async fn events(&self) -> Result<ImageEvents, RuntimeError> {
        (**self).events().await
    }
}
