//! A handle to the container runtime, which is filled when the runtime is connected.

use std::sync::Arc;
use std::time::Duration;

use larder_runtime::{ImageRuntime, RuntimeError, RuntimeText};
use tokio::sync::watch;
use tokio::time::timeout;

/// An agent that has just started knows its orders before it has found its runtime. So short a wait is not worth a word
/// in the status.
const GRACE: Duration = Duration::from_secs(1);

/// Empty until the runtime has answered for the first time. Clones share it.
#[derive(Clone)]
pub(crate) struct RuntimeHandle(Arc<watch::Sender<Option<Arc<dyn ImageRuntime>>>>);

impl Default for RuntimeHandle {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl RuntimeHandle {
    pub(crate) fn fill(&self, runtime: Arc<dyn ImageRuntime>) {
        self.0.send_replace(Some(runtime));
    }

    /// The runtime, or the error that every call to an absent one gives.
    pub(crate) async fn get(&self, doing: impl FnOnce() -> String) -> Result<Arc<dyn ImageRuntime>, RuntimeError> {
        let mut runtime = self.0.subscribe();
        let filled = timeout(GRACE, runtime.wait_for(Option::is_some)).await;
        let runtime = filled.ok().and_then(|filled| filled.ok()?.clone());
        runtime.ok_or_else(|| RuntimeError::Down {
            doing: doing(),
            endpoint: "its socket".to_owned(),
            source: RuntimeText::new("no container runtime has answered yet"),
        })
    }
}
