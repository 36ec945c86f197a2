//! How far something is, in whole percent, without ever claiming more than is true.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A share from 0 to 100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Percent(u8);

/// A number that is no percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a percentage between 0 and 100")]
pub struct NotAPercentage(u8);

impl Percent {
    /// Nothing done.
    pub const ZERO: Percent = Percent(0);
    /// Everything done.
    pub const DONE: Percent = Percent(100);

    /// The share of `done` in `total`, rounded down, so that 100 is reached only when they are equal.
    ///
    /// A total of 0 is one that is not known yet: 0. More done than the total means that the total was too small: 99,
    /// because work is still going on.
    pub fn of(done: u64, total: u64) -> Percent {
        if total == 0 {
            return Percent::ZERO;
        }
        if done == total {
            return Percent::DONE;
        }
        let floor = u128::from(done) * 100 / u128::from(total);
        Percent(u8::try_from(floor).map_or(99, |percent| percent.min(99)))
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Percent {
    type Error = NotAPercentage;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        if number <= 100 {
            Ok(Self(number))
        } else {
            Err(NotAPercentage(number))
        }
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> u8 {
        percent.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(0, 10, 0)]
    #[case::unknown_total(0, 0, 0)]
    #[case::bytes_before_the_total_is_known(10, 0, 0)]
    #[case::half(5, 10, 50)]
    #[case::rounded_down(999, 1000, 99)]
    #[case::one_byte_missing(u64::MAX - 1, u64::MAX, 99)]
    #[case::done(1000, 1000, 100)]
    #[case::total_was_too_small(11, 10, 99)]
    #[case::total_was_far_too_small(u64::MAX, 1, 99)]
    fn of(#[case] done: u64, #[case] total: u64, #[case] want: u8) {
        assert_eq!(Percent::of(done, total).get(), want);
    }

    #[test]
    fn numbers_above_100_are_refused() {
        assert_eq!(Percent::try_from(101), Err(NotAPercentage(101)));
        assert!(serde_json::from_str::<Percent>("101").is_err());
        assert_eq!(serde_json::to_string(&Percent::DONE).unwrap(), "100");
    }

    proptest! {
        #[test]
        fn is_100_exactly_when_all_is_done(done: u64, total in 1u64..) {
            prop_assert_eq!(Percent::of(done, total) == Percent::DONE, done == total);
        }
    }
}
