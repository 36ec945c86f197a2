//! Several candidates and one Lease in virtual time: slow and lost requests, clocks that run unevenly and stand anywhere,
//! crashes, a deleted Lease.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Every call of the IO loop ends after so long.
const CALL: u64 = 5_000;

/// A write of an order ends after so long, too: one that started at the last moment may still arrive then.
const ORDER_WRITE: u64 = 5_000;

/// What happens to the requests, in turn; the list is used again from its start.
#[derive(Debug, Clone)]
struct Weather {
    /// Milliseconds to the server and back.
    delays: Vec<(u64, u64)>,
    /// Requests that never arrive.
    lost: Vec<bool>,
    /// Who cannot reach the server, from when, until when.
    cuts: Vec<(usize, u64, u64)>,
}

impl Weather {
    fn loses(&self, request: usize, who: usize, now: u64) -> bool {
        let cut = |(whom, from, until): &(usize, u64, u64)| *whom == who && (*from..*until).contains(&now);
        self.lost[request % self.lost.len()] || self.cuts.iter().any(cut)
    }
}

/// A candidate's clock, compared with the true one.
#[derive(Debug, Clone, Copy)]
struct Clock {
    offset: u64,
    /// Parts per thousand.
    rate: u64,
}

impl Clock {
    fn at(self, origin: Instant, true_time: u64) -> Instant {
        origin + Duration::from_millis(self.offset + true_time * self.rate / 1000)
    }

    /// The first true millisecond at which this clock shows `local`.
    fn when(self, origin: Instant, local: Instant) -> u64 {
        let shown = u64::try_from((local - origin).as_millis()).unwrap() + 1;
        (shown.saturating_sub(self.offset) * 1000).div_ceil(self.rate)
    }
}

#[derive(Debug)]
enum Event {
    /// The candidate decides what to do.
    Turn(usize),
    /// A request reaches the server; its answer comes `back` later.
    Arrive {
        who: usize,
        request: u64,
        call: Call,
        back: u64,
    },
    /// The answer; None when the candidate's patience ends first.
    Answer {
        who: usize,
        request: u64,
        reply: Option<Reply>,
    },
    Kill(usize),
    DeleteLease,
}

#[derive(Debug, Clone)]
enum Call {
    Look,
    Write(Swap),
}

#[derive(Debug, Clone)]
enum Reply {
    Saw(Observed),
    Wrote(Record),
    Refused,
}

struct Candidate {
    election: Election,
    clock: Clock,
    alive: bool,
    pending: Option<Pending>,
}

struct Pending {
    request: u64,
    sent: Instant,
}

/// From when until when a candidate may have written.
#[derive(Debug, Clone, Copy)]
struct Reign {
    who: usize,
    from: u64,
    until: u64,
}

struct World {
    origin: Instant,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    counter: u64,
    lease: Observed,
    writes: u64,
    candidates: Vec<Candidate>,
    weather: Weather,
    reigns: Vec<Reign>,
}

impl World {
    fn new(clocks: &[Clock], weather: Weather) -> Self {
        let origin = Instant::now();
        let candidates = clocks.iter().enumerate().map(|(who, clock)| Candidate {
            election: Election::new(format!("candidate-{who}"), Timing::default(), clock.at(origin, 0)),
            clock: *clock,
            alive: true,
            pending: None,
        });
        let mut world = Self {
            origin,
            now: 0,
            queue: BTreeMap::new(),
            counter: 0,
            lease: Observed::Absent,
            writes: 0,
            candidates: candidates.collect(),
            weather,
            reigns: Vec::new(),
        };
        for who in 0..clocks.len() {
            world.at(0, Event::Turn(who));
        }
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.counter += 1;
        self.queue.insert((time, self.counter), event);
    }

    fn run_until(&mut self, end: u64) {
        while let Some(first) = self.queue.first_entry()
            && first.key().0 <= end
        {
            self.now = first.key().0;
            let event = first.remove();
            self.handle(event);
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Turn(who) if self.candidates[who].alive => self.turn(who),
            Event::Arrive {
                who,
                request,
                call,
                back,
            } => self.arrive(who, request, &call, back),
            Event::Answer { who, request, reply } if self.candidates[who].alive => self.answer(who, request, reply),
            Event::Kill(who) => self.candidates[who].alive = false,
            // Who has never seen a lease cannot know that there was one.
            Event::DeleteLease if self.candidates.iter().all(|one| one.election.seen.is_some()) => {
                self.lease = Observed::Absent;
            }
            Event::Turn(_) | Event::Answer { .. } | Event::DeleteLease => {}
        }
    }

    fn local(&self, who: usize) -> Instant {
        self.candidates[who].clock.at(self.origin, self.now)
    }

    fn turn(&mut self, who: usize) {
        let now = self.local(who);
        self.note_reign(who, now);
        match self.candidates[who].election.next(now) {
            LeaseStep::Wait(until) => {
                let at = self.candidates[who].clock.when(self.origin, until).max(self.now + 1);
                self.at(at, Event::Turn(who));
            }
            LeaseStep::Look => self.call(who, now, Call::Look),
            LeaseStep::Acquire(swap) | LeaseStep::Renew(swap) => self.call(who, now, Call::Write(swap)),
        }
    }

    fn call(&mut self, who: usize, sent: Instant, call: Call) {
        self.counter += 1;
        let request = self.counter;
        let pick = usize::try_from(request).unwrap();
        let (there, back) = self.weather.delays[pick % self.weather.delays.len()];
        self.candidates[who].pending = Some(Pending { request, sent });
        if !self.weather.loses(pick, who, self.now) {
            self.at(
                self.now + there,
                Event::Arrive {
                    who,
                    request,
                    call,
                    back,
                },
            );
        }
        self.at(
            self.now + CALL,
            Event::Answer {
                who,
                request,
                reply: None,
            },
        );
    }

    /// The server does what it is asked, also for those who no longer wait, or are dead.
    fn arrive(&mut self, who: usize, request: u64, call: &Call, back: u64) {
        let reply = match call {
            Call::Look => Reply::Saw(self.lease.clone()),
            Call::Write(swap) => self.swap(swap),
        };
        self.at(
            self.now + back,
            Event::Answer {
                who,
                request,
                reply: Some(reply),
            },
        );
    }

    fn swap(&mut self, swap: &Swap) -> Reply {
        if swap.base.as_deref() != version(&self.lease) {
            return Reply::Refused;
        }
        self.writes += 1;
        let record = Record {
            holder: swap.holder.clone(),
            duration: Timing::default().duration,
            transitions: swap.transitions,
            version: self.writes.to_string(),
        };
        self.lease = Observed::Present(record.clone());
        Reply::Wrote(record)
    }

    fn answer(&mut self, who: usize, request: u64, reply: Option<Reply>) {
        let now = self.local(who);
        let candidate = &mut self.candidates[who];
        let Some(pending) = candidate.pending.take_if(|pending| pending.request == request) else {
            return;
        };
        match reply {
            None => candidate.election.failed(now),
            Some(Reply::Saw(lease)) => candidate.election.saw(now, lease),
            Some(Reply::Wrote(record)) => candidate.election.wrote(pending.sent, now, record),
            Some(Reply::Refused) => candidate.election.refused(now),
        }
        self.turn(who);
    }

    fn note_reign(&mut self, who: usize, now: Instant) {
        let candidate = &self.candidates[who];
        if let Leadership::Leader { may_write_until, .. } = candidate.election.leadership(now)
            && now < may_write_until
        {
            let until = candidate.clock.when(self.origin, may_write_until) + ORDER_WRITE;
            self.reigns.push(Reign {
                who,
                from: self.now,
                until,
            });
        }
    }

    fn writer_now(&self) -> Option<usize> {
        let leads = |who: &usize| {
            let candidate = &self.candidates[*who];
            candidate.alive
                && candidate
                    .election
                    .leadership(self.local(*who))
                    .may_write(self.local(*who))
        };
        (0..self.candidates.len()).find(leads)
    }

    fn assert_one_at_a_time(&self) {
        for (position, reign) in self.reigns.iter().enumerate() {
            for other in &self.reigns[position + 1..] {
                let apart = reign.who == other.who || reign.until <= other.from || other.until <= reign.from;
                assert!(apart, "{reign:?} and {other:?} overlap");
            }
        }
    }
}

fn clock() -> impl Strategy<Value = Clock> {
    // Three percent is sixty times what an NTP daemon corrects a clock by.
    (0..1_000_000_000_u64, 970..=1030_u64).prop_map(|(offset, rate)| Clock { offset, rate })
}

fn weather(
    there: impl Strategy<Value = u64>,
    back: impl Strategy<Value = u64>,
    lost: f64,
) -> impl Strategy<Value = Weather> {
    let delays = prop::collection::vec((there, back), 1..64);
    let lost = prop::collection::vec(prop::bool::weighted(lost), 1..64);
    (delays, lost).prop_map(|(delays, lost)| Weather {
        delays,
        lost,
        cuts: Vec::new(),
    })
}

/// Fine, answers that come at the last moment, a bad line, a terrible one; and candidates that are cut off for a while.
fn any_weather() -> impl Strategy<Value = Weather> {
    let weather = prop_oneof![
        weather(0..400_u64, 0..400_u64, 0.0),
        weather(0..100_u64, prop_oneof![0..100_u64, 4_000..4_900_u64], 0.0),
        weather(0..3_000_u64, 0..3_000_u64, 0.1),
        weather(0..9_000_u64, 0..9_000_u64, 0.3),
    ];
    let cuts = prop::collection::vec((0..4_usize, 0..200_000_u64, 5_000..60_000_u64), 0..12);
    (weather, cuts).prop_map(|(weather, cuts)| {
        let cuts = cuts
            .into_iter()
            .map(|(who, from, length)| (who, from, from + length))
            .collect();
        Weather { cuts, ..weather }
    })
}

proptest! {
    #[test]
    fn never_two_at_once(
        clocks in prop::collection::vec(clock(), 2..5),
        weather in any_weather(),
        kills in prop::collection::vec((0..4_usize, 0..200_000_u64), 0..3),
        deletion in prop::option::of(60_000..200_000_u64),
    ) {
        let mut world = World::new(&clocks, weather);
        for (who, at) in kills {
            world.at(at, Event::Kill(who % clocks.len()));
        }
        if let Some(at) = deletion {
            world.at(at, Event::DeleteLease);
        }
        world.run_until(300_000);
        world.assert_one_at_a_time();
    }

    #[test]
    fn somebody_leads_within_twenty_seconds_of_a_kill(
        clocks in prop::collection::vec(clock(), 2..5),
        weather in weather(0..300_u64, 0..300_u64, 0.0),
        kill_at in 3_000..60_000_u64,
    ) {
        let mut world = World::new(&clocks, weather);
        world.run_until(kill_at);
        let first = world.writer_now().expect("somebody leads after three seconds");
        world.handle(Event::Kill(first));
        world.run_until(kill_at + 20_000);
        let second = world.writer_now().expect("somebody leads again");
        prop_assert_ne!(first, second);
        world.assert_one_at_a_time();
    }
}
