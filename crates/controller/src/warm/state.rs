//! What is known of labelled workloads and their jobs, and whom to look at. Synchronous: events in, owners out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use larder_api::ImageListPullJob;
use larder_planner::workload::kinds::WorkloadKind;
use larder_planner::workload::own::has_pods_of_its_own;
use larder_planner::workload::warm::{Owner, job_name, owner_of};
use larder_planner::workload::{self, Workload};

use super::watches::{Scope, kinds};

const NAMESPACE: &str = "Namespace";

/// An object that has the label, or had it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnerKey {
    pub(super) kind: String,
    /// Where its job is.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// All that counts for one owner.
#[derive(Debug)]
pub(super) struct Situation<'a> {
    /// None if the label is gone, or the object.
    pub(super) owner: Option<Owner>,
    pub(super) workloads: Vec<Workload>,
    pub(super) job: Option<&'a ImageListPullJob>,
}

/// What is kept of an object.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    uid: String,
    /// None of a Namespace, of what has no pods of its own, and of what is being deleted.
    workload: Option<Workload>,
    is_leaving: bool,
}

/// Namespace and name.
type ObjectKey = (String, String);

#[derive(Debug, Default)]
struct Listed<T> {
    objects: BTreeMap<ObjectKey, T>,
    /// What a list that is not complete has shown.
    incoming: Option<BTreeMap<ObjectKey, T>>,
    is_complete: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    objects: BTreeMap<Scope, Listed<Known>>,
    jobs: Listed<ImageListPullJob>,
    queue: BTreeSet<OwnerKey>,
    failed: BTreeSet<OwnerKey>,
}

impl State {
    pub(super) fn observe(&mut self, scope: &Scope, event: Event<DynamicObject>) {
        if *scope == Scope::Jobs {
            for (key, before) in self.jobs.observe(event, kept_job) {
                let both = before.as_ref().into_iter().chain(self.jobs.objects.get(&key));
                self.queue.extend(both.filter_map(job_owner));
            }
        } else {
            let listed = self.objects.entry(scope.clone()).or_default();
            let changed = listed.observe(event, |object| Some(known(scope, &object)));
            self.queue
                .extend(changed.into_iter().map(|(key, _)| key_of(scope, key)));
        }
    }

    /// The labelled namespaces.
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        let listed = self.objects.get(&Scope::Namespaces);
        let objects = listed.into_iter().flat_map(|listed| &listed.objects);
        let staying = objects.filter(|(_, known)| !known.is_leaving);
        staying.map(|((_, name), _)| name.clone()).collect()
    }

    /// What is not watched any more is not known any more.
    pub(super) fn forget_all_but<'a>(&mut self, watched: impl Iterator<Item = &'a Scope>) {
        let watched: BTreeSet<&Scope> = watched.collect();
        self.objects.retain(|scope, _| watched.contains(scope));
    }

    /// The next owner to look at. None as long as a list is missing: what was not seen yet is not gone.
    pub(super) fn next<'a>(&mut self, mut watched: impl Iterator<Item = &'a Scope>) -> Option<OwnerKey> {
        let is_complete = |scope: &Scope| match scope {
            Scope::Jobs => self.jobs.is_complete,
            other => self.objects.get(other).is_some_and(|listed| listed.is_complete),
        };
        watched.all(is_complete).then(|| self.queue.pop_first())?
    }

    pub(super) fn look_at_failed(&mut self) {
        self.queue.append(&mut self.failed);
    }

    pub(super) fn look_at_all(&mut self) {
        let objects = self.objects.iter();
        let labelled = objects.filter(|(scope, _)| matches!(scope, Scope::Labelled(_) | Scope::Namespaces));
        let labelled = labelled.flat_map(|(scope, listed)| listed.objects.keys().map(|key| key_of(scope, key.clone())));
        let of_jobs = self.jobs.objects.values().filter_map(job_owner);
        self.queue.extend(labelled.chain(of_jobs));
    }

    pub(super) fn try_later(&mut self, key: OwnerKey) {
        self.failed.insert(key);
    }

    pub(super) fn situation(&self, key: &OwnerKey) -> Situation<'_> {
        let job = self
            .jobs
            .objects
            .get(&(key.namespace.clone(), job_name(&key.kind, &key.name)));
        let (api_version, known, workloads) = if key.kind == NAMESPACE {
            let known = self.known(&Scope::Namespaces, &(String::new(), key.name.clone()));
            ("v1".to_owned(), known, self.workloads_inside(&key.name))
        } else {
            let kind = kinds().find(|kind| kind.name == key.kind);
            let object = (key.namespace.clone(), key.name.clone());
            let known = kind.and_then(|kind| self.known(&Scope::Labelled(kind), &object));
            let workload = known.and_then(|known| known.workload.clone());
            let api_version = kind.map(WorkloadKind::api_version);
            (api_version.unwrap_or_default(), known, workload.into_iter().collect())
        };
        let owner = known.filter(|known| !known.is_leaving).map(|known| Owner {
            api_version,
            kind: key.kind.clone(),
            name: key.name.clone(),
            uid: known.uid.clone(),
            namespace: key.namespace.clone(),
        });
        Situation { owner, workloads, job }
    }

    fn known(&self, scope: &Scope, key: &ObjectKey) -> Option<&Known> {
        self.objects.get(scope)?.objects.get(key)
    }

    fn workloads_inside(&self, namespace: &str) -> Vec<Workload> {
        let scopes = kinds().map(|kind| Scope::Inside(namespace.to_owned(), kind));
        let listed = scopes.filter_map(|scope| self.objects.get(&scope));
        let known = listed.flat_map(|listed| listed.objects.values());
        known.filter_map(|known| known.workload.clone()).collect()
    }
}

impl<T: PartialEq> Listed<T> {
    /// Takes an event in, and returns the objects that are others than before, came or went, as they were before.
    fn observe(
        &mut self,
        event: Event<DynamicObject>,
        keep: impl Fn(DynamicObject) -> Option<T>,
    ) -> Vec<(ObjectKey, Option<T>)> {
        let key = |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            Event::Init => {
                self.incoming = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let key = key(&object);
                let kept = keep(object).map(|kept| (key, kept));
                self.incoming.get_or_insert_default().extend(kept);
                Vec::new()
            }
            Event::InitDone => {
                let incoming = self.incoming.take().unwrap_or_default();
                let mut before = std::mem::replace(&mut self.objects, incoming);
                self.is_complete = true;
                let keys: BTreeSet<ObjectKey> = before.keys().chain(self.objects.keys()).cloned().collect();
                let pairs = keys.into_iter().map(|key| {
                    let was = before.remove(&key);
                    (key, was)
                });
                pairs
                    .filter(|(key, was)| was.as_ref() != self.objects.get(key))
                    .collect()
            }
            Event::Apply(object) => {
                let key = key(&object);
                let was = self.objects.remove(&key);
                self.objects.extend(keep(object).map(|kept| (key.clone(), kept)));
                let differs = was.as_ref() != self.objects.get(&key);
                differs.then_some((key, was)).into_iter().collect()
            }
            Event::Delete(object) => {
                let key = key(&object);
                let was = self.objects.remove(&key);
                was.map(|was| (key, Some(was))).into_iter().collect()
            }
        }
    }
}

/// A job without what changes all the time.
fn kept_job(object: DynamicObject) -> Option<ImageListPullJob> {
    let job: ImageListPullJob = object.try_parse().ok()?;
    let metadata = ObjectMeta {
        name: job.metadata.name,
        namespace: job.metadata.namespace,
        uid: job.metadata.uid,
        labels: job.metadata.labels,
        owner_references: job.metadata.owner_references,
        deletion_timestamp: job.metadata.deletion_timestamp,
        ..ObjectMeta::default()
    };
    Some(ImageListPullJob {
        metadata,
        spec: job.spec,
        status: None,
    })
}

/// Of an object only what is needed.
fn known(scope: &Scope, object: &DynamicObject) -> Known {
    let is_leaving = object.metadata.deletion_timestamp.is_some();
    let workload = match scope {
        Scope::Labelled(kind) | Scope::Inside(_, kind) => {
            let mut value = serde_json::to_value(object).unwrap_or_default();
            // Objects in lists do not say it.
            value["apiVersion"] = kind.api_version().into();
            value["kind"] = kind.name.into();
            let is_own = has_pods_of_its_own(&value) || matches!(scope, Scope::Labelled(_));
            let read = workload::read(&value, "").ok().flatten();
            read.filter(|_| is_own && !is_leaving)
        }
        Scope::Namespaces | Scope::Jobs => None,
    };
    Known {
        uid: object.uid().unwrap_or_default(),
        workload,
        is_leaving,
    }
}

/// Whose job an object counts for.
fn key_of(scope: &Scope, (namespace, name): ObjectKey) -> OwnerKey {
    let (kind, namespace, name) = match scope {
        Scope::Labelled(kind) => (kind.name, namespace, name),
        Scope::Inside(..) => (NAMESPACE, namespace.clone(), namespace),
        Scope::Namespaces | Scope::Jobs => (NAMESPACE, name.clone(), name),
    };
    OwnerKey {
        kind: kind.to_owned(),
        namespace,
        name,
    }
}

fn job_owner(job: &ImageListPullJob) -> Option<OwnerKey> {
    let owner = owner_of(job)?;
    Some(OwnerKey {
        kind: owner.kind.clone(),
        namespace: job.namespace()?,
        name: owner.name.clone(),
    })
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
