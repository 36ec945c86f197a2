//! Who gets the slots of the fleet.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::priority::BYPASSES_MAX;

fn share(slots: usize, served: u64) -> Share {
    ranked(0, slots, served)
}

fn ranked(priority: i32, slots: usize, served: u64) -> Share {
    Share {
        priority: Reverse(priority),
        slots,
        served,
    }
}

#[rstest]
#[case::alone(5, share(2, 9), None, 5)]
#[case::has_fewer(5, share(2, 9), Some(share(4, 1)), 2)]
#[case::has_fewer_than_are_free(1, share(2, 9), Some(share(4, 1)), 1)]
#[case::has_more(5, share(4, 1), Some(share(2, 9)), 0)]
#[case::equal_and_waits_longer(5, share(2, 1), Some(share(2, 9)), 1)]
#[case::equal_and_was_served_later(5, share(2, 9), Some(share(2, 1)), 0)]
#[case::nobody_was_ever_served(5, share(0, 0), Some(share(0, 0)), 1)]
#[case::nothing_is_free(0, share(0, 0), None, 0)]
#[case::higher_and_has_more(5, ranked(1, 4, 9), Some(share(0, 1)), 5)]
#[case::lower_and_has_fewer(5, ranked(-1, 0, 1), Some(share(4, 9)), 0)]
#[case::equal_and_not_zero(5, ranked(3, 2, 9), Some(ranked(3, 4, 1)), 2)]
fn takes(#[case] free: usize, #[case] own: Share, #[case] next: Option<Share>, #[case] want: usize) {
    assert_eq!(allowance(free, own, next), want);
}

/// Jobs under a limit, each by its number. A job wants this many slots more than it has.
struct Fleet {
    limit: FleetLimit<usize>,
    wants: Vec<usize>,
    priorities: Vec<i32>,
}

impl Fleet {
    fn new(max: usize) -> Self {
        Self {
            limit: FleetLimit::new(NonZeroUsize::new(max)),
            wants: Vec::new(),
            priorities: Vec::new(),
        }
    }

    /// A job comes that wants so many slots in all. It asks at once.
    fn add(&mut self, priority: i32, wants: usize) -> usize {
        let job = self.wants.len();
        self.wants.push(wants);
        self.priorities.push(priority);
        self.limit.add(job, priority);
        self.ask(job);
        job
    }

    /// A job is looked at: it takes what it may and wants. How much that was.
    fn ask(&mut self, job: usize) -> usize {
        let given = self.limit.allowance(job).min(self.wants[job]);
        self.wants[job] -= given;
        self.limit.set_slots(job, self.limit.slots(job) + given);
        self.limit.served(job, given, 0 < self.wants[job]);
        given
    }

    /// A pull of this job ends.
    fn end(&mut self, job: usize) {
        self.limit.set_slots(job, self.limit.slots(job) - 1);
        if self.wants[job] == 0 && self.limit.slots(job) == 0 {
            self.limit.remove(job);
        }
    }

    /// Serves those that wait until nothing is free; the jobs that were given something, in order.
    fn serve(&mut self) -> Vec<usize> {
        let mut served = Vec::new();
        while let Some(job) = self.limit.next() {
            assert_ne!(self.ask(job), 0, "the one whose turn it is can take something");
            served.push(job);
        }
        served
    }

    /// A pull ends: of these, the one with this number. Who is served then.
    fn end_any(&mut self, number: usize) -> Vec<usize> {
        let holders: Vec<usize> = (0..self.wants.len()).filter(|job| 0 < self.limit.slots(*job)).collect();
        if let Some(job) = holders.get(number % holders.len().max(1)) {
            self.end(*job);
        }
        self.serve()
    }

    fn waits(&self, job: usize) -> bool {
        0 < self.wants[job]
    }

    fn slots(&self) -> Vec<usize> {
        (0..self.wants.len()).map(|job| self.limit.slots(job)).collect()
    }
}

/// More than is ever served here.
const ENDLESS: usize = 1_000_000;

#[test]
fn a_job_that_comes_later_with_a_higher_priority_is_served_first() {
    let mut fleet = Fleet::new(2);
    let low = fleet.add(0, 4);
    let high = fleet.add(7, 3);
    assert_eq!(fleet.slots(), [2, 0], "what runs is not stopped");
    let served: Vec<usize> = (0..5).flat_map(|_| fleet.end_any(0)).collect();
    assert_eq!(served, [high, high, high, low, low]);
}

#[test]
fn a_lower_priority_gets_one_slot_in_ten() {
    let mut fleet = Fleet::new(1);
    let high = fleet.add(1, ENDLESS);
    let low = fleet.add(0, ENDLESS);
    let served: Vec<usize> = (0..40).flat_map(|_| fleet.end_any(0)).collect();
    let turns: Vec<usize> = (0..served.len()).filter(|turn| served[*turn] == low).collect();
    assert_eq!(turns, [9, 19, 29, 39]);
    assert!(served.iter().filter(|job| **job == high).count() == 36);
}

#[test]
fn slots_that_come_free_together_are_shared_in_the_same_way() {
    let mut fleet = Fleet::new(30);
    let first = fleet.add(0, 30);
    let low = fleet.add(0, ENDLESS);
    let high = fleet.add(1, ENDLESS);
    for _ in 0..30 {
        fleet.end(first);
    }
    fleet.serve();
    assert_eq!((fleet.limit.slots(low), fleet.limit.slots(high)), (3, 27));
}

#[test]
fn the_lower_priorities_take_turns() {
    let mut fleet = Fleet::new(1);
    fleet.add(9, ENDLESS);
    let lower = [fleet.add(5, ENDLESS), fleet.add(0, ENDLESS), fleet.add(-5, ENDLESS)];
    let served: Vec<usize> = (0..60).flat_map(|_| fleet.end_any(0)).collect();
    let turns: Vec<usize> = served.into_iter().filter(|job| lower.contains(job)).collect();
    assert_eq!(turns, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn an_edited_priority_holds_for_the_next_slot() {
    let mut fleet = Fleet::new(1);
    fleet.add(0, ENDLESS);
    let edited = fleet.add(-1, ENDLESS);
    fleet.limit.add(edited, 1);
    assert_eq!(fleet.end_any(0), [edited]);
}

#[test]
fn without_a_limit_nothing_is_shared() {
    let mut limit: FleetLimit<usize> = FleetLimit::new(None);
    limit.add(0, -5);
    assert_eq!((limit.allowance(0), limit.next()), (usize::MAX, None));
}

proptest! {
    #[test]
    fn equal_priorities_share_equally(
        jobs in 1_usize..8, max in 1_usize..12, priority in -2..3_i32, ends in proptest::collection::vec(0_usize..100, 0..200),
    ) {
        let mut fleet = Fleet::new(max);
        // A job that goes at once holds all slots while the others come.
        let first = fleet.add(priority, max);
        for _ in 0..jobs {
            fleet.add(priority, ENDLESS);
        }
        (0..max).for_each(|_| fleet.end(first));
        fleet.serve();
        let mut rounds_without = vec![0_usize; jobs + 1];
        for end in ends {
            let served = fleet.end_any(end);
            let slots = &fleet.slots()[1..];
            prop_assert_eq!(slots.iter().sum::<usize>(), max);
            prop_assert!(slots.iter().max().unwrap() - slots.iter().min().unwrap() <= 1, "{:?}", slots);
            for (job, rounds) in rounds_without.iter_mut().enumerate().skip(1) {
                let has = served.contains(&job) || 0 < fleet.limit.slots(job);
                *rounds = if has { 0 } else { *rounds + 1 };
                prop_assert!(*rounds <= jobs, "job {} waits for ever: {:?}", job, fleet.slots());
            }
        }
    }

    /// Jobs of any priority come and go. The limit holds and is used; a lower priority is served past a higher one at most
    /// once in ten slots; and no job waits longer than it takes to serve those that were there before it.
    #[test]
    fn higher_first_and_no_job_starves(
        max in 1_usize..6,
        rounds in proptest::collection::vec((0_usize..100, proptest::option::weighted(0.4, (-1..3_i32, 1_usize..30))), 1..300),
    ) {
        let mut fleet = Fleet::new(max);
        let mut given_since_lower = 0;
        // Slots that were given while a job waited and had none, and how many jobs there were when it began to wait.
        let mut waits: Vec<Option<(usize, usize)>> = Vec::new();
        for (end, newcomer) in rounds {
            if let Some((priority, wants)) = newcomer {
                fleet.add(priority, wants);
                waits.push(None);
            }
            let holders: Vec<usize> = (0..waits.len()).filter(|job| 0 < fleet.limit.slots(*job)).collect();
            if holders.is_empty() {
                continue;
            }
            fleet.end(holders[end % holders.len()]);
            while let Some(job) = fleet.limit.next() {
                let is_passed_over = |other: &usize| fleet.waits(*other) && fleet.priorities[job] < fleet.priorities[*other];
                let out_of_order = (0..waits.len()).any(|other| is_passed_over(&other));
                let given = fleet.ask(job);
                prop_assert_ne!(given, 0);
                if out_of_order {
                    prop_assert!(given == 1 && BYPASSES_MAX <= given_since_lower, "{} after {}", given, given_since_lower);
                    given_since_lower = 0;
                } else {
                    given_since_lower += given;
                }
                let there = (0..waits.len()).filter(|other| fleet.waits(*other)).count();
                for (waiting, wait) in waits.iter_mut().enumerate() {
                    if fleet.wants[waiting] == 0 || 0 < fleet.limit.slots(waiting) {
                        *wait = None;
                        continue;
                    }
                    let (passed, before) = wait.get_or_insert((0, there + 1));
                    *passed += given;
                    // One in ten for each of those before it, and what its equals get in between.
                    let bound = (BYPASSES_MAX + 1) * (*before + 1) + *before;
                    prop_assert!(*passed <= bound, "job {} waits for ever: {} slots, {} jobs", waiting, passed, before);
                }
            }
            let taken: usize = fleet.slots().iter().sum();
            let wanted: usize = fleet.wants.iter().sum();
            prop_assert!(taken <= max && (taken == max || wanted == 0), "{} of {}, {} wanted", taken, max, wanted);
        }
    }
}
