//! What goes wrong in a run, and how often. Each run draws which faults there are: two that come together are found sooner
//! when the others are silent.

use crate::queue::Millis;
use crate::random::Random;

/// Chances in a thousand, and times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// A request never arrives.
    pub(crate) lost_requests: u64,
    /// A request is carried out, and nobody hears of it.
    pub(crate) lost_responses: u64,
    /// A request is carried out after its sender gave it up.
    pub(crate) late_requests: u64,
    /// 429, or 500 before anything was done.
    pub(crate) errors: u64,
    /// 500 after everything was done.
    pub(crate) errors_after: u64,
    /// A response takes seconds.
    pub(crate) slow_requests: u64,
    /// A watch shows things up to this much later.
    pub(crate) watch_delay: Millis,
    /// A watch is silent for a while.
    pub(crate) stalls: u64,
    /// For how long, at most.
    pub(crate) longest_stall: Millis,
    /// A watch shows a change twice.
    pub(crate) duplicates: u64,
    /// A watch expires, and everything is listed anew.
    pub(crate) expiries: u64,
    /// The longest that a pull takes.
    pub(crate) pull_millis: Millis,
}

impl Faults {
    /// Nothing goes wrong.
    pub(crate) fn none() -> Self {
        Self {
            lost_requests: 0,
            lost_responses: 0,
            late_requests: 0,
            errors: 0,
            errors_after: 0,
            slow_requests: 0,
            watch_delay: 2,
            stalls: 0,
            longest_stall: 0,
            duplicates: 0,
            expiries: 0,
            pull_millis: 1_000,
        }
    }

    /// Faults of one run.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut chance = |most: u64| {
            if random.coin() { random.between(1..=most) } else { 0 }
        };
        Self {
            lost_requests: chance(100),
            lost_responses: chance(100),
            late_requests: chance(100),
            errors: chance(150),
            errors_after: chance(100),
            slow_requests: chance(200),
            watch_delay: chance(3_000),
            stalls: chance(20),
            longest_stall: 20_000,
            duplicates: chance(200),
            expiries: chance(10),
            pull_millis: chance(20_000).max(200),
        }
    }
}
