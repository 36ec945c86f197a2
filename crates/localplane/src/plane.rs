//! What all requests share.

use tokio_util::sync::CancellationToken;

use crate::{memory::Memory, openapi::Documents, store::Store};

/// The running server, without its sockets.
pub(crate) struct Plane {
    pub(crate) store: Store,
    /// Id of the resource of namespaces.
    pub(crate) namespaces: usize,
    pub(crate) documents: Documents,
    /// Held by requests while they are handled.
    pub(crate) memory: Memory,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
}
