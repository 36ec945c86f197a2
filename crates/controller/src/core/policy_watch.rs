//! Notices at once that the node policy or its binding was changed. What that means is found out by trying
//! ([`crate::policy_probe`]), which also happens without a change: this watch may fail for good, for example where the API
//! server does not serve such policies.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use larder_access::POLICY;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::debug;

use crate::error_chain::chain;

/// The watches; they end when this is dropped.
pub(super) struct PolicyWatch {
    changed: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl PolicyWatch {
    /// Starts them; without a client there is nothing to notice.
    pub(super) fn start(client: Option<Client>) -> Self {
        let changed = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        if let Some(client) = client {
            let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
            let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client);
            let policy = watch_object(policies, POLICY)
                .default_backoff()
                .map(|event| event.map(drop));
            let binding = watch_object(bindings, POLICY)
                .default_backoff()
                .map(|event| event.map(drop));
            let notify = changed.clone();
            tasks.spawn(futures::stream::select(policy, binding).for_each(move |event| {
                match event {
                    Ok(()) => notify.notify_one(),
                    Err(error) => debug!(error = chain(&error), "the node policy cannot be watched; trying again"),
                }
                futures::future::ready(())
            }));
        }
        Self { changed, _tasks: tasks }
    }

    /// Waits for the next change. Loses none if it is dropped.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
