//! The watches: one of each kind, stripped before anything is stored, started anew with every term.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use larder_api::{ImageListPullJob, NodeImage};
use larder_planner::dialect::Dialect;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::engine::{TypedJob, WatchEvent, WatchKind, revision};
use crate::error_chain::chain;
use crate::facts::{NodeFacts, PodFacts};
use crate::kinds::KindId;

/// Objects in one page of a list. A page is in memory three times while it is read, and the rest of what is known is small.
const PAGE: u32 = 100;

/// The resource versions of a watch are checked this often …
const CHECK: Duration = Duration::from_secs(30);

/// … and this often while the watch fails.
const CHECK_FAILING: Duration = Duration::from_secs(1);

/// A check takes no longer.
const CHECK_LIMIT: Duration = Duration::from_secs(5);

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
    running: BTreeMap<WatchKind, AbortHandle>,
}

impl Watches {
    pub(super) fn new(client: Client, sender: mpsc::Sender<WatchMessage>) -> Self {
        Self {
            client,
            sender,
            epoch: 0,
            running: BTreeMap::new(),
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
        for (_, task) in self.running.extract_if(.., |kind, _| needless(kind)) {
            task.abort();
        }
        for namespace in namespaces {
            let kind = WatchKind::Pods(namespace.clone());
            if !self.running.contains_key(&kind) {
                self.start(kind);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        for (_, task) in std::mem::take(&mut self.running) {
            task.abort();
        }
    }

    fn start(&mut self, kind: WatchKind) {
        let (client, outlet) = (
            self.client.clone(),
            Outlet {
                sender: self.sender.clone(),
                epoch: self.epoch,
                kind: kind.clone(),
            },
        );
        let task = match &kind {
            WatchKind::Node => tokio::spawn(follow(Api::<Node>::all(client), outlet, |node| {
                WatchEvent::Node(NodeFacts::of(node))
            })),
            WatchKind::NodeImage => tokio::spawn(follow(
                Api::<DeserializeGuard<NodeImage>>::all(client),
                outlet,
                |guard| readable(guard, |object| WatchEvent::NodeImage(Box::new(object))),
            )),
            WatchKind::Job(kind) => tokio::spawn((kind.kind().watch)(*kind, client, outlet)),
            WatchKind::List => tokio::spawn(follow(
                Api::<DeserializeGuard<ImageListPullJob>>::all(client),
                outlet,
                |guard| readable(guard, |list| WatchEvent::List(Box::new(list))),
            )),
            WatchKind::Pods(namespace) => {
                let pods = Api::<Pod>::namespaced(client, namespace);
                tokio::spawn(follow(pods, outlet, |pod| WatchEvent::Pod(PodFacts::of(pod))))
            }
        };
        self.running.insert(kind, task.abort_handle());
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where one watch sends its events.
pub(crate) struct Outlet {
    sender: mpsc::Sender<WatchMessage>,
    epoch: u64,
    kind: WatchKind,
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

/// Follows one kind until the receiver is gone. Errors are tried again with growing pauses.
///
/// A watch that resumes at a resource version which the API server has not reached (etcd was restored) is accepted and stays
/// silent. So the version that a list tells is compared with the newest one that was seen, now and then, and each second
/// while the watch fails.
async fn follow<K>(api: Api<K>, outlet: Outlet, seen: impl Fn(K) -> WatchEvent)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api.clone(), Config::default().page_size(PAGE)).default_backoff());
    let (mut failing, mut newest) = (false, 0);
    loop {
        let pause = if failing { CHECK_FAILING } else { CHECK };
        let next = tokio::select! {
            event = events.next() => event,
            () = sleep(pause) => {
                if went_backwards(&api, newest).await {
                    outlet.send(Content::WentBackwards).await;
                    return;
                }
                continue;
            }
        };
        let Some(event) = next else {
            return;
        };
        let was_failing = std::mem::replace(&mut failing, event.is_err());
        let mut open = was_failing == failing || outlet.send(Content::Failing(failing)).await;
        match event {
            // The first list, or one that the watcher makes because its version is too old.
            Ok(Event::Init) if went_backwards(&api, newest).await => {
                outlet.send(Content::WentBackwards).await;
                return;
            }
            Ok(Event::Init) => open &= outlet.send_event(WatchEvent::ListBegins).await,
            Ok(Event::InitDone) => open &= outlet.send_event(WatchEvent::ListComplete).await,
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                newest = newest.max(revision(object.meta()));
                open &= outlet.send_event(seen(object)).await;
            }
            Ok(Event::Delete(object)) => {
                newest = newest.max(revision(object.meta()));
                let gone = WatchEvent::Gone {
                    namespace: object.namespace().unwrap_or_default(),
                    name: object.name_any(),
                };
                open &= outlet.send_event(gone).await;
            }
            Err(error) if !was_failing => {
                warn!(kind = ?outlet.kind, error = chain(&error), "a watch failed; trying again");
            }
            Err(_) => {}
        }
        if !open {
            return;
        }
    }
}

/// Whether the API server is at an older resource version than one that was seen. A list of one object tells, read from
/// etcd and not from a cache.
async fn went_backwards<K>(api: &Api<K>, newest: u64) -> bool
where
    K: Clone + Debug + DeserializeOwned,
{
    if newest == 0 {
        return false;
    }
    let list = timeout(CHECK_LIMIT, api.list(&ListParams::default().limit(1))).await;
    let version = list
        .ok()
        .and_then(Result::ok)
        .and_then(|list| list.metadata.resource_version);
    let version: Option<u64> = version.and_then(|version| version.parse().ok());
    version.is_some_and(|version| version < newest)
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
