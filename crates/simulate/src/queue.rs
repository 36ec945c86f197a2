//! Virtual time: a queue of events, each at a millisecond since the start of the run.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Milliseconds since the start of the run.
pub(crate) type Millis = u64;

struct Timed<E> {
    at: Millis,
    serial: u64,
    event: E,
}

impl<E> PartialEq for Timed<E> {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl<E> Eq for Timed<E> {}

impl<E> PartialOrd for Timed<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Timed<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// Events in the order of their time; those of the same moment in the order in which they were added.
pub(crate) struct Queue<E> {
    now: Millis,
    serial: u64,
    heap: BinaryHeap<Reverse<Timed<E>>>,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            serial: 0,
            heap: BinaryHeap::new(),
        }
    }

    pub(crate) fn now(&self) -> Millis {
        self.now
    }

    /// Adds an event. One of the past happens now.
    pub(crate) fn at(&mut self, at: Millis, event: E) {
        self.serial += 1;
        self.heap.push(Reverse(Timed {
            at: at.max(self.now),
            serial: self.serial,
            event,
        }));
    }

    pub(crate) fn after(&mut self, pause: Millis, event: E) {
        self.at(self.now.saturating_add(pause), event);
    }

    /// The next event that is not later than `until`; without one, time moves to `until`.
    pub(crate) fn next(&mut self, until: Millis) -> Option<E> {
        if self.heap.peek().is_none_or(|Reverse(next)| until < next.at) {
            self.now = self.now.max(until);
            return None;
        }
        let Reverse(next) = self.heap.pop()?;
        self.now = next.at;
        Some(next.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_time_stops_at_the_limit() {
        let mut queue = Queue::new();
        queue.at(20, "late");
        queue.at(10, "first");
        queue.at(10, "second");
        assert_eq!(
            (queue.next(15), queue.next(15), queue.next(15)),
            (Some("first"), Some("second"), None)
        );
        assert_eq!(queue.now(), 15);
        queue.at(3, "of the past");
        assert_eq!((queue.next(30), queue.now()), (Some("of the past"), 15));
        assert_eq!((queue.next(30), queue.next(30), queue.now()), (Some("late"), None, 30));
    }
}
