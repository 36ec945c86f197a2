//! Drives the board: tells it what happened, carries out the steps it gives, shows and saves where it stands.
//!
//! One task owns the board. Pulls, looks and chores run beside it as tasks of their own, which end when they are given up
//! and when the agent stops.

mod steps;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use larder_model::{ByteSize, Reason};
use larder_planner::node::{Board, Chore, Ended, Found, Key, Note, Step, Track, entries};
use larder_registry::RegistryClient;
use larder_registry::client::Settings as RegistrySettings;
use larder_registry::hosts::Hosts;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::ledger::{Ledger, Memory};
use crate::metrics::{Fetched, Metrics};
use crate::pull::{Moved, Puller};
use crate::settings::Settings;
use crate::slot::RuntimeSlot;
use crate::wants::{Orders, Picture, Wanted};

/// Reports of bytes that wait to be taken up. Beyond that they are lost, and the next ones say more.
const MOVED_MAX: usize = 64;

/// A track with a deadline is saved at least this often (see the ledger).
const SAVE_EVERY: Duration = Duration::from_mins(1);

pub(crate) struct Tools {
    pub(crate) settings: Arc<Settings>,
    pub(crate) slot: RuntimeSlot,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) ledger: Ledger,
    pub(crate) refresh: Arc<Notify>,
}

pub(crate) struct Channels {
    pub(crate) orders: watch::Receiver<Orders>,
    pub(crate) picture: watch::Receiver<Option<Picture>>,
    pub(crate) shown: watch::Sender<Option<Wanted>>,
}

/// What a task beside the board comes back with.
enum Done {
    Looked(u64, Found),
    Ended(u64, Key, Ended, Duration),
    Chore(Chore, Result<(), Note>),
}

/// What a task was for, in case it ends without a word.
enum Job {
    Run(u64),
    Chore(Chore),
}

pub(crate) struct Conductor {
    board: Board,
    orders: Orders,
    tools: Tools,
    channels: Channels,
    puller: Puller,
    moved: mpsc::Receiver<Moved>,
    tasks: JoinSet<Done>,
    jobs: HashMap<Id, Job>,
    given_up: BTreeMap<u64, CancellationToken>,
    fetched: Fetched,
    runtime: Option<String>,
    image_fs: Option<(ByteSize, ByteSize)>,
}

impl Conductor {
    pub(crate) fn new(tools: Tools, channels: Channels, memory: Memory) -> Self {
        let (sender, moved) = mpsc::channel(MOVED_MAX);
        let hosts = tools.settings.hosts_dir.clone().map(Hosts::in_dir).unwrap_or_default();
        let registry = RegistryClient::new(RegistrySettings {
            hosts,
            mirror_logins: tools.credentials.keyring().clone(),
            ..RegistrySettings::default()
        });
        let puller = Puller {
            node: tools.settings.node.clone(),
            slot: tools.slot.clone(),
            credentials: Arc::clone(&tools.credentials),
            registry,
            gc_threshold: tools.settings.gc_threshold,
            accept_foreign_images: tools.settings.accept_foreign_images,
            binfmt_dir: tools.settings.binfmt_dir.clone(),
            promises: Arc::new(Mutex::new(BTreeMap::new())),
            moved: sender,
        };
        let mut board = Board::new(tools.settings.max_pulls);
        board.resume(memory.tracks);
        let mut conductor = Self {
            board,
            orders: Orders::Unknown,
            tools,
            channels,
            puller,
            moved,
            tasks: JoinSet::new(),
            jobs: HashMap::new(),
            given_up: BTreeMap::new(),
            fetched: Fetched::default(),
            runtime: None,
            image_fs: None,
        };
        // The ledger's orders hold until the API says otherwise.
        conductor.take_orders();
        conductor
    }

    fn take_orders(&mut self) {
        let now = self.tools.clock.now();
        self.orders = self.channels.orders.borrow_and_update().clone();
        match &self.orders {
            Orders::Unknown => {}
            Orders::Withdrawn => self.board.withdraw(),
            Orders::Given(given) => {
                tracing::debug!(
                    uid = given.order.uid,
                    generation = given.order.generation,
                    "taking up orders"
                );
                self.board.orders(entries(&given.spec), given.said.as_deref(), now);
            }
        }
    }

    fn take_picture(&mut self) {
        let Some(picture) = self.channels.picture.borrow_and_update().clone() else {
            return;
        };
        let now = self.tools.clock.now();
        self.runtime = Some(picture.runtime);
        self.image_fs = picture.image_fs;
        // A picture means that the runtime answers.
        self.board.wake(now, Reason::RuntimeDown);
        self.board.picture(picture.holdings, now);
    }

    fn take_moved(&mut self, moved: Moved) {
        // The last look at a pull may be taken up after its end.
        if !self.given_up.contains_key(&moved.run) {
            return;
        }
        let new = self.fetched.looked(moved.run, moved.done);
        self.tools.metrics.bytes.inc_by(new);
        let now = self.tools.clock.now();
        self.board.progress(moved.run, moved.done, moved.total, now);
    }

    fn show(&self) {
        let metrics = &self.tools.metrics;
        metrics
            .running
            .set(i64::try_from(self.board.pulling()).unwrap_or(i64::MAX));
        metrics
            .queued
            .set(i64::try_from(self.board.queued()).unwrap_or(i64::MAX));
        if let Orders::Given(given) = &self.orders {
            let wanted = Wanted {
                uid: given.order.uid.clone(),
                generation: given.order.generation,
                shown: self.board.show(),
                runtime: self.runtime.clone(),
                image_fs: self.image_fs,
            };
            self.channels.shown.send_if_modified(|shown| {
                let news = shown.as_ref() != Some(&wanted);
                if news {
                    *shown = Some(wanted);
                }
                news
            });
        } else {
            self.channels.shown.send_if_modified(|shown| shown.take().is_some());
        }
    }

    async fn save(&mut self) {
        let Tools { ledger, clock, .. } = &mut self.tools;
        ledger.save(&self.orders, self.board.tracks(), clock).await;
    }
}

/// Runs until told to stop; what runs then is given up, and taken up again by the next life.
pub(crate) async fn run(mut conductor: Conductor, stop: CancellationToken) {
    let mut only_bytes = false;
    loop {
        let now = conductor.tools.clock.now();
        let steps = conductor.board.decide(now, &conductor.tools.clock.wall());
        only_bytes &= steps.is_empty();
        for step in steps {
            conductor.start(step);
        }
        // Nothing is shown that a kill would make us forget: what the API knows as done is not pulled again. Bytes are not
        // worth saving.
        if !std::mem::take(&mut only_bytes) {
            conductor.save().await;
        }
        conductor.show();
        let wake = conductor.wake_at(now);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(ended) = conductor.tasks.join_next_with_id() => conductor.take_end(ended),
            Ok(()) = conductor.channels.orders.changed() => conductor.take_orders(),
            Ok(()) = conductor.channels.picture.changed() => conductor.take_picture(),
            Some(moved) = conductor.moved.recv() => {
                only_bytes = true;
                conductor.take_moved(moved);
            }
            () = sleep_until(conductor.tools.clock.instant(wake)) => {}
        }
        // Whatever came at the same time is decided together.
        while let Some(ended) = conductor.tasks.try_join_next_with_id() {
            only_bytes = false;
            conductor.take_end(ended);
        }
    }
}

impl Conductor {
    fn wake_at(&self, now: Duration) -> Duration {
        let unfinished = self.board.tracks().values().any(|track| !Track::is_done(track));
        let save = if unfinished {
            SAVE_EVERY
        } else {
            Duration::from_hours(1)
        };
        let save = now + save;
        self.board.wake_at().map_or(save, |wake| wake.min(save))
    }

    fn take_end(&mut self, ended: Result<(Id, Done), JoinError>) {
        let (now, wall) = (self.tools.clock.now(), self.tools.clock.wall());
        match ended {
            Ok((id, done)) => {
                self.jobs.remove(&id);
                match done {
                    Done::Looked(run, found) => self.looked(run, found),
                    Done::Ended(run, key, end, took) => self.ended(run, &key, end, took),
                    Done::Chore(chore, end) => {
                        self.board.chore_ended(&chore, end, now);
                        self.tools.refresh.notify_one();
                    }
                }
            }
            Err(error) => {
                tracing::error!(%error, "a task of the agent panicked; this is a bug");
                let words = || "the agent failed at this; its log has the details".to_owned();
                match self.jobs.remove(&error.id()) {
                    Some(Job::Run(run)) => {
                        self.given_up.remove(&run);
                        self.board
                            .looked(run, Found::Unknown(Reason::Internal, words()), now, &wall);
                        let end = Ended::Failed {
                            reason: Reason::Internal,
                            words: words(),
                            retry_after: None,
                        };
                        self.board.ended(run, end, now, &wall);
                    }
                    Some(Job::Chore(chore)) => {
                        let note = Note {
                            reason: Some(Reason::Internal),
                            message: words(),
                        };
                        self.board.chore_ended(&chore, Err(note), now);
                    }
                    None => {}
                }
            }
        }
    }

    fn start(&mut self, step: Step) {
        match step {
            Step::Cancel { run } => {
                if let Some(token) = self.given_up.get(&run) {
                    token.cancel();
                }
            }
            Step::Look { run, key } => self.start_look(run, &key),
            Step::Pull {
                run,
                key,
                attempt,
                limit,
            } => self.start_pull(run, &key, attempt, limit),
            Step::DryRun { run, key, limit } => self.start_dry_run(run, &key, limit),
            Step::Chore(chore) => self.start_chore(chore),
        }
    }
}
