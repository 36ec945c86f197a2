//! The decision logic of a node's agent, seen from outside: the only file that knows its interface.
//!
//! It obeys the spec of its NodeImage, says what to look up and pull, and shows where each entry stands. Around it is what
//! the agent's own loops do: which order counts, what is saved, when a status is worth a write.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_api::NodeImage;
use larder_api::contract::{OrderId, Standing, status_patch};
use larder_api::node_image::{AgentStatus, ImageTagStatus, NodeImageSpec, NodeImageStatus};
use larder_model::{ByteSize, ImageRef, PullWhen, Reason};
use larder_planner::node::{
    Ended, Entry, EntryState, Found, Image, Key, NodeInventory, NodeScheduler, NodeStep, Stage, TimedStatus, entries,
};
use serde_json::Value;

/// Entries that leave, and news about the agent itself, are gathered before they are written.
const GATHER: Duration = Duration::from_secs(2);

/// Something that takes time on the node.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Look(Key),
    Pull(Box<Pull>),
    /// Pins and aliases, which always succeed here.
    PinOp,
}

/// One try of a pull.
#[derive(Clone, Debug)]
pub(crate) struct Pull {
    pub(crate) entry: Entry,
    pub(crate) limit: Duration,
}

impl Pull {
    /// Whether an image that is there would do.
    pub(crate) fn may_use_present(&self) -> bool {
        self.entry.when == PullWhen::IfNotPresent
    }
}

/// How a pull or look ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Present,
    Absent,
    Failed(Reason),
    TimedOut,
    Canceled,
}

/// What survives a restart.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    order: Option<(OrderId, NodeImageSpec)>,
    states: BTreeMap<Key, EntryState>,
    saved: Duration,
    boot: u64,
}

/// What the API shows of the own NodeImage.
#[derive(Clone, Debug)]
struct Seen {
    uid: String,
    version: u64,
    status: Option<NodeImageStatus>,
}

/// A running agent.
pub(crate) struct Agent {
    scheduler: NodeScheduler,
    order: Option<(OrderId, NodeImageSpec)>,
    seen: Option<Seen>,
    own_version: u64,
    gather_since: Option<Duration>,
}

/// What to do at a turn.
pub(crate) struct Decided {
    pub(crate) works: Vec<(u64, Work)>,
    pub(crate) cancels: Vec<u64>,
}

impl Agent {
    pub(crate) fn new(max_pulls: usize, memory: &Memory, boot: u64, now: Duration) -> Self {
        let mut scheduler = NodeScheduler::new(max_pulls);
        let same_boot = memory.boot == boot && memory.saved <= now;
        let resumed =
            |(key, state): (&Key, &EntryState)| (key.clone(), state.clone().resumed(memory.saved, same_boot, now));
        scheduler.resume(memory.states.iter().map(resumed).collect());
        if let Some((_, spec)) = &memory.order {
            scheduler.take_orders(entries(spec), None, now);
        }
        Self {
            scheduler,
            order: memory.order.clone(),
            seen: None,
            own_version: 0,
            gather_since: None,
        }
    }

    /// What has to be on disk before anything is shown.
    pub(crate) fn memory(&self, boot: u64, now: Duration) -> Memory {
        Memory {
            order: self.order.clone(),
            states: self.scheduler.states().clone(),
            saved: now,
            boot,
        }
    }

    /// The uid of the NodeImage that it obeys.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.order.as_ref().map(|(order, _)| order.uid.as_str())
    }

    pub(crate) fn spec(&self) -> Option<&NodeImageSpec> {
        self.order.as_ref().map(|(_, spec)| spec)
    }

    /// Entries that are to be pulled although the image may be there.
    pub(crate) fn wants_fresh(&self) -> impl Iterator<Item = Key> {
        let fresh = self
            .scheduler
            .entries()
            .filter(|(_, entry)| entry.when == PullWhen::Always);
        fresh.map(|(key, _)| key.clone())
    }

    /// Takes in a state of the own NodeImage. False: it looks older than the one that is obeyed, and only a fresh read
    /// tells which holds.
    pub(crate) fn take(&mut self, object: &NodeImage, version: u64, fresh: bool, now: Duration) -> bool {
        let Some(order) = OrderId::of(&object.metadata) else {
            return true;
        };
        let standing = self
            .order
            .as_ref()
            .map_or(Standing::AnotherObject, |(known, _)| known.standing_of(&order));
        if standing == Standing::Older && !fresh {
            return false;
        }
        self.see(object, version);
        let same_spec = self.order.as_ref().is_some_and(|(_, spec)| *spec == object.spec);
        if standing != Standing::Same || !same_spec {
            self.scheduler
                .take_orders(entries(&object.spec), object.status.as_ref(), now);
            self.order = Some((order, object.spec.clone()));
        }
        true
    }

    fn see(&mut self, object: &NodeImage, version: u64) {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let known = self.seen.as_ref().is_some_and(|seen| seen.uid == uid);
        if known && version < self.own_version {
            return;
        }
        self.seen = Some(Seen {
            uid,
            version,
            status: object.status.clone(),
        });
    }

    /// The NodeImage is gone.
    pub(crate) fn withdraw(&mut self) {
        self.seen = None;
        if self.order.take().is_some() {
            self.scheduler.withdraw();
        }
    }

    /// What to do now.
    pub(crate) fn decide(&mut self, now: Duration, wall: &Time) -> Decided {
        let mut decided = Decided {
            works: Vec::new(),
            cancels: Vec::new(),
        };
        for step in self.scheduler.decide(now, wall) {
            match step {
                NodeStep::Look { run, key } => decided.works.push((run, Work::Look(key))),
                NodeStep::Pull { run, key, limit, .. } | NodeStep::DryRun { run, key, limit } => {
                    if let Some(entry) = self.scheduler.entry(&key).cloned() {
                        decided.works.push((run, Work::Pull(Box::new(Pull { entry, limit }))));
                    }
                }
                NodeStep::Cancel { run } => decided.cancels.push(run),
                NodeStep::PinOp(pin_op) => {
                    self.scheduler.pin_op_ended(&pin_op, Ok(()), now);
                    decided.works.push((0, Work::PinOp));
                }
            }
        }
        decided
    }

    /// A look or pull ended.
    pub(crate) fn ended(&mut self, run: u64, work: &Work, end: End, now: Duration, wall: &Time) {
        let image = |name: &str| Image {
            id: format!("id-of-{name}"),
            digest: Some(format!("sha256:{:064x}", name.len())),
            ..Image::default()
        };
        match (work, end) {
            (Work::PinOp, _) => {}
            (Work::Look(key), End::Present) => {
                let found = Found::Present(image(&key.name));
                self.scheduler.looked(run, found, now, wall);
            }
            (Work::Look(_), End::Failed(reason)) => {
                let found = Found::Unknown(reason, "the runtime does not answer".to_owned());
                self.scheduler.looked(run, found, now, wall);
            }
            (Work::Look(_), End::Absent | End::TimedOut | End::Canceled) => {
                self.scheduler.looked(run, Found::Absent, now, wall);
            }
            (Work::Pull(pull), end) => {
                let end = match end {
                    End::Present => Ended::Pulled(image(&pull.entry.key.name)),
                    End::TimedOut => Ended::TimedOut,
                    End::Canceled => Ended::Canceled,
                    End::Absent => failed(Reason::NotFound),
                    End::Failed(reason) => failed(reason),
                };
                self.scheduler.ended(run, end, now, wall);
            }
        }
    }

    /// What the runtime holds now, and the room for more.
    pub(crate) fn take_inventory<'a>(
        &mut self,
        images: impl Iterator<Item = &'a ImageRef>,
        room: ByteSize,
        now: Duration,
    ) {
        let names = images.map(|image| (image.clone(), (format!("id-of-{image}"), ByteSize(1))));
        let inventory = NodeInventory {
            taken: now,
            names: names.collect(),
            room: Some(room),
            ..NodeInventory::default()
        };
        self.scheduler.wake(now, Reason::RuntimeDown);
        self.scheduler.take_inventory(inventory, now);
    }

    /// Whether an entry with a higher priority than a pull that started waits, and no slot is left for it.
    pub(crate) fn passed_over(&self, pull: &Pull, max_pulls: usize) -> bool {
        let waits = |key: &Key| {
            let state = self.scheduler.state(key);
            state.is_some_and(|state| matches!(state.stage, Stage::Queued { .. }))
        };
        let mut higher = self
            .scheduler
            .entries()
            .filter(|(_, entry)| !entry.dry_run && pull.entry.priority < entry.priority);
        max_pulls <= self.scheduler.pulling() && higher.any(|(key, _)| waits(key))
    }

    /// When to be asked again if nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        self.scheduler.wake_at()
    }

    /// The patch that makes the API show where the entries stand, and when it is worth a write; None if it does already.
    pub(crate) fn report(&mut self, public_key: &str, now: Duration, wall: &Time) -> Option<(Duration, Value)> {
        let seen = self.seen.as_ref()?;
        if self.order.as_ref().is_none_or(|(order, _)| order.uid != seen.uid) {
            return None;
        }
        let TimedStatus { mut status, due, .. } = self.scheduler.status();
        status.agent = Some(AgentStatus {
            version: Some("simulated".to_owned()),
            runtime: Some("simulated 1.0".to_owned()),
            public_key: Some(public_key.to_owned()),
            last_seen: Some(wall.clone()),
            ..AgentStatus::default()
        });
        let empty = NodeImageStatus::default();
        let before = seen.status.as_ref().unwrap_or(&empty);
        let (known, wanted) = (tags(before), tags(&status));
        let changed = wanted.iter().filter(|(key, tag)| known.get(*key) != Some(*tag));
        let mut moment = changed.map(|(key, _)| due.get(key).copied().unwrap_or(now)).min();
        let leaving = known.keys().any(|key| !wanted.contains_key(key));
        let agent = before.agent.as_ref().and_then(|agent| agent.public_key.as_deref()) != Some(public_key);
        if leaving || agent {
            let gathered = *self.gather_since.get_or_insert(now) + GATHER;
            moment = Some(moment.map_or(gathered, |moment| moment.min(gathered)));
        } else {
            self.gather_since = None;
        }
        let moment = moment?;
        let patch = status_patch(&seen.uid, seen.status.as_ref(), &status)?;
        Some((moment, patch))
    }

    /// A report was written.
    pub(crate) fn reported(&mut self, object: &NodeImage, version: u64) {
        self.own_version = self.own_version.max(version);
        self.gather_since = None;
        if self.seen.as_ref().is_none_or(|seen| seen.version < version) {
            self.see(object, version);
        }
    }
}

fn failed(reason: Reason) -> Ended {
    Ended::Failed {
        reason,
        words: "simulated".to_owned(),
        retry_after: None,
    }
}

fn tags(status: &NodeImageStatus) -> BTreeMap<Key, &ImageTagStatus> {
    let all = status
        .image_statuses
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |tag| (name, tag)));
    all.map(|(name, tag)| {
        let key = Key {
            name: name.clone(),
            tag: tag.tag.clone(),
        };
        (key, tag)
    })
    .collect()
}
