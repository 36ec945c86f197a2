//! What must hold whatever happens.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::priority::BYPASSES_MAX;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// Orders with these tags, each at this version.
    Orders(Vec<(u8, i64)>),
    /// The run with this rank among those that run ends like this.
    End(usize, u8),
    /// So many seconds pass.
    Wait(u64),
    /// The runtime holds nothing.
    Vanish,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let orders = prop::collection::vec((0u8..5, 0i64..3), 0..5).prop_map(Event::Orders);
    let one = prop_oneof![
        2 => orders,
        6 => (0usize..4, 0u8..5).prop_map(|(run, end)| Event::End(run, end)),
        3 => (0u64..40).prop_map(Event::Wait),
        1 => Just(Event::Vanish),
    ];
    prop::collection::vec(one, 1..60)
}

fn end_of(kind: u8) -> Ended {
    match kind {
        0 => pulled("x"),
        1 => failed(Reason::Unreachable),
        2 => failed(Reason::NotFound),
        3 => failed(Reason::RuntimeDown),
        _ => Ended::TimedOut,
    }
}

fn make(tags: &[(u8, i64)]) -> NodeImageSpec {
    let unique: BTreeMap<u8, i64> = tags.iter().copied().collect();
    let tags: Vec<ImageTagSpec> = unique
        .into_iter()
        .map(|(number, version)| {
            let mut tag = tag(&format!("t{number}"));
            tag.version = version;
            if number % 2 == 0 { if_not_present(tag) } else { tag }
        })
        .collect();
    spec(&tags)
}

/// What the world outside would know: which runs were handed out and not ended.
#[derive(Default)]
struct World {
    running: BTreeMap<u64, bool>,
    looking: BTreeSet<u64>,
}

impl World {
    fn take(&mut self, steps: Vec<NodeStep>) {
        for step in steps {
            match step {
                NodeStep::Pull { run, .. } => assert!(self.running.insert(run, false).is_none(), "handed out twice"),
                NodeStep::Look { run, .. } => assert!(self.looking.insert(run), "handed out twice"),
                NodeStep::Cancel { run } => {
                    self.running.remove(&run);
                    self.looking.remove(&run);
                    self.running.insert(run, true);
                }
                NodeStep::DryRun { .. } | NodeStep::PinOp(_) => {}
            }
        }
    }
}

proptest! {
    #[test]
    fn never_above_the_limit_and_counts_add_up(max in 1usize..4, events in events()) {
        let mut scheduler = NodeScheduler::new(max);
        let mut world = World::default();
        let mut now = at(0);
        for event in events {
            match event {
                Event::Orders(tags) => scheduler.take_orders(entries(&make(&tags)), None, now),
                Event::End(rank, kind) => {
                    if let Some(run) = world.running.keys().nth(rank).copied() {
                        let cancelled = world.running.remove(&run) == Some(true);
                        scheduler.ended(run, if cancelled { Ended::Canceled } else { end_of(kind) }, now, &wall());
                    }
                }
                Event::Wait(seconds) => now += at(seconds),
                Event::Vanish => scheduler.take_inventory(NodeInventory { taken: now, ..NodeInventory::default() }, now),
            }
            world.take(scheduler.decide(now, &wall()));
            for run in std::mem::take(&mut world.looking) {
                scheduler.looked(run, Found::Absent, now, &wall());
            }
            world.take(scheduler.decide(now, &wall()));
            prop_assert!(scheduler.pulling() <= max);
            let status = scheduler.status().status;
            prop_assert_eq!(status.desired, status.waiting + status.pulling + status.succeeded + status.failed);
            for tag in status.image_statuses.values().flat_map(|image| &image.tags) {
                prop_assert!(tag.attempts.unwrap_or(0) <= 3, "{:?}", tag);
                prop_assert!(tag.phase() != Phase::Succeeded || tag.last_succeeded.is_some());
                prop_assert!(tag.phase().is_final() == tag.completion_time.is_some(), "{:?}", tag);
            }
        }
    }

    /// Whatever the registry does for a while, once it works every entry is answered, and each success costs one pull.
    #[test]
    fn every_entry_ends(max in 1usize..4, tags in prop::collection::vec((0u8..5, 0i64..3), 1..5), ends in prop::collection::vec(0u8..5, 0..30)) {
        let mut scheduler = NodeScheduler::new(max);
        scheduler.take_orders(entries(&make(&tags)), None, at(0));
        let mut ends = ends.into_iter();
        let mut now = at(0);
        let mut successes = 0;
        for _ in 0..2000 {
            for step in scheduler.decide(now, &wall()) {
                match step {
                    NodeStep::Look { run, .. } => scheduler.looked(run, Found::Absent, now, &wall()),
                    NodeStep::Pull { run, .. } => {
                        let kind = ends.next().unwrap_or(0);
                        successes += i32::from(kind == 0);
                        scheduler.ended(run, end_of(kind), now, &wall());
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            if scheduler.states().values().all(EntryState::is_done) {
                break;
            }
            now = scheduler.wake_at().unwrap_or(now);
        }
        let status = scheduler.status().status;
        prop_assert_eq!(status.succeeded + status.failed, status.desired);
        prop_assert_eq!(status.succeeded, successes);
    }

    /// Entries of any priority come while others are pulled. Of ten that start, at most one does while a higher priority
    /// waits; and none waits longer than it takes to start those that were there before it.
    #[test]
    fn higher_priorities_start_first_and_none_starves(
        max in 1usize..4, comes in prop::collection::vec(prop::option::weighted(0.7, -1..3i32), 1..200),
    ) {
        let mut scheduler = NodeScheduler::new(max);
        let mut orders: Vec<ImageTagSpec> = Vec::new();
        let mut running: Vec<u64> = Vec::new();
        let (mut starts, mut last_out_of_order) = (0, 0);
        // For each entry that waits: how many had started when it came, and how many waited.
        let mut waits: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (round, priority) in comes.into_iter().enumerate() {
            let now = at(round as u64);
            if let Some(priority) = priority {
                let name = format!("t{round:03}");
                orders.push(ImageTagSpec { priority, ..tag(&name) });
                waits.insert(name, (starts, waits.len()));
                scheduler.take_orders(entries(&spec(&orders)), None, now);
            } else if !running.is_empty() {
                scheduler.ended(running.remove(0), pulled("x"), now, &wall());
            }
            for (run, name) in pulls(&scheduler.decide(now, &wall())) {
                running.push(run);
                waits.remove(&name);
                starts += 1;
                let priority_of = |name: &str| scheduler.entry(&key(name)).unwrap().priority;
                if waits.keys().any(|other| priority_of(&name) < priority_of(other)) {
                    prop_assert!(last_out_of_order + BYPASSES_MAX < starts, "{} and {}", last_out_of_order, starts);
                    last_out_of_order = starts;
                }
            }
            for (name, (before, waited)) in &waits {
                let bound = (BYPASSES_MAX + 1) * (waited + 1);
                prop_assert!(starts - before <= bound, "{} waits for ever: {} of {}", name, starts - before, bound);
            }
        }
    }

    /// The same events make the same steps.
    #[test]
    fn deciding_is_a_function_of_what_happened(tags in prop::collection::vec((0u8..5, 0i64..3), 0..5)) {
        let steps = || {
            let mut scheduler = NodeScheduler::new(2);
            scheduler.take_orders(entries(&make(&tags)), None, at(0));
            scheduler.decide(at(0), &wall())
        };
        prop_assert_eq!(steps(), steps());
    }
}
