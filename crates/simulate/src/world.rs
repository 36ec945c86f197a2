//! One run: the API server, the replicas of the controller, the fleet and the people, on one clock.

mod acts;
mod calls;
mod nodes;
mod replicas;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::api::{Api, Call, Response, Writer};
use crate::checks::{Checks, Violation};
use crate::controller::{FleetSettings, PlantedBug};
use crate::faults::Faults;
use crate::machine::Machine;
use crate::queue::{Millis, Queue};
use crate::random::Random;
use crate::replica::Replica;
use crate::stream::Scope;

pub(crate) use self::acts::{Act, LONGEST_PAUSE};

/// Who sends a request, and which process of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Replica { index: usize, life: u64, term: Option<u64> },
    Agent { index: usize, life: u64 },
}

/// Who watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watcher {
    Replica(usize, Scope),
    Agent(usize),
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    ReplicaTurn(usize, u64),
    AgentTurn(usize, u64),
    /// A watch makes its list.
    List(Watcher, u64),
    /// A watch has something to show.
    Items(Watcher, u64),
    WorkEnds {
        index: usize,
        life: u64,
        run: u64,
    },
    /// A request reaches the API server.
    Arrive {
        sender: Sender,
        id: u64,
        call: Call,
        reply: Reply,
    },
    Respond {
        sender: Sender,
        id: u64,
        response: Response,
    },
    Act(Act),
    /// The garbage collector deletes what belonged to an object that is gone.
    Collect(String),
}

/// What becomes of the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It comes after this many milliseconds.
    After(Millis),
    /// It is lost; its sender will give up.
    Lost,
    /// The request arrives after its sender gave it up.
    TooLate,
    /// The server fails after it carried the request out.
    Error,
}

/// One run.
pub(crate) struct World {
    pub(crate) queue: Queue<Event>,
    pub(crate) random: Random,
    pub(crate) api: Api,
    pub(crate) faults: Faults,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) by_name: BTreeMap<String, usize>,
    pub(crate) fleet: FleetSettings,
    pub(crate) resyncs: bool,
    planted: Option<PlantedBug>,
    terms: u64,
    streams: u64,
    lives: u64,
    /// Until when the API server answers nobody.
    pub(crate) api_down_until: Millis,
    /// Until when the registry answers nobody.
    pub(crate) registry_down_until: Millis,
    /// NodeImages whose creation, change and deletion the API server refuses, and until when.
    pub(crate) refused_until: BTreeMap<String, Millis>,
    /// States of Secrets whose password is right, as the controller names them.
    pub(crate) good_logins: BTreeSet<String>,
    pub(crate) checks: Checks,
    /// When the faults are over.
    pub(crate) chaos: Millis,
    /// What happened last, and how much of it is kept.
    trace: VecDeque<String>,
    traced: usize,
    pub(crate) events: u64,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults, planted: Option<PlantedBug>, traced: usize) -> Self {
        Self {
            queue: Queue::new(),
            random: Random::new(!seed),
            api: Api::default(),
            faults,
            replicas: Vec::new(),
            machines: Vec::new(),
            by_name: BTreeMap::new(),
            fleet: FleetSettings::default(),
            resyncs: true,
            planted,
            terms: 0,
            streams: 0,
            lives: 0,
            api_down_until: 0,
            registry_down_until: 0,
            refused_until: BTreeMap::new(),
            good_logins: BTreeSet::new(),
            checks: Checks::default(),
            chaos: 0,
            trace: VecDeque::new(),
            traced,
            events: 0,
        }
    }

    pub(crate) fn now(&self) -> Millis {
        self.queue.now()
    }

    /// The true time of day.
    pub(crate) fn time(&self) -> Timestamp {
        time_at(self.now())
    }

    /// Runs until a moment; stops early if something that must not happen did.
    pub(crate) fn run_until(&mut self, until: Millis) -> Result<(), Violation> {
        while let Some(event) = self.queue.next(until) {
            self.events += 1;
            self.happen(event);
            if let Some(violation) = self.checks.violation() {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ReplicaTurn(index, life) => self.turn_replica(index, life),
            Event::AgentTurn(index, life) => self.turn_agent(index, life),
            Event::List(watcher, stream) => self.list(&watcher, stream),
            Event::Items(watcher, stream) => self.items(&watcher, stream),
            Event::WorkEnds { index, life, run } => self.work_ends(index, life, run),
            Event::Arrive {
                sender,
                id,
                call,
                reply,
            } => self.arrive(sender, id, &call, reply),
            Event::Respond { sender, id, response } => self.respond(sender, id, response),
            Event::Act(act) => {
                self.note(|| format!("{act:?}"));
                self.act(act);
            }
            Event::Collect(uid) => self.collect(&uid),
        }
    }

    /// A person, the kubelet or the garbage collector writes.
    pub(crate) fn write(&mut self, call: &Call) -> Response {
        self.note(|| format!("somebody: {}", brief(call)));
        let response = self.api.call(call, Writer::Other, self.time());
        self.publish();
        response
    }

    /// Notes an event for the report of a failure.
    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.now();
        if 0 < self.traced {
            if self.traced <= self.trace.len() {
                self.trace.pop_front();
            }
            self.trace.push_back(format!("{:>9.3} s  {}", seconds(now), what()));
        }
    }

    /// What happened last, if it was noted.
    pub(crate) fn last_events(&self) -> Vec<String> {
        self.trace.iter().cloned().collect()
    }
}

/// The time of day at a moment of the run.
pub(crate) fn time_at(now: Millis) -> Timestamp {
    let start = Timestamp::from_second(1_800_000_000).unwrap_or_default();
    let passed = SignedDuration::from_millis(i64::try_from(now).unwrap_or(i64::MAX));
    start.checked_add(passed).unwrap_or(start)
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub(crate) fn seconds(millis: Millis) -> f64 {
    millis as f64 / 1_000.0
}

/// A request in one line.
pub(crate) fn brief(call: &Call) -> impl fmt::Display + use<> {
    let text = match call {
        Call::Get(key) => format!("get {:?} {}", key.kind, key.name),
        Call::Create(kind, value) => format!("create {kind:?} {}", value["metadata"]["name"]),
        Call::JsonPatch(key, patch) => format!("patch {:?} {} {patch}", key.kind, key.name),
        Call::JsonPatchStatus(key, patch) => format!("status of {:?} {} {patch}", key.kind, key.name),
        Call::Merge(key, patch) => format!("edit {:?} {} {patch}", key.kind, key.name),
        Call::Conditions(key, patch) => format!("conditions of {} {patch}", key.name),
        Call::Delete { key, .. } => format!("delete {:?} {}", key.kind, key.name),
        Call::Event => "event".to_owned(),
    };
    text.chars().take(400).collect::<String>()
}
