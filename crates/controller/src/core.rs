//! The core: watches feed the index, the index says what to write, and writes bring their answers back.
//!
//! One task owns the index and everything that is known; nothing else decides. What it reads and writes runs beside it, a
//! bounded number at a time, each with a time limit, and at most one for an object. Nothing is written unless this replica
//! may ([`Leadership::may_write`]), and a new term begins with a list of everything.

mod metrics;
mod watches;
mod writes;

use std::time::Duration;

use jiff::Timestamp;
use larder_telemetry::Part;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::metrics::Metrics;
use self::watches::{Sighting, Watches};
pub(crate) use self::writes::read_secret;
use self::writes::{Answer, Request, Writes};
use crate::clock;
use crate::index::{Index, Limits};
use crate::lease::Leadership;
use crate::run::CoreInputs;

/// Sightings that wait for the index. Watches wait when it is full.
const SIGHTINGS: usize = 4_096;

/// Sightings that are taken in before the index decides: a burst is decided once, and no write waits long.
const BATCH: usize = 512;

/// Everything is looked at again this often, a little at a time, whatever has happened.
const FULL_PASS: Duration = Duration::from_mins(5);

/// Without anything to wait for, the index is asked again after this long.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// Runs the core until it is stopped.
pub async fn run(inputs: CoreInputs, metrics: Metrics) {
    let CoreInputs {
        client,
        settings,
        health,
        permit,
        stop,
    } = inputs;
    let limits = Limits {
        max_active_pulls: settings.max_active_pulls,
        pause: settings.pause,
        serve_jobs: settings.gates.image_pull_jobs,
    };
    let (sender, sightings) = mpsc::channel(SIGHTINGS);
    let mut index = Index::new(limits);
    if settings.accept_cloudcore {
        index.accept_cloudcore();
    }
    let core = Core {
        index,
        watches: Watches::new(client.clone(), sender),
        writes: Writes::new(client.clone(), metrics.clone()),
        permit,
        term: None,
        metrics,
        part: health.part("core"),
    };
    core.run(sightings, stop).await;
}

/// Why the loop turns.
enum Woken {
    Answer(Answer),
    Sighting(Sighting),
    /// Somebody else leads now, or a moment has come.
    Otherwise,
}

struct Core {
    index: Index,
    watches: Watches,
    writes: Writes,
    permit: watch::Receiver<Leadership>,
    /// The term that the watches were started for.
    term: Option<u64>,
    metrics: Metrics,
    part: Part,
}

impl Core {
    async fn run(mut self, mut sightings: mpsc::Receiver<Sighting>, stop: CancellationToken) {
        self.watches.restart();
        let mut next_pass = Instant::now() + FULL_PASS;
        while !stop.is_cancelled() {
            let wake = self.wake().min(next_pass);
            let woken = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(answer) = self.writes.answered() => Woken::Answer(answer),
                changed = self.permit.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    Woken::Otherwise
                }
                Some(sighting) = sightings.recv() => Woken::Sighting(sighting),
                () = sleep_until(wake) => Woken::Otherwise,
            };
            let began = Instant::now();
            match woken {
                Woken::Answer(answer) => self.take_in(answer),
                Woken::Sighting(sighting) => {
                    self.see(sighting);
                    for _ in 0..BATCH {
                        match sightings.try_recv() {
                            Ok(sighting) => self.see(sighting),
                            Err(_) => break,
                        }
                    }
                }
                Woken::Otherwise => {}
            }
            while let Some(answer) = self.writes.answered_already() {
                self.take_in(answer);
            }
            self.follow_permit();
            if self.index.is_complete() {
                self.part.ready();
            } else {
                self.part.waiting("listing nodes, NodeImages and jobs");
            }
            let now = clock::now();
            if next_pass <= Instant::now() {
                let slices = u32::try_from(self.index.slices()).unwrap_or(u32::MAX);
                next_pass = Instant::now() + FULL_PASS / slices;
                self.index.pass_on(now);
            }
            self.act(now);
            self.metrics.turned(began.elapsed());
        }
        self.watches.stop();
        self.writes.finish().await;
    }

    fn see(&mut self, sighting: Sighting) {
        if sighting.epoch == self.watches.epoch() {
            self.index.observe(&sighting.kind, sighting.seen, clock::now());
        }
    }

    fn take_in(&mut self, answer: Answer) {
        let now = clock::now();
        match answer {
            Answer::Node(node, answer) => self.index.node_written(&node, answer, now),
            Answer::Object(target, answer) => self.index.object_written(&target, answer, now),
            Answer::Secret(key, answer) => self.index.secret_read(&key, answer, now),
            Answer::Note => {}
        }
    }

    /// A new term begins with a list of everything: what the last leader wrote is in it.
    fn follow_permit(&mut self) {
        let term = self.permit.borrow_and_update().term();
        if term == self.term {
            return;
        }
        self.term = term;
        let Some(term) = term else {
            self.metrics.step_down();
            return;
        };
        info!(term, "listing everything before the first decision");
        self.index.begin_anew();
        self.watches.restart();
    }

    fn may_write(&self) -> bool {
        self.permit.borrow().may_write(Instant::now())
    }

    /// Decides, and sends what is to be written, as far as there is room.
    fn act(&mut self, now: Timestamp) {
        if !self.may_write() {
            return;
        }
        self.index.decide(now);
        self.watches.follow_pods(&self.index.pod_namespaces());
        while self.writes.has_room(Request::NODE)
            && let Some((node, action)) = self.index.next_node_write(now)
        {
            self.writes.send(Request::Node(node, action));
        }
        while self.writes.has_room(Request::OBJECT)
            && let Some((target, action)) = self.index.next_object_write(now)
        {
            self.writes.send(Request::Object(target, action));
        }
        while self.writes.has_room(Request::SECRET)
            && let Some(key) = self.index.next_secret()
        {
            self.writes.send(Request::Secret(key));
        }
        while self.writes.has_room(Request::NOTE)
            && let Some(note) = self.index.next_note()
        {
            self.writes.send(Request::Note(note));
        }
        // Refused orders and answered questions may have put somebody on the agenda again.
        self.index.decide(now);
        self.metrics.show(&self.index);
    }

    /// When to look again without being told.
    fn wake(&self) -> Instant {
        let now = clock::now();
        let soon = Instant::now();
        if self.index.has_nodes_to_look_at() && self.writes.has_room(Request::NODE) && self.may_write() {
            return soon;
        }
        let left = self.index.next_wake().map(|moment| moment.duration_since(now));
        let left = left.and_then(|left| Duration::try_from(left).ok().or(Some(Duration::ZERO)));
        // Rounded up: waking a moment too early would only mean to go to sleep again.
        soon + left.map_or(LONGEST_SLEEP, |left| {
            (left + Duration::from_millis(1)).min(LONGEST_SLEEP)
        })
    }
}
