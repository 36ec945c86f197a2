//! What is watched: labelled workloads and namespaces, the jobs that are kept for them, and in labelled namespaces all
//! workloads.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use larder_api::ImageListPullJob;
use larder_api::names::WARM_LABEL;
use larder_planner::workload::kinds::{KINDS, WorkloadKind};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tracing::{debug, warn};

use crate::error_chain::chain;

/// Objects in one page of a list.
const PAGE: u32 = 100;

/// What one watch shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// Objects of this kind with the label, wherever they are.
    Labelled(&'static WorkloadKind),
    /// Namespaces with the label.
    Namespaces,
    /// All objects of this kind in a labelled namespace.
    Inside(String, &'static WorkloadKind),
    /// The jobs that are kept.
    Jobs,
}

pub(super) type WatchEvent = (Scope, Event<DynamicObject>);

/// All watches; they end with this.
pub(super) struct Watches {
    client: Client,
    sender: mpsc::Sender<WatchEvent>,
    tasks: JoinSet<()>,
    running: BTreeMap<Scope, AbortHandle>,
}

/// The kinds that can have the label.
pub(super) fn kinds() -> impl Iterator<Item = &'static WorkloadKind> {
    KINDS.iter().filter(|kind| kind.can_be_labelled)
}

impl Watches {
    pub(super) fn start(client: Client, sender: mpsc::Sender<WatchEvent>) -> Self {
        let mut watches = Self {
            client,
            sender,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
        };
        for scope in kinds().map(Scope::Labelled).chain([Scope::Namespaces, Scope::Jobs]) {
            watches.watch(scope);
        }
        watches
    }

    pub(super) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.running.keys()
    }

    /// Watches the workloads of these namespaces, and of no others.
    pub(super) fn follow_namespaces(&mut self, namespaces: &BTreeSet<String>) {
        let needless = |scope: &Scope| matches!(scope, Scope::Inside(namespace, _) if !namespaces.contains(namespace));
        for (_, task) in self.running.extract_if(.., |scope, _| needless(scope)) {
            task.abort();
        }
        for namespace in namespaces {
            for kind in kinds() {
                let scope = Scope::Inside(namespace.clone(), kind);
                if !self.running.contains_key(&scope) {
                    self.watch(scope);
                }
            }
        }
        // The results of those that ended.
        while self.tasks.try_join_next().is_some() {}
    }

    fn watch(&mut self, scope: Scope) {
        let client = self.client.clone();
        let labelled = Config::default().page_size(PAGE).labels(&format!("{WARM_LABEL}=true"));
        let (api, config) = match &scope {
            Scope::Labelled(kind) => (Api::all_with(client, &resource(kind)), labelled),
            Scope::Namespaces => {
                let namespace =
                    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces");
                (Api::all_with(client, &namespace), labelled)
            }
            Scope::Inside(namespace, kind) => (
                Api::namespaced_with(client, namespace, &resource(kind)),
                Config::default().page_size(PAGE),
            ),
            Scope::Jobs => (
                Api::all_with(client, &ApiResource::erase::<ImageListPullJob>(&())),
                labelled,
            ),
        };
        let task = forward(api, config, scope.clone(), self.sender.clone());
        self.running.insert(scope, self.tasks.spawn(task));
    }
}

fn resource(kind: &WorkloadKind) -> ApiResource {
    let named = GroupVersionKind::gvk(kind.group, "v1", kind.name);
    ApiResource::from_gvk_with_plural(&named, kind.plural)
}

async fn forward(api: Api<DynamicObject>, config: Config, scope: Scope, sender: mpsc::Sender<WatchEvent>) {
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                failing = false;
                if sender.send((scope.clone(), event)).await.is_err() {
                    return;
                }
            }
            // Said once, not with each of the tries.
            Err(error) if !failing => {
                failing = true;
                warn!(?scope, error = chain(&error), "labelled workloads cannot be watched");
            }
            Err(error) => debug!(?scope, error = chain(&error), "labelled workloads cannot be watched"),
        }
    }
}
