//! The objects: read from memory, written through one writer that makes each batch durable before it is visible.
//!
//! Promises: a write that was answered survives the death of the process; revisions only grow; a reader sees all
//! writes up to a revision and none after it. Knows nothing of HTTP.

mod disk;
mod state;
mod writer;

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub use disk::DiskError;
pub(crate) use state::{CleanupTask, State};
pub(crate) use writer::{Change, ReadView, WriteResult};

use crate::{
    clock::Clock,
    error::ApiError,
    registry::Registry,
    stored::{Key, ObjectName, Shared},
    watch::{Event, History, WatchScope},
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
    state: RwLock<State>,
    registry: Arc<Registry>,
    clock: Clock,
    cleanup_tasks: Notify,
}

impl Inner {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
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
    Now { initial: bool },
}

/// A running watch: what it missed, then what comes.
pub(crate) struct Subscription {
    pub(crate) initial: Vec<Shared>,
    pub(crate) backlog: Vec<Arc<Event>>,
    /// The revision up to which `initial` and `backlog` tell.
    pub(crate) revision: u64,
    pub(crate) events: mpsc::Receiver<Arc<Event>>,
    resource: usize,
    scope: WatchScope,
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
        self.store
            .write()
            .watch_cache(self.resource)
            .leave(&self.scope, self.id);
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
        let (disk, state) = match path {
            Some(path) => {
                let (disk, loaded) = disk::Disk::open(path, &registry)?;
                (Some(disk), State::new(&registry, history, loaded))
            }
            None => (None, State::new(&registry, history, disk::Loaded::default())),
        };
        let shared = Arc::new(Inner {
            state: RwLock::new(state),
            registry,
            clock,
            cleanup_tasks: Notify::new(),
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

    /// A page of objects. Fails only if the events since `query.at` are gone.
    pub(crate) fn list(&self, query: &ListQuery<'_>) -> Result<Listing, Compacted> {
        self.shared.read().list(query)
    }

    /// Starts a watch: what it tells first and what it tells later join without gap or overlap.
    pub(crate) fn subscribe(
        &self,
        resource: usize,
        scope: WatchScope,
        start: Start,
    ) -> Result<Subscription, Compacted> {
        let mut state = self.shared.write();
        let revision = state.revision();
        let mut initial = Vec::new();
        let mut backlog = Vec::new();
        match start {
            Start::Now { initial: true } => initial = state.covered(resource, &scope),
            Start::Now { initial: false } => {}
            Start::After(after) => {
                let watch_cache = state.watch_cache(resource);
                let compacted = Compacted {
                    newest: watch_cache.compacted(),
                };
                backlog = watch_cache
                    .since(after)
                    .ok_or(compacted)?
                    .filter(|event| scope.covers(&event.object.name))
                    .cloned()
                    .collect();
            }
        }
        let (id, events) = state.watch_cache(resource).listen(&scope);
        Ok(Subscription {
            initial,
            backlog,
            revision,
            events,
            resource,
            scope,
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
        decide: impl Fn(&ReadView<'_>) -> Result<Change, ApiError> + Send + 'static,
    ) -> Result<WriteResult, ApiError> {
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
        decide: impl Fn(&ReadView<'_>) -> Result<Change, ApiError>,
    ) -> Result<Change, ApiError> {
        Ok(self.prepare(&decide)?.change)
    }

    fn prepare(
        &self,
        decide: &dyn Fn(&ReadView<'_>) -> Result<Change, ApiError>,
    ) -> Result<writer::Prepared, ApiError> {
        let lookup = |key: &Key| self.get(key);
        let reading = ReadView::new(&lookup);
        let change = decide(&reading)?;
        Ok(writer::Prepared {
            change,
            seen: reading.into_seen(),
        })
    }

    /// Waits for clean-up work and takes it.
    pub(crate) async fn cleanup_tasks(&self) -> Vec<CleanupTask> {
        loop {
            let notified = self.shared.cleanup_tasks.notified();
            let cleanup_tasks = self.shared.write().take_cleanup_tasks();
            if !cleanup_tasks.is_empty() {
                return cleanup_tasks;
            }
            notified.await;
        }
    }

    /// Runs `look` on the present state; it must be short, since it holds off the writer.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&State) -> T) -> T {
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
pub(crate) struct Compacted {
    pub(crate) newest: u64,
}
