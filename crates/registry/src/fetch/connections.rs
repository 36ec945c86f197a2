//! How many connections a fetch uses: starts like container runtimes do, adds while that brings more bytes a second, and
//! goes back when it does not. Pure: rates in, a number out.

/// Container runtimes fetch three layers at a time.
const START: usize = 3;

/// Measurements after which a number that turned out best is doubted: lines change.
const SETTLED_FOR: u32 = 20;

/// The number of connections of one fetch.
#[derive(Debug, Clone)]
pub struct Connections {
    now: usize,
    max: usize,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing was measured yet.
    New,
    /// More are tried than the number that reached this rate.
    Growing { before: usize, rate: u64 },
    /// So many measurements ago more did not help, or there may be no more.
    Settled { since: u32 },
}

impl Connections {
    /// At most `max`, at least one.
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        Self {
            now: START.min(max),
            max,
            state: State::New,
        }
    }

    /// All of them from the start.
    #[cfg(test)]
    pub(super) fn all(max: usize) -> Self {
        Self {
            now: max,
            ..Self::new(max)
        }
    }

    /// How many there should be.
    pub fn count(&self) -> usize {
        self.now
    }

    /// Takes in the rate, in bytes a second, that the present number of connections reached together.
    pub fn measured(&mut self, rate: u64) {
        match self.state {
            State::New => self.grow(rate),
            State::Growing { before, rate: earlier } => {
                if pays(earlier, before, rate, self.now) {
                    self.grow(rate);
                } else {
                    self.now = before;
                    self.state = State::Settled { since: 0 };
                }
            }
            State::Settled { since } if SETTLED_FOR <= since => self.grow(rate),
            State::Settled { since } => self.state = State::Settled { since: since + 1 },
        }
    }

    fn grow(&mut self, rate: u64) {
        let before = self.now;
        self.now = (before * 2).min(self.max);
        self.state = if before < self.now {
            State::Growing { before, rate }
        } else {
            State::Settled { since: 0 }
        };
    }
}

/// Whether more connections brought at least a quarter of what they would have brought if each were as fast as before.
fn pays(earlier: u64, before: usize, rate: u64, now: usize) -> bool {
    let (before, now) = (before as u128, now as u128);
    let (earlier, rate) = (u128::from(earlier), u128::from(rate));
    // rate - earlier ≥ (earlier * now / before - earlier) / 4, without division.
    earlier * (now - before) <= rate.saturating_sub(earlier) * before * 4 && earlier < rate
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Runs against a line that gives each connection so much, and all of them together at most so much.
    fn settles_at(max: usize, each: u64, together: u64) -> usize {
        let mut connections = Connections::new(max);
        for _ in 0..SETTLED_FOR {
            let rate = (connections.count() as u64 * each).min(together);
            connections.measured(rate);
        }
        connections.count()
    }

    #[rstest]
    #[case::slow_connections(8, 8_000_000, u64::MAX, 8)]
    #[case::one_connection_fills_the_line(8, 1_000_000_000, 100_000_000, 3)]
    #[case::six_fill_the_line(16, 10_000_000, 60_000_000, 6)]
    #[case::few_allowed(2, 8_000_000, u64::MAX, 2)]
    #[case::one_allowed(1, 8_000_000, u64::MAX, 1)]
    #[case::none_means_one(0, 8_000_000, u64::MAX, 1)]
    fn grows_while_it_pays(#[case] max: usize, #[case] each: u64, #[case] together: u64, #[case] want: usize) {
        assert_eq!(settles_at(max, each, together), want);
    }

    #[test]
    fn a_line_that_becomes_faster_is_noticed() {
        let mut connections = Connections::new(8);
        for _ in 0..5 {
            connections.measured(10_000_000);
        }
        assert_eq!(connections.count(), 3);
        for _ in 0..SETTLED_FOR * 2 {
            let rate = connections.count() as u64 * 8_000_000;
            connections.measured(rate);
        }
        assert_eq!(connections.count(), 8);
    }

    proptest! {
        #[test]
        fn stays_within_its_limits(max in 0_usize..40, rates in proptest::collection::vec(any::<u64>(), 0..100)) {
            let mut connections = Connections::new(max);
            for rate in rates {
                connections.measured(rate);
                prop_assert!((1..=max.max(1)).contains(&connections.count()));
            }
        }
    }
}
