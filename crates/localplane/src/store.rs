//! The objects: read from memory, written through one writer that makes each batch durable before anybody sees it.
//!
//! Promises: a write that was answered survives the death of the process; revisions only grow; a reader sees all
//! writes up to a revision and none after it. Knows nothing of HTTP.

mod disk;
mod world;
mod writer;

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use disk::DiskError;
pub(crate) use world::{Chore, World};
pub(crate) use writer::{Change, Outcome, Reading};

use crate::{
    clock::Clock,
    error::ApiError,
    registry::Registry,
    stored::{Key, ObjectName, Shared},
    watch::{Event, History, Interest},
};

/// Requests that may wait for the writer; beyond that, writers wait for a place.
const QUEUE: usize = 1024;

/// Handle on the objects. Clones are the same store.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Inner>,
    queue: mpsc::Sender<writer::Job>,
}

/// What readers and the writer share.
pub(crate) struct Inner {
    world: RwLock<World>,
    registry: Arc<Registry>,
    clock: Clock,
    chores: Notify,
}

impl Inner {
    fn read(&self) -> RwLockReadGuard<'_, World> {
        self.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, World> {
        self.world.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One page of a list and what a client needs to go on from it.
pub(crate) struct Listing {
    pub(crate) objects: Vec<Shared>,
    pub(crate) revision: u64,
    /// The last object of this page and how many match after it, if there are more.
    pub(crate) rest: Option<(ObjectName, usize)>,
}

/// What to list.
pub(crate) struct ListQuery<'a> {
    pub(crate) resource: usize,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    /// Only objects after this one.
    pub(crate) after: Option<&'a ObjectName>,
    pub(crate) limit: usize,
    /// The state as of this revision rather than now.
    pub(crate) at: Option<u64>,
    pub(crate) matches: &'a dyn Fn(&Shared) -> bool,
}

/// From where a watch tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Everything after this revision.
    After(u64),
    /// Everything from now on, with the present state first if asked for.
    Now { state: bool },
}

/// A running watch: what it missed, then what comes.
pub(crate) struct Subscription {
    pub(crate) state: Vec<Shared>,
    pub(crate) backlog: Vec<Arc<Event>>,
    /// The revision up to which `state` and `backlog` tell.
    pub(crate) revision: u64,
    pub(crate) events: mpsc::Receiver<Arc<Event>>,
    resource: usize,
    interest: Interest,
    id: u64,
    store: Arc<Inner>,
}

impl Subscription {
    /// The revision up to which everything has been put into `events`.
    pub(crate) fn published(&self) -> u64 {
        self.store.read().revision()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.store.write().hub(self.resource).leave(&self.interest, self.id);
    }
}

impl Store {
    /// Opens the store at `path`, or one that lives in memory alone. Its writer runs until `stop`.
    pub(crate) fn open(
        path: Option<&Path>,
        registry: Arc<Registry>,
        clock: Clock,
        history: History,
        stop: CancellationToken,
    ) -> Result<(Self, tokio::task::JoinHandle<()>), DiskError> {
        let (disk, world) = match path {
            Some(path) => {
                let (disk, loaded) = disk::Disk::open(path, &registry)?;
                (Some(disk), World::new(&registry, history, loaded))
            }
            None => (None, World::new(&registry, history, disk::Loaded::default())),
        };
        let shared = Arc::new(Inner {
            world: RwLock::new(world),
            registry,
            clock,
            chores: Notify::new(),
        });
        let (queue, jobs) = mpsc::channel(QUEUE);
        let task = tokio::spawn(writer::run(Arc::clone(&shared), disk, jobs, stop));
        Ok((Self { shared, queue }, task))
    }

    /// The object at `key`.
    pub(crate) fn get(&self, key: &Key) -> Option<Shared> {
        self.shared.read().get(key).cloned()
    }

    /// The revision of the newest visible write.
    pub(crate) fn revision(&self) -> u64 {
        self.shared.read().revision()
    }

    /// A page of objects. Fails only if `query.at` is forgotten.
    pub(crate) fn list(&self, query: &ListQuery<'_>) -> Result<Listing, Forgotten> {
        self.shared.read().list(query)
    }

    /// Starts a watch: what it tells first and what it tells later join without gap or overlap.
    pub(crate) fn subscribe(
        &self,
        resource: usize,
        interest: Interest,
        start: Start,
    ) -> Result<Subscription, Forgotten> {
        let mut world = self.shared.write();
        let revision = world.revision();
        let mut state = Vec::new();
        let mut backlog = Vec::new();
        match start {
            Start::Now { state: true } => state = world.covered(resource, &interest),
            Start::Now { state: false } => {}
            Start::After(after) => {
                let hub = world.hub(resource);
                let forgotten = Forgotten {
                    newest: hub.forgotten(),
                };
                backlog = hub
                    .since(after)
                    .ok_or(forgotten)?
                    .filter(|event| interest.covers(&event.object.name))
                    .cloned()
                    .collect();
            }
        }
        let (id, events) = world.hub(resource).listen(&interest);
        Ok(Subscription {
            state,
            backlog,
            revision,
            events,
            resource,
            interest,
            id,
            store: Arc::clone(&self.shared),
        })
    }

    /// Decides on a change of the object at `key` and makes it durable.
    ///
    /// `decide` sees the newest state and may run more than once; it must depend on what it reads there alone.
    pub(crate) async fn write(
        &self,
        key: Key,
        decide: impl Fn(&Reading<'_>) -> Result<Change, ApiError> + Send + 'static,
    ) -> Result<Outcome, ApiError> {
        let prepared = self.prepare(&decide)?;
        let (reply, answer) = oneshot::channel();
        let job = writer::Job {
            key,
            prepared,
            decide: Box::new(decide),
            reply,
        };
        self.queue.send(job).await.map_err(|_| ApiError::shutting_down())?;
        answer.await.map_err(|_| ApiError::shutting_down())?
    }

    /// What `decide` would do now, without doing it.
    pub(crate) fn dry_run(
        &self,
        decide: impl Fn(&Reading<'_>) -> Result<Change, ApiError>,
    ) -> Result<Change, ApiError> {
        Ok(self.prepare(&decide)?.change)
    }

    fn prepare(&self, decide: &dyn Fn(&Reading<'_>) -> Result<Change, ApiError>) -> Result<writer::Prepared, ApiError> {
        let lookup = |key: &Key| self.get(key);
        let reading = Reading::new(&lookup);
        let change = decide(&reading)?;
        Ok(writer::Prepared {
            change,
            seen: reading.into_seen(),
        })
    }

    /// Waits for clean-up work and takes it.
    pub(crate) async fn chores(&self) -> Vec<Chore> {
        loop {
            let notified = self.shared.chores.notified();
            let chores = self.shared.write().take_chores();
            if !chores.is_empty() {
                return chores;
            }
            notified.await;
        }
    }

    /// Runs `look` on the present state; it must be short, since it holds off the writer.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.shared.read())
    }

    /// The kinds of this store.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// The time of day.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.shared.clock.now()
    }
}

/// A revision that is no longer remembered; everything up to `newest` is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgotten {
    pub(crate) newest: u64,
}
