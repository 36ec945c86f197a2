//! The watches: one of each kind, stripped before anything is stored, started anew with every term.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::warn;

use crate::error_chain::chain;
use crate::facts::{NodeFacts, PodFacts};
use crate::index::{Kind, Seen};

/// Objects in one page of a list. A page is in memory three times while it is read, and the rest of what is known is small.
const PAGE: u32 = 100;

/// What a watch shows, and which round of watches it belongs to.
#[derive(Debug)]
pub(super) struct Sighting {
    pub(super) epoch: u64,
    pub(super) kind: Kind,
    pub(super) seen: Seen,
}

/// All watches of this process.
pub(super) struct Watches {
    client: Client,
    sender: mpsc::Sender<Sighting>,
    epoch: u64,
    running: BTreeMap<Kind, AbortHandle>,
}

impl Watches {
    pub(super) fn new(client: Client, sender: mpsc::Sender<Sighting>) -> Self {
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
        let pods: Vec<Kind> = self
            .running
            .keys()
            .filter(|kind| matches!(kind, Kind::Pods(_)))
            .cloned()
            .collect();
        self.stop();
        self.epoch += 1;
        for kind in Kind::CLUSTER_WIDE.into_iter().chain(pods) {
            self.start(kind);
        }
    }

    /// Watches the pods of these namespaces, and of no others.
    pub(super) fn follow_pods(&mut self, namespaces: &BTreeSet<String>) {
        let needless = |kind: &Kind| matches!(kind, Kind::Pods(namespace) if !namespaces.contains(namespace));
        for (_, task) in self.running.extract_if(.., |kind, _| needless(kind)) {
            task.abort();
        }
        for namespace in namespaces {
            let kind = Kind::Pods(namespace.clone());
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

    fn start(&mut self, kind: Kind) {
        let (client, outlet) = (
            self.client.clone(),
            Outlet {
                sender: self.sender.clone(),
                epoch: self.epoch,
                kind: kind.clone(),
            },
        );
        let task = match &kind {
            Kind::Node => tokio::spawn(follow(Api::<Node>::all(client), outlet, |node| {
                Seen::Node(NodeFacts::of(node))
            })),
            Kind::NodeImage => tokio::spawn(follow(
                Api::<DeserializeGuard<NodeImage>>::all(client),
                outlet,
                |guard| readable(guard, |object| Seen::NodeImage(Box::new(object))),
            )),
            Kind::Job => tokio::spawn(follow(
                Api::<DeserializeGuard<ImagePullJob>>::all(client),
                outlet,
                |guard| readable(guard, |job| Seen::Job(Box::new(job))),
            )),
            Kind::PrePull => tokio::spawn(follow(
                Api::<DeserializeGuard<ImagePrePullJob>>::all(client),
                outlet,
                |guard| readable(guard, |job| Seen::PrePull(Box::new(job))),
            )),
            Kind::List => tokio::spawn(follow(
                Api::<DeserializeGuard<ImageListPullJob>>::all(client),
                outlet,
                |guard| readable(guard, |list| Seen::List(Box::new(list))),
            )),
            Kind::Pods(namespace) => {
                let pods = Api::<Pod>::namespaced(client, namespace);
                tokio::spawn(follow(pods, outlet, |pod| Seen::Pod(PodFacts::of(pod))))
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

/// Where one watch tells what it sees.
struct Outlet {
    sender: mpsc::Sender<Sighting>,
    epoch: u64,
    kind: Kind,
}

impl Outlet {
    /// False if nobody listens any more.
    async fn tell(&self, seen: Seen) -> bool {
        let sighting = Sighting {
            epoch: self.epoch,
            kind: self.kind.clone(),
            seen,
        };
        self.sender.send(sighting).await.is_ok()
    }
}

/// Follows one kind for as long as somebody listens. Errors are tried again with growing pauses.
async fn follow<K>(api: Api<K>, outlet: Outlet, seen: impl Fn(K) -> Seen)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api, Config::default().page_size(PAGE)).default_backoff());
    let mut trouble = false;
    while let Some(event) = events.next().await {
        let told = match event {
            Ok(event) => {
                trouble = false;
                match event {
                    Event::Init => Some(Seen::Begin),
                    Event::InitDone => Some(Seen::Complete),
                    Event::Apply(object) | Event::InitApply(object) => Some(seen(object)),
                    Event::Delete(object) => Some(Seen::Gone {
                        namespace: object.namespace().unwrap_or_default(),
                        name: object.name_any(),
                    }),
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut trouble, true) {
                    warn!(kind = ?outlet.kind, error = chain(&error), "a watch failed; trying again");
                }
                None
            }
        };
        if let Some(seen) = told
            && !outlet.tell(seen).await
        {
            return;
        }
    }
}

/// One object that cannot be read stops no other, and is told so.
fn readable<K: Resource<DynamicType = ()>>(guard: DeserializeGuard<K>, seen: impl FnOnce(K) -> Seen) -> Seen {
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
            Seen::Unreadable(Box::new(object), error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_cannot_be_read_is_named() {
        let object = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": "job", "namespace": "team", "uid": "u"}, "spec": {"image": 7},
        });
        let guard: DeserializeGuard<ImagePullJob> = serde_json::from_value(object).unwrap();
        let Seen::Unreadable(object, why) = readable(guard, |job| Seen::Job(Box::new(job))) else {
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
