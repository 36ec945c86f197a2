//! The randomness of one run: everything comes from the seed.

use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Draws of one run.
pub(crate) struct Random(StdRng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number of a range.
    pub(crate) fn between(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// An index below `count`, which must not be zero.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.0.random_range(0..count.max(1))
    }

    /// True in this many of a thousand draws. Draws nothing where it cannot be true.
    pub(crate) fn permille(&mut self, chance: u64) -> bool {
        0 < chance && self.0.random_range(0..1_000) < chance
    }

    /// True in half of all draws.
    pub(crate) fn coin(&mut self) -> bool {
        self.permille(500)
    }

    /// One of these; None if there are none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        let index = self.index(items.len());
        items.get(index)
    }
}
