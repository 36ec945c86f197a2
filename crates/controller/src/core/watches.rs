//! The watches: one of each kind, stripped before anything is stored, started anew with every term.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::core::DeserializeGuard;
use kube::core::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use larder_api::{ImageListPullJob, NodeImage};
use larder_planner::dialect::Dialect;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::history::{Comparison, History};
use super::watch_health::WatchHealth;
use crate::engine::{TypedJob, WatchEvent, WatchKind};
use crate::error_chain::chain;
use crate::facts::{NodeFacts, PodFacts};
use crate::kinds::KindId;

/// Objects in one page of a list. A page is in memory three times while it is read, and the rest of what is known is small.
const PAGE: u32 = 100;

/// What a watch shows, and which round of watches it belongs to.
pub(super) struct WatchMessage {
    pub(super) epoch: u64,
    pub(super) kind: WatchKind,
    pub(super) content: Content,
}

/// What a watch tells.
pub(super) enum Content {
    Event(WatchEvent),
    /// The watch fails, or works again.
    Failing(bool),
    /// The API server's resource versions went backwards: etcd was restored from a copy, and objects that were known may be
    /// older, or gone, without an event.
    WentBackwards,
}

/// All watches of this process.
pub(super) struct Watches {
    client: Client,
    sender: mpsc::Sender<WatchMessage>,
    epoch: u64,
    running: BTreeMap<WatchKind, Running>,
    /// Whether new nodes wait for images.
    gates_nodes: bool,
}

struct Running {
    task: AbortHandle,
    history: History,
}

impl Watches {
    pub(super) fn new(client: Client, sender: mpsc::Sender<WatchMessage>, gates_nodes: bool) -> Self {
        Self {
            client,
            sender,
            epoch: 0,
            running: BTreeMap::new(),
            gates_nodes,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Starts every watch anew, each with a list of what there is.
    pub(super) fn restart(&mut self) {
        let pods: Vec<WatchKind> = self
            .running
            .keys()
            .filter(|kind| matches!(kind, WatchKind::Pods(_)))
            .cloned()
            .collect();
        self.stop();
        self.epoch += 1;
        for kind in WatchKind::cluster_wide().chain(pods) {
            self.start(kind);
        }
    }

    /// Watches the pods of these namespaces, and of no others.
    pub(super) fn follow_pods(&mut self, namespaces: &BTreeSet<String>) {
        let needless = |kind: &WatchKind| matches!(kind, WatchKind::Pods(namespace) if !namespaces.contains(namespace));
        for (_, watch) in self.running.extract_if(.., |kind, _| needless(kind)) {
            watch.task.abort();
        }
        for namespace in namespaces {
            let kind = WatchKind::Pods(namespace.clone());
            if !self.running.contains_key(&kind) {
                self.start(kind);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        for (_, watch) in std::mem::take(&mut self.running) {
            watch.task.abort();
        }
    }

    /// A response showed an object of this kind, which the watch may show later, or never if etcd is restored meanwhile.
    pub(super) fn answered(&self, kind: &WatchKind, object: &ObjectMeta) {
        if let Some(watch) = self.running.get(kind) {
            watch.history.answered(object);
        }
    }

    fn start(&mut self, kind: WatchKind) {
        let (client, history) = (self.client.clone(), History::default());
        let outlet = Outlet {
            sender: self.sender.clone(),
            epoch: self.epoch,
            kind: kind.clone(),
            history: history.clone(),
        };
        let task = match &kind {
            WatchKind::Node => {
                let facts = if self.gates_nodes {
                    NodeFacts::of_gated
                } else {
                    NodeFacts::of
                };
                let seen = move |node| WatchEvent::Node(facts(node));
                tokio::spawn(follow(Api::<Node>::all(client), outlet, seen))
            }
            WatchKind::NodeImage => tokio::spawn(follow(
                Api::<DeserializeGuard<NodeImage>>::all(client),
                outlet,
                |guard| readable(guard, |object| WatchEvent::NodeImage(Box::new(object))),
            )),
            WatchKind::Job(kind) => tokio::spawn((kind.kind().watch)(*kind, client, outlet)),
            WatchKind::ParentJob => tokio::spawn(follow(
                Api::<DeserializeGuard<ImageListPullJob>>::all(client),
                outlet,
                |guard| readable(guard, |list| WatchEvent::ParentJob(Box::new(list))),
            )),
            WatchKind::Pods(namespace) => {
                let pods = Api::<Pod>::namespaced(client, namespace);
                tokio::spawn(follow(pods, outlet, |pod| WatchEvent::Pod(PodFacts::of(pod))))
            }
        };
        let task = task.abort_handle();
        self.running.insert(kind, Running { task, history });
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where one watch sends its events, and notes what it has seen.
pub(crate) struct Outlet {
    sender: mpsc::Sender<WatchMessage>,
    epoch: u64,
    kind: WatchKind,
    history: History,
}

impl Outlet {
    /// False if the receiver is gone.
    async fn send(&self, content: Content) -> bool {
        let message = WatchMessage {
            epoch: self.epoch,
            kind: self.kind.clone(),
            content,
        };
        self.sender.send(message).await.is_ok()
    }

    async fn send_event(&self, event: WatchEvent) -> bool {
        self.send(Content::Event(event)).await
    }
}

/// Follows one kind until the receiver is gone, or until the API server has another history. Errors are tried again with
/// growing pauses.
async fn follow<K>(api: Api<K>, outlet: Outlet, seen: impl Fn(K) -> WatchEvent)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api.clone(), Config::default().page_size(PAGE)).default_backoff());
    let mut health = WatchHealth::default();
    let mut compare_at = Instant::now() + health.compare_in();
    loop {
        let next = tokio::select! {
            event = events.next() => event,
            () = sleep_until(compare_at) => {
                let comparison = outlet.history.compare(&api).await;
                if comparison == Comparison::Other {
                    outlet.send(Content::WentBackwards).await;
                    return;
                }
                if health.compared(comparison, Instant::now()) {
                    outlet.send(Content::Failing(false)).await;
                }
                compare_at = Instant::now() + health.compare_in();
                continue;
            }
        };
        let Some(event) = next else {
            return;
        };
        match &event {
            Ok(event) => {
                if outlet.history.shown(event) == Comparison::Other {
                    outlet.send(Content::WentBackwards).await;
                    return;
                }
            }
            Err(_) => outlet.history.interrupted(),
        }
        let open = match event {
            Ok(event) => {
                (!health.showed() || outlet.send(Content::Failing(false)).await)
                    && outlet.send_event(shown(event, &seen)).await
            }
            Err(error) => {
                let is_news = health.failed(Instant::now());
                compare_at = compare_at.min(Instant::now() + health.compare_in());
                if is_news {
                    warn!(kind = %outlet.kind, error = chain(&error), "a watch failed; trying again");
                }
                !is_news || outlet.send(Content::Failing(true)).await
            }
        };
        if !open {
            return;
        }
    }
}

/// What the watcher of the kube crate reports, in terms of the engine.
fn shown<K: Resource>(event: Event<K>, seen: &impl Fn(K) -> WatchEvent) -> WatchEvent {
    match event {
        Event::Init => WatchEvent::ListBegins,
        Event::InitDone => WatchEvent::ListComplete,
        Event::Apply(object) | Event::InitApply(object) => seen(object),
        Event::Delete(object) => WatchEvent::Gone {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        },
    }
}

/// Follows the jobs of one kind.
pub(crate) async fn follow_jobs<D>(kind: KindId, jobs: Api<DeserializeGuard<D::Object>>, outlet: Outlet)
where
    D: Dialect,
    D::Object: DeserializeOwned,
{
    follow(jobs, outlet, |guard| {
        readable(guard, |job| WatchEvent::Job(TypedJob::<D>::boxed(kind, job)))
    })
    .await;
}

/// One object that cannot be read stops no other; an Event says why.
fn readable<K: Resource<DynamicType = ()>>(
    guard: DeserializeGuard<K>,
    seen: impl FnOnce(K) -> WatchEvent,
) -> WatchEvent {
    match guard.0 {
        Ok(object) => seen(object),
        Err(InvalidObject { error, metadata }) => {
            let name = metadata.name.as_deref().unwrap_or_default();
            warn!(name, error, "an object cannot be read and is passed over");
            let object = ObjectReference {
                api_version: Some(K::api_version(&()).into_owned()),
                kind: Some(K::kind(&()).into_owned()),
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                ..ObjectReference::default()
            };
            WatchEvent::Unreadable(Box::new(object), error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_api::ImagePullJob;
    use larder_planner::kruise::PullJobs;
    use serde_json::json;

    #[test]
    fn what_cannot_be_read_is_named() {
        let object = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": "job", "namespace": "team", "uid": "u"}, "spec": {"image": 7},
        });
        let guard: DeserializeGuard<ImagePullJob> = serde_json::from_value(object).unwrap();
        let WatchEvent::Unreadable(object, why) = readable(guard, |job| {
            WatchEvent::Job(crate::kinds::job::<PullJobs>(job).unwrap())
        }) else {
            panic!("a number is no image");
        };
        let named = (
            object.kind.as_deref(),
            object.namespace.as_deref(),
            object.name.as_deref(),
        );
        assert_eq!(named, (Some("ImagePullJob"), Some("team"), Some("job")));
        assert!(!why.is_empty());
    }
}
