//! Recent events of one resource, and its watchers.
//!
//! An event costs only the watchers of its resource, and among those a watch of one name is found by that name. A
//! watcher that does not keep up is cut off, never buffered without limit. Knows nothing of selectors or JSON.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::stored::Shared;

/// Events a watcher may lag behind before it is cut off. A watcher that is this late re-lists, which is cheaper for
/// the server than keeping its backlog.
const LAG: usize = 1024;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventType,
    /// The object after the change; for a deletion its last state, at the revision of the deletion.
    pub(crate) object: Shared,
    /// The object before the change.
    pub(crate) previous: Option<Shared>,
    /// Lines by version, with what they tell: made once, shared by all watchers, gone with the event.
    lines: [OnceLock<(&'static str, Bytes)>; 3],
}

impl Event {
    pub(crate) fn new(kind: EventType, object: Shared, previous: Option<Shared>) -> Self {
        Self {
            kind,
            object,
            previous,
            lines: Default::default(),
        }
    }

    /// The line that tells of this event.
    ///
    /// Nearly all watchers get the same line, so it is kept. Those whose selector turns a change into something
    /// else get a line of their own.
    pub(crate) fn line(&self, event_type: &'static str, version: usize, api_version: &str) -> Bytes {
        let make = || self.object.frame(event_type, api_version);
        let Some(slot) = self.lines.get(version) else {
            return make();
        };
        let (kept, line) = slot.get_or_init(|| (event_type, make()));
        if *kept == event_type { line.clone() } else { make() }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.object.revision
    }

    fn size(&self) -> usize {
        // The object after this change is the one before the next, so each is counted once; its line is as long.
        2 * self.object.size()
    }
}

/// How much of the past is kept, per resource.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Most events.
    pub events: usize,
    /// Most bytes of objects in those events.
    pub bytes: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            events: 10_000,
            bytes: 32 << 20,
        }
    }
}

/// Which objects of a resource a watcher gets events of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchScope {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl WatchScope {
    pub(crate) fn covers(&self, object: &crate::stored::ObjectName) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        fits(&self.namespace, &object.namespace) && fits(&self.name, &object.name)
    }
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    namespace: Option<String>,
    queue: mpsc::Sender<Arc<Event>>,
}

/// Past and audience of one resource.
#[derive(Debug)]
pub(crate) struct WatchCache {
    history: History,
    recent: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Events up to this revision are gone.
    compacted: u64,
    of_all: Vec<Watcher>,
    of_name: HashMap<String, Vec<Watcher>>,
    next_id: u64,
}

impl WatchCache {
    /// A cache without events from before `revision`.
    pub(crate) fn new(history: History, revision: u64) -> Self {
        Self {
            history,
            recent: VecDeque::new(),
            bytes: 0,
            compacted: revision,
            of_all: Vec::new(),
            of_name: HashMap::new(),
            next_id: 0,
        }
    }

    /// Remembers an event and passes it on.
    pub(crate) fn publish(&mut self, event: &Arc<Event>) {
        self.bytes += event.size();
        self.recent.push_back(Arc::clone(event));
        while self.history.events < self.recent.len() || self.history.bytes < self.bytes && 1 < self.recent.len() {
            let Some(old) = self.recent.pop_front() else { break };
            self.bytes -= old.size();
            self.compacted = old.revision();
        }
        // A full queue drops the watcher; its receiving end sees the channel closed and reports that it lost track.
        self.of_all.retain(|watcher| watcher.offer(event));
        let name = &event.object.name.name;
        if let Some(watchers) = self.of_name.get_mut(name) {
            watchers.retain(|watcher| watcher.offer(event));
            if watchers.is_empty() {
                self.of_name.remove(name);
            }
        }
    }

    /// Events after `revision`, oldest first, or `None` if some of them are gone.
    pub(crate) fn since(&self, revision: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        if revision < self.compacted {
            return None;
        }
        let start = self.recent.partition_point(|event| event.revision() <= revision);
        Some(self.recent.range(start..))
    }

    /// The newest revision whose event is gone.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Starts to pass on events; the id ends it.
    pub(crate) fn listen(&mut self, scope: &WatchScope) -> (u64, mpsc::Receiver<Arc<Event>>) {
        let (queue, receiver) = mpsc::channel(LAG);
        let id = self.next_id;
        self.next_id += 1;
        let watcher = Watcher {
            id,
            namespace: scope.namespace.clone(),
            queue,
        };
        match &scope.name {
            Some(name) => self.of_name.entry(name.clone()).or_default().push(watcher),
            None => self.of_all.push(watcher),
        }
        (id, receiver)
    }

    /// Ends what [`WatchCache::listen`] started.
    pub(crate) fn leave(&mut self, scope: &WatchScope, id: u64) {
        match &scope.name {
            Some(name) => {
                if let Some(watchers) = self.of_name.get_mut(name) {
                    watchers.retain(|watcher| watcher.id != id);
                    if watchers.is_empty() {
                        self.of_name.remove(name);
                    }
                }
            }
            None => self.of_all.retain(|watcher| watcher.id != id),
        }
    }
}

impl Watcher {
    /// False if the watcher is gone or too late.
    fn offer(&self, event: &Arc<Event>) -> bool {
        let elsewhere = self
            .namespace
            .as_ref()
            .is_some_and(|namespace| *namespace != event.object.name.namespace);
        elsewhere || self.queue.try_send(Arc::clone(event)).is_ok()
    }
}
