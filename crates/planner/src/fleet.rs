//! How jobs share the pulls that the whole fleet may have at once: those with the highest priority come first. Among equals it
//! is the one that has the fewest, and then the one that was served longest ago. What a job has is never taken back; it gets
//! nothing more until the others have caught up. A lower priority gets its part by the rule in [`priority`](crate::priority).

mod limit;
#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};

pub use limit::FleetLimit;

/// What a job has of the fleet's pulls. The smaller, the sooner it is its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Its priority; the higher comes first.
    pub priority: Reverse<i32>,
    /// Slots that it holds.
    pub slots: usize,
    /// When it was last given one: a number that grows with every hand-out of any job.
    pub served: u64,
}

impl Share {
    /// The share of a job that comes when the last hand-out had this number. It stands before the job that was served then,
    /// and behind all others: as one that was never served it would overtake them, and a stream of small jobs would starve a
    /// large one.
    pub fn of_newcomer(priority: i32, last: u64) -> Self {
        Self {
            priority: Reverse(priority),
            slots: 0,
            served: last.saturating_sub(1),
        }
    }
}

/// How many of the `free` slots a job may take before it is the turn of the next one that waits.
pub fn allowance(free: usize, own: Share, next: Option<Share>) -> usize {
    let Some(next) = next else {
        return free;
    };
    match own.priority.cmp(&next.priority) {
        Ordering::Less => free,
        Ordering::Greater => 0,
        Ordering::Equal => {
            let ahead = usize::from(own.slots == next.slots && own.served <= next.served);
            free.min(next.slots.saturating_sub(own.slots).max(ahead))
        }
    }
}
