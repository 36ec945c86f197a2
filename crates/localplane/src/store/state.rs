//! The state that is visible: objects by name, who owns whom, recent events, and the clean-up that changes call for.
//!
//! Synchronous and without IO; the writer is the only one who changes it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use super::{Compacted, ListQuery, Listing, disk::Loaded};
use crate::{
    bootstrap::DEFAULT_SERVICE_ACCOUNT,
    registry::Registry,
    stored::{Key, ObjectName, Shared},
    watch::{Event, EventType, History, WatchCache, WatchScope},
};

/// Clean-up work that a change has caused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CleanupTask {
    /// Look whether this object's owners still exist, or whether its deletion can go on.
    Object(Key),
    /// Look whether this namespace is being deleted and what is left in it.
    Namespace(String),
    /// Look whether this namespace lacks its ServiceAccount.
    ServiceAccount(String),
}

struct Table {
    objects: BTreeMap<ObjectName, Shared>,
    watch_cache: WatchCache,
}

/// Everything that is visible at one revision.
pub(crate) struct State {
    revision: u64,
    tables: Vec<Table>,
    uids: HashMap<String, Key>,
    dependents: HashMap<String, BTreeSet<Key>>,
    cleanup_tasks: BTreeSet<CleanupTask>,
    namespaces: usize,
    service_accounts: usize,
}

/// A change that is durable and becomes visible.
pub(crate) struct Applied {
    pub(crate) key: Key,
    pub(crate) object: Shared,
    pub(crate) removed: bool,
}

impl State {
    /// The state as it was loaded, with all of its owners to be looked at.
    pub(crate) fn new(registry: &Registry, history: History, loaded: Loaded) -> Self {
        let tables = registry
            .resources()
            .iter()
            .map(|_| Table {
                objects: BTreeMap::new(),
                watch_cache: WatchCache::new(history, loaded.revision),
            })
            .collect();
        let mut state = Self {
            revision: loaded.revision,
            tables,
            uids: HashMap::new(),
            dependents: HashMap::new(),
            cleanup_tasks: BTreeSet::new(),
            namespaces: registry.builtin_id("namespaces"),
            service_accounts: registry.builtin_id("serviceaccounts"),
        };
        for (resource, object) in loaded.objects {
            let key = Key {
                resource,
                name: object.name.clone(),
            };
            state.index(&key, &object);
            if !object.owners.is_empty() || object.deleting {
                state.cleanup_tasks.insert(CleanupTask::Object(key.clone()));
            }
            if resource == state.namespaces && object.deleting {
                state
                    .cleanup_tasks
                    .insert(CleanupTask::Namespace(key.name.name.clone()));
            }
            state.tables[resource].objects.insert(key.name, object);
        }
        state
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Shared> {
        self.tables[key.resource].objects.get(&key.name)
    }

    pub(crate) fn watch_cache(&mut self, resource: usize) -> &mut WatchCache {
        &mut self.tables[resource].watch_cache
    }

    /// Where the object with this uid is.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<&Key> {
        self.uids.get(uid)
    }

    /// Objects that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Every object of a namespace.
    pub(crate) fn contents(&self, namespace: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        for (resource, table) in self.tables.iter().enumerate() {
            for (name, _) in range(&table.objects, Some(namespace), None) {
                keys.push(Key {
                    resource,
                    name: name.clone(),
                });
            }
        }
        keys
    }

    /// All objects of a resource.
    pub(crate) fn objects(&self, resource: usize) -> impl Iterator<Item = &Shared> {
        self.tables[resource].objects.values()
    }

    /// Objects a watcher starts with.
    pub(crate) fn covered(&self, resource: usize, scope: &WatchScope) -> Vec<Shared> {
        let objects = &self.tables[resource].objects;
        if let (Some(namespace), Some(name)) = (&scope.namespace, &scope.name) {
            let key = ObjectName {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            return objects.get(&key).cloned().into_iter().collect();
        }
        range(objects, scope.namespace.as_deref(), None)
            .filter(|(name, _)| scope.covers(name))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// A page of objects, as of now or as of an earlier revision.
    pub(crate) fn list(&self, query: &ListQuery<'_>) -> Result<Listing, Compacted> {
        let table = &self.tables[query.resource];
        let Some(at) = query.at.filter(|at| *at != self.revision) else {
            let objects = range(&table.objects, query.namespace, query.after).map(|(_, object)| object);
            return Ok(page(objects, query, self.revision));
        };
        let compacted = Compacted {
            newest: table.watch_cache.compacted(),
        };
        let mut undone: BTreeMap<ObjectName, Option<Shared>> = BTreeMap::new();
        for event in table.watch_cache.since(at).ok_or(compacted)? {
            // The first change after `at` knows what was there at `at`.
            undone
                .entry(event.object.name.clone())
                .or_insert_with(|| event.previous.clone());
        }
        let unchanged = range(&table.objects, query.namespace, query.after)
            .filter(|(name, _)| !undone.contains_key(*name))
            .map(|(_, object)| object);
        let changed = range(&undone, query.namespace, query.after).filter_map(|(_, object)| object.as_ref());
        Ok(page(in_order(unchanged, changed), query, at))
    }

    /// Makes durable changes visible, all of them at once, and tells the watchers.
    pub(crate) fn apply(&mut self, batch: Vec<Applied>) {
        for Applied { key, object, removed } in batch {
            self.revision = self.revision.max(object.revision);
            let table = &mut self.tables[key.resource];
            let previous = if removed {
                table.objects.remove(&key.name)
            } else {
                table.objects.insert(key.name.clone(), Arc::clone(&object))
            };
            let event_type = match (&previous, removed) {
                (_, true) => EventType::Deleted,
                (None, false) => EventType::Added,
                (Some(_), false) => EventType::Modified,
            };
            if let Some(previous) = &previous {
                self.unindex(&key, previous);
            }
            if key.resource == self.namespaces && previous.is_none() {
                self.cleanup_tasks
                    .insert(CleanupTask::ServiceAccount(key.name.name.clone()));
            }
            if removed {
                self.note_removal(&key, &object);
            } else {
                self.index(&key, &object);
                self.note_change(&key, &object);
            }
            let event = Arc::new(Event::new(event_type, object, previous));
            self.tables[key.resource].watch_cache.publish(&event);
        }
    }

    pub(crate) fn take_cleanup_tasks(&mut self) -> Vec<CleanupTask> {
        std::mem::take(&mut self.cleanup_tasks).into_iter().collect()
    }

    pub(crate) fn has_cleanup_tasks(&self) -> bool {
        !self.cleanup_tasks.is_empty()
    }

    fn index(&mut self, key: &Key, object: &Shared) {
        self.uids.insert(object.uid.clone(), key.clone());
        for owner in &object.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(key.clone());
        }
    }

    fn unindex(&mut self, key: &Key, object: &Shared) {
        self.uids.remove(&object.uid);
        for owner in &object.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    fn note_change(&mut self, key: &Key, object: &Shared) {
        let ownerless = object.owners.iter().any(|owner| !self.uids.contains_key(&owner.uid));
        if ownerless || object.deleting {
            self.cleanup_tasks.insert(CleanupTask::Object(key.clone()));
        }
        if key.resource == self.namespaces && object.deleting {
            self.cleanup_tasks.insert(CleanupTask::Namespace(key.name.name.clone()));
        }
    }

    fn note_removal(&mut self, key: &Key, object: &Shared) {
        for dependent in self.dependents(&object.uid) {
            self.cleanup_tasks.insert(CleanupTask::Object(dependent));
        }
        for owner in &object.owners {
            if let Some(owner) = self.uids.get(&owner.uid) {
                let deleting = self.get(owner).is_some_and(|owner| owner.deleting);
                if deleting {
                    self.cleanup_tasks.insert(CleanupTask::Object(owner.clone()));
                }
            }
        }
        if key.resource == self.service_accounts && key.name.name == DEFAULT_SERVICE_ACCOUNT {
            self.cleanup_tasks
                .insert(CleanupTask::ServiceAccount(key.name.namespace.clone()));
        }
        if !key.name.namespace.is_empty() {
            let namespace = Key {
                resource: self.namespaces,
                name: ObjectName {
                    namespace: String::new(),
                    name: key.name.namespace.clone(),
                },
            };
            if self.get(&namespace).is_some_and(|namespace| namespace.deleting) {
                self.cleanup_tasks
                    .insert(CleanupTask::Namespace(key.name.namespace.clone()));
            }
        }
    }
}

fn page<'a>(objects: impl Iterator<Item = &'a Shared>, query: &ListQuery<'_>, revision: u64) -> Listing {
    let wanted = |object: &&Shared| query.name.is_none_or(|name| object.name.name == name) && (query.matches)(object);
    let mut objects = objects.filter(wanted);
    let found: Vec<Shared> = objects.by_ref().take(query.limit).cloned().collect();
    let more = objects.count();
    let rest = match found.last() {
        Some(last) if 0 < more => Some((last.name.clone(), more)),
        _ => None,
    };
    Listing {
        objects: found,
        revision,
        rest,
    }
}

/// Two lists in order as one.
fn in_order<'a>(
    left: impl Iterator<Item = &'a Shared>,
    right: impl Iterator<Item = &'a Shared>,
) -> impl Iterator<Item = &'a Shared> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some(a), Some(b)) if b.name < a.name => right.next(),
        (None, Some(_)) => right.next(),
        _ => left.next(),
    })
}

/// The entries of one namespace or of all, after one of them or from the start.
fn range<'a, T>(
    objects: &'a BTreeMap<ObjectName, T>,
    namespace: Option<&'a str>,
    after: Option<&ObjectName>,
) -> impl Iterator<Item = (&'a ObjectName, &'a T)> {
    let start = match (after, namespace) {
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(namespace)) => Bound::Included(ObjectName {
            namespace: namespace.to_owned(),
            name: String::new(),
        }),
        (None, None) => Bound::Unbounded,
    };
    objects
        .range((start, Bound::Unbounded))
        .take_while(move |(name, _)| namespace.is_none_or(|namespace| name.namespace == namespace))
}
