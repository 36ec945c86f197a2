//! The place where the connected runtime stands, once there is one.

use std::sync::Arc;

use larder_runtime::{ImageRuntime, RuntimeError, RuntimeText};
use tokio::sync::watch;

/// Empty until the runtime has answered for the first time. Clones share it.
#[derive(Clone)]
pub(crate) struct RuntimeSlot(Arc<watch::Sender<Option<Arc<dyn ImageRuntime>>>>);

impl Default for RuntimeSlot {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl RuntimeSlot {
    pub(crate) fn fill(&self, runtime: Arc<dyn ImageRuntime>) {
        self.0.send_replace(Some(runtime));
    }

    /// The runtime, or the error that every call to an absent one gives.
    pub(crate) fn get(&self, doing: impl FnOnce() -> String) -> Result<Arc<dyn ImageRuntime>, RuntimeError> {
        self.0.borrow().clone().ok_or_else(|| RuntimeError::Down {
            doing: doing(),
            endpoint: "its socket".to_owned(),
            source: RuntimeText::new("no container runtime has answered yet"),
        })
    }
}
