//! The one face that every runtime shows to the rest of Larder.

use std::collections::BTreeSet;

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

    /// Throws away what earlier pulls fetched and did not finish, except for these images. Pulls that run are not touched.
    async fn drop_unfinished(&self, _wanted: &BTreeSet<ImageRef>) -> Result<(), RuntimeError> {
        Ok(())
    }

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

    /// The pins and aliases that we put there, now or in an earlier life of this process.
    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError>;

    /// Images that others delete or move. The stream ends when the runtime goes away; what happened meanwhile is found
    /// by [`list`](Self::list).
    async fn events(&self) -> Result<ImageEvents, RuntimeError>;
}
