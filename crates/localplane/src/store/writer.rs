//! The one task that changes objects. It takes what waits, decides, makes the batch durable with one sync, shows it,
//! then answers; meanwhile the next batch gathers.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    Inner,
    disk::{Disk, DiskError, Row, row_key},
    state::Applied,
};
use crate::{
    error::ApiError,
    memory::Content,
    object::{self, Object},
    stored::{Key, Shared, Stored},
};

/// Requests that one sync may serve.
const BATCH: usize = 512;

/// The largest object in bytes of JSON, as etcd limits a request. Without it, patch after patch could make an object as
/// large as the memory.
const MAX_OBJECT_BYTES: usize = 3 << 19;

/// What to do with an object.
#[derive(Debug)]
pub(crate) enum Change {
    /// Create or replace it.
    Put(Object),
    /// Remove it; watchers see this as its last state.
    Remove(Object),
    /// Leave it.
    Keep(Shared),
}

/// What was done.
#[derive(Debug)]
pub(crate) struct WriteResult {
    pub(crate) object: Shared,
    pub(crate) created: bool,
    pub(crate) removed: bool,
}

/// The state as a decision sees it. Remembers what was looked at, so that it is known when to decide anew.
pub(crate) struct ReadView<'a> {
    lookup: &'a dyn Fn(&Key) -> Option<Shared>,
    seen: RefCell<Vec<(Key, Option<u64>)>>,
}

impl<'a> ReadView<'a> {
    pub(crate) fn new(lookup: &'a dyn Fn(&Key) -> Option<Shared>) -> Self {
        Self {
            lookup,
            seen: RefCell::default(),
        }
    }

    /// The object at `key`.
    pub(crate) fn get(&self, key: &Key) -> Option<Shared> {
        let object = (self.lookup)(key);
        let revision = object.as_ref().map(|object| object.revision);
        self.seen.borrow_mut().push((key.clone(), revision));
        object
    }

    pub(crate) fn into_seen(self) -> Vec<(Key, Option<u64>)> {
        self.seen.into_inner()
    }
}

/// A decision and what it is based on.
pub(crate) struct Prepared {
    pub(crate) change: Change,
    pub(crate) seen: Vec<(Key, Option<u64>)>,
}

type Decide = Box<dyn Fn(&ReadView<'_>) -> Result<Change, ApiError> + Send>;
type Reply = oneshot::Sender<Result<WriteResult, ApiError>>;

/// A write that waits for the writer.
pub(crate) struct Job {
    pub(crate) key: Key,
    pub(crate) prepared: Prepared,
    pub(crate) decide: Decide,
    pub(crate) reply: Reply,
}

/// Serves writes until `stop`, then those that already wait.
pub(crate) async fn run(
    shared: Arc<Inner>,
    disk: Option<Disk>,
    mut jobs: mpsc::Receiver<Job>,
    stop: CancellationToken,
) {
    let disk = disk.map(Arc::new);
    // Revisions are never used twice, not even after a batch that failed.
    let mut revision = shared.read().revision();
    loop {
        let first = tokio::select! {
            biased;
            job = jobs.recv() => job,
            () = stop.cancelled(), if jobs.is_empty() => {
                jobs.close();
                jobs.recv().await
            }
        };
        let Some(first) = first else { return };
        let mut batch = Batch::new(&shared, revision);
        batch.take(first);
        while batch.len() < BATCH {
            match jobs.try_recv() {
                Ok(job) => batch.take(job),
                Err(_) => break,
            }
        }
        let Batch { next, pending, .. } = batch;
        let written = next != revision;
        revision = next;
        let committed = match &disk {
            Some(disk) if written => commit(&shared, disk, &pending, revision).await,
            _ => Ok(()),
        };
        finish(&shared, pending, committed);
    }
}

struct Pending {
    key: Key,
    outcome: WriteResult,
    /// False for a decision to leave things as they are.
    changed: bool,
    reply: Reply,
}

struct Batch<'a> {
    shared: &'a Inner,
    next: u64,
    overlay: HashMap<Key, Option<Shared>>,
    pending: Vec<Pending>,
}

impl<'a> Batch<'a> {
    fn new(shared: &'a Inner, revision: u64) -> Self {
        Self {
            shared,
            next: revision,
            overlay: HashMap::new(),
            pending: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.pending.len()
    }

    fn lookup(&self, key: &Key) -> Option<Shared> {
        match self.overlay.get(key) {
            Some(object) => object.clone(),
            None => self.shared.read().get(key).cloned(),
        }
    }

    fn take(&mut self, job: Job) {
        let Job {
            key,
            prepared,
            decide,
            reply,
        } = job;
        let current = prepared
            .seen
            .iter()
            .all(|(key, revision)| self.lookup(key).map(|object| object.revision) == *revision);
        let change = if current {
            Ok(prepared.change)
        } else {
            decide(&ReadView::new(&|key| self.lookup(key)))
        };
        let (object, removed) = match change {
            Ok(Change::Put(object)) => (object, false),
            Ok(Change::Remove(object)) => (object, true),
            Ok(Change::Keep(object)) => {
                // Answered with the batch: what it tells of may not be durable before.
                let outcome = WriteResult {
                    object,
                    created: false,
                    removed: false,
                };
                self.pending.push(Pending {
                    key,
                    outcome,
                    changed: false,
                    reply,
                });
                return;
            }
            Err(error) => {
                answer(reply, Err(error));
                return;
            }
        };
        let existed = self.lookup(&key).is_some();
        let stored = self.store(&key, object);
        // An object that an earlier version stored can be deleted whatever its size.
        if !removed
            && !stored.deleting
            && let Err(error) = check_size(&stored)
        {
            answer(reply, Err(error));
            return;
        }
        self.next = stored.revision;
        self.overlay
            .insert(key.clone(), (!removed).then(|| Arc::clone(&stored)));
        self.pending.push(Pending {
            key,
            outcome: WriteResult {
                object: stored,
                created: !existed && !removed,
                removed,
            },
            changed: true,
            reply,
        });
    }

    fn store(&self, key: &Key, mut object: Object) -> Shared {
        let revision = self.next + 1;
        object::set_meta(&mut object, "resourceVersion", Some(revision.to_string().into()));
        let resource = self.shared.registry.get(key.resource);
        let written = self.shared.clock.now().as_millisecond();
        Arc::new(Stored::new(resource, object, revision, written))
    }
}

async fn commit(shared: &Inner, disk: &Arc<Disk>, pending: &[Pending], revision: u64) -> Result<(), DiskError> {
    let rows: Vec<Row> = pending
        .iter()
        .filter(|pending| pending.changed)
        .map(|pending| Row {
            key: row_key(&shared.registry, &pending.key),
            object: (!pending.outcome.removed).then(|| Arc::clone(&pending.outcome.object)),
        })
        .collect();
    let disk = Arc::clone(disk);
    match tokio::task::spawn_blocking(move || disk.commit(&rows, revision)).await {
        Ok(result) => result,
        Err(_) => Err(DiskError::Interrupted),
    }
}

fn finish(shared: &Inner, pending: Vec<Pending>, committed: Result<(), DiskError>) {
    if let Err(error) = committed {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "writing a batch to disk failed"
        );
        for pending in pending {
            answer(
                pending.reply,
                Err(ApiError::internal("the object database could not be written")),
            );
        }
        return;
    }
    let batch: Vec<Applied> = pending
        .iter()
        .filter(|pending| pending.changed)
        .map(|pending| Applied {
            key: pending.key.clone(),
            object: Arc::clone(&pending.outcome.object),
            removed: pending.outcome.removed,
        })
        .collect();
    if !batch.is_empty() {
        let cleanup_tasks = {
            let mut state = shared.write();
            state.apply(batch);
            state.has_cleanup_tasks()
        };
        if cleanup_tasks {
            shared.cleanup_tasks.notify_waiters();
        }
    }
    for pending in pending {
        answer(pending.reply, Ok(pending.outcome));
    }
}

/// Refuses an object that no request could change any more.
fn check_size(stored: &Stored) -> Result<(), ApiError> {
    if MAX_OBJECT_BYTES < stored.tail().len() {
        return Err(ApiError::too_large(MAX_OBJECT_BYTES));
    }
    Content::of_json(stored.tail()).check().map(drop)
}

/// A requester that has gone away does not need its answer.
fn answer(reply: Reply, result: Result<WriteResult, ApiError>) {
    drop(reply.send(result));
}
