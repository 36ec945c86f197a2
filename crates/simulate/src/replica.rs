//! One replica of the controller: the order of steps of the controller's main loop, in virtual time.
//!
//! Responses before watch events, a batch of events before one decision, a decision before the writes, and never more
//! requests at a time than the controller allows.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use crate::api::{Call, Response};
use crate::controller::{Engine, FleetSettings, MAX_IN_FLIGHT, PlantedBug, Request};
use crate::queue::Millis;
use crate::stream::{Item, Scope, Stream};

/// Watch events that are taken in before the engine decides.
const BATCH: usize = 512;

/// Everything is looked at again this often.
const RESYNC: Millis = 5 * 60 * 1_000;

/// Without anything to wait for, the engine is asked again after this long.
const LONGEST_SLEEP: Millis = 60 * 1_000;

/// The class of writes of Nodes.
const GATE: usize = 4;

/// One process of the controller.
pub(crate) struct Replica {
    engine: Engine,
    /// Which process of this replica: what was sent to an earlier one is lost.
    pub(crate) life: u64,
    /// The term that it may write in; None while another one leads.
    pub(crate) term: Option<u64>,
    followed: Option<u64>,
    pub(crate) streams: BTreeMap<Scope, Stream>,
    inbox: VecDeque<(Scope, Item)>,
    responses: VecDeque<(u64, Response)>,
    in_flight: BTreeMap<u64, Request>,
    counts: [usize; MAX_IN_FLIGHT.len()],
    next_request: u64,
    /// The engine was restarted, and requests of before are in flight.
    drains: bool,
    /// When the next resync begins; never where it is off.
    next_resync: Option<Millis>,
    /// How far its clock is ahead.
    pub(crate) clock: SignedDuration,
    /// When its loop turns next.
    pub(crate) turn_at: Option<Millis>,
}

/// What one turn of the loop asks of the world.
#[derive(Default)]
pub(crate) struct Turned {
    pub(crate) calls: Vec<(u64, Call)>,
    /// Watches to start.
    pub(crate) starts: Vec<Scope>,
    /// When to turn again.
    pub(crate) again: Millis,
}

impl Replica {
    pub(crate) fn new(life: u64, fleet: &FleetSettings, resyncs: bool, planted: Option<PlantedBug>) -> Self {
        Self {
            engine: Engine::new(fleet, planted),
            life,
            term: None,
            followed: None,
            streams: BTreeMap::new(),
            inbox: VecDeque::new(),
            responses: VecDeque::new(),
            in_flight: BTreeMap::new(),
            counts: [0; MAX_IN_FLIGHT.len()],
            next_request: 0,
            drains: false,
            next_resync: resyncs.then_some(RESYNC),
            clock: SignedDuration::ZERO,
            turn_at: None,
        }
    }

    /// Takes what its watches show by now.
    pub(crate) fn receive(&mut self, scope: &Scope, now: Millis) {
        if let Some(stream) = self.streams.get_mut(scope) {
            while let Some(item) = stream.pop(now) {
                self.inbox.push_back((scope.clone(), item));
            }
        }
    }

    pub(crate) fn respond(&mut self, request: u64, response: Response) {
        self.responses.push_back((request, response));
    }

    /// One turn of the loop.
    pub(crate) fn turn(&mut self, now: Millis, time: Timestamp) -> Turned {
        let mut turned = Turned::default();
        let clock = time.checked_add(self.clock).unwrap_or(time);
        if self.responses.is_empty() {
            for _ in 0..=BATCH {
                let Some((scope, item)) = self.inbox.pop_front() else {
                    break;
                };
                self.engine.observe(&scope, &item, clock);
            }
        }
        while let Some((id, response)) = self.responses.pop_front() {
            self.take_in(id, response, clock, &mut turned);
        }
        if self.followed != self.term {
            self.followed = self.term;
            if self.term.is_some() {
                turned.starts = self.restart();
            }
        }
        if self.engine.clock_went_back(clock) {
            turned.starts = self.restart();
        }
        if self.next_resync.is_some_and(|at| at <= now) {
            self.next_resync = Some(now + RESYNC / self.engine.resync_slices());
            self.engine.resync(clock);
        }
        // What was sent before a restart may yet change what the lists have shown.
        self.drains &= !self.in_flight.is_empty();
        if self.term.is_some() && !self.drains {
            self.act(clock, &mut turned);
        }
        turned.again = self.next_turn(now, clock);
        turned
    }

    fn take_in(&mut self, id: u64, response: Response, clock: Timestamp, turned: &mut Turned) {
        let Some(request) = self.in_flight.get(&id) else {
            return;
        };
        if let Some(call) = self.engine.respond(request, response, clock) {
            turned.calls.push((id, call));
        } else {
            self.counts[request.class()] -= 1;
            self.in_flight.remove(&id);
        }
    }

    /// The engine forgets what it saw, and every watch begins anew with a list.
    pub(crate) fn restart(&mut self) -> Vec<Scope> {
        self.engine.restart();
        self.inbox.clear();
        self.drains = true;
        let pods = self
            .streams
            .keys()
            .filter(|scope| matches!(scope, Scope::Namespace(..)));
        let scopes: Vec<Scope> = Engine::scopes().into_iter().chain(pods.cloned()).collect();
        self.streams.clear();
        scopes
    }

    fn act(&mut self, clock: Timestamp, turned: &mut Turned) {
        self.engine.decide(clock);
        let pods = self.engine.pod_scopes();
        self.streams
            .retain(|scope, _| !matches!(scope, Scope::Namespace(..)) || pods.contains(scope));
        let missing = pods
            .into_iter()
            .filter(|scope| !self.streams.contains_key(scope) && !turned.starts.contains(scope));
        let missing: Vec<Scope> = missing.collect();
        turned.starts.extend(missing);
        for (class, room) in MAX_IN_FLIGHT.into_iter().enumerate() {
            while self.counts[class] < room
                && let Some(request) = self.engine.next_request(class, clock)
            {
                self.next_request += 1;
                turned.calls.push((self.next_request, request.call()));
                self.counts[class] += 1;
                self.in_flight.insert(self.next_request, request);
            }
        }
    }

    fn next_turn(&self, now: Millis, clock: Timestamp) -> Millis {
        if !self.inbox.is_empty() || !self.responses.is_empty() {
            return now + 1;
        }
        let has_work =
            self.engine.is_undecided() || (self.engine.has_more_nodes() && self.counts[0] < MAX_IN_FLIGHT[0]);
        if has_work && self.term.is_some() && !self.drains {
            return now + 1;
        }
        // A replica that does not lead, or waits for earlier requests, decides nothing: no moment of its engine matters.
        let gate = self.engine.next_gate_look();
        let gate = gate.filter(|_| self.counts[GATE] < MAX_IN_FLIGHT[GATE]);
        let wake = [self.engine.next_wake(), gate].into_iter().flatten().min();
        let wake = wake.filter(|_| self.term.is_some() && !self.drains);
        let left = wake.map(|wake| wake.duration_since(clock).as_millis());
        let left = left.map_or(LONGEST_SLEEP, |left| {
            (Millis::try_from(left).unwrap_or(0) + 1).min(LONGEST_SLEEP)
        });
        self.next_resync.map_or(now + left, |at| at.min(now + left))
    }
}
