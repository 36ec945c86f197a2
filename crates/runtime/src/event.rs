//! What happens to images behind our back.

use futures::stream::BoxStream;
use larder_model::ImageRef;

/// Something that somebody did to an image name on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageEvent {
    /// The name is gone.
    Deleted(ImageRef),
    /// The name may point to another image now.
    Updated(ImageRef),
}

/// Events in their order. Ends when the runtime goes away.
pub type ImageEvents = BoxStream<'static, ImageEvent>;
