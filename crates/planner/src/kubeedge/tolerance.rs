//! `failureTolerate`: which share of the nodes may fail. Exact: no floating point, no rounding. A share that is met exactly
//! is tolerated.

use thiserror::Error;

/// What an empty text means, as KubeEdge's documents promise.
const DEFAULT: &str = "0.1";

/// A share between 0 and 1, as the digits behind the point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tolerance {
    all: bool,
    digits: Vec<u8>,
}

/// A text that is no such share. The API server refuses these; an object from before the CRD's rules may hold one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("failureTolerate {0:?} is not a decimal between 0 and 1; write for example \"0.1\"")]
pub struct ToleranceError(String);

impl Tolerance {
    /// Reads `0.1`, `.5`, `1`, `1.0`; an empty text is the default.
    pub fn parse(text: &str) -> Result<Self, ToleranceError> {
        let given = if text.is_empty() { DEFAULT } else { text };
        let (whole, fraction) = given.split_once('.').unwrap_or((given, ""));
        let digits_only = fraction.bytes().all(|byte| byte.is_ascii_digit());
        let zeros_only = fraction.bytes().all(|byte| byte == b'0');
        let something = !whole.is_empty() || !fraction.is_empty();
        match whole {
            "" | "0" if digits_only && something => Ok(Self {
                all: false,
                digits: fraction.bytes().map(|byte| byte - b'0').collect(),
            }),
            "1" if zeros_only => Ok(Self {
                all: true,
                digits: Vec::new(),
            }),
            _ => Err(ToleranceError(text.chars().take(40).collect())),
        }
    }

    /// How many of `total` nodes may fail: the share of them, rounded down.
    pub fn allowed(&self, total: usize) -> usize {
        if self.all {
            return total;
        }
        // Digit by digit from the last one: 0.d₁d₂d₃ × n = (d₁n + (d₂n + d₃n / 10) / 10) / 10, and rounding down on the way
        // changes nothing, because the rest is whole.
        let whole = total as u128;
        let share = self
            .digits
            .iter()
            .rev()
            .fold(0_u128, |rest, digit| (u128::from(*digit) * whole + rest) / 10);
        usize::try_from(share).unwrap_or(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    /// The cases that upstream's tests pin, and the boundary cases around them.
    #[rstest]
    #[case::half_failed_of_half("0.5", 5, 10, false)]
    #[case::one_more_than_half("0.5", 6, 10, true)]
    #[case::none_failed("0.5", 0, 10, false)]
    #[case::default_met_exactly("", 1, 10, false)]
    #[case::default_exceeded("", 2, 10, true)]
    #[case::default_of_few("", 1, 9, true)]
    #[case::strict("0", 1, 10, true)]
    #[case::strict_and_none_failed("0", 0, 10, false)]
    #[case::no_rounding_to_two_digits("0", 4, 1000, true)]
    #[case::a_third("0.33", 1, 3, true)]
    #[case::a_third_and_a_bit("0.34", 1, 3, false)]
    #[case::all_may_fail("1", 10, 10, false)]
    #[case::all_may_fail_spelt_longer("1.000", 10, 10, false)]
    #[case::without_a_leading_zero(".3", 3, 10, false)]
    #[case::guide("0.3", 4, 10, true)]
    #[case::three_tenths_are_exact("0.3", 3, 10, false)]
    #[case::many_digits("0.100000000000000000000000000001", 1, 10, false)]
    #[case::just_below("0.0999999999999999999999999999999", 1, 10, true)]
    fn decides(#[case] text: &str, #[case] failed: usize, #[case] total: usize, #[case] want: bool) {
        assert_eq!(Tolerance::parse(text).unwrap().allowed(total) < failed, want);
    }

    #[rstest]
    #[case::not_a_number("NaN")]
    #[case::infinite("Inf")]
    #[case::negative("-1")]
    #[case::above_one("2")]
    #[case::slightly_above_one("1.01")]
    #[case::percent("10%")]
    #[case::exponent("1e-1")]
    #[case::comma("0,1")]
    #[case::point_alone(".")]
    #[case::space(" ")]
    #[case::sign("+0.1")]
    #[case::word("few")]
    fn refuses(#[case] text: &str) {
        let error = Tolerance::parse(text).unwrap_err();
        assert!(error.to_string().contains("write for example"), "{error}");
    }

    proptest! {
        /// The same as `failed * 10^k <= numerator * total` in whole numbers.
        #[test]
        fn equals_rational_arithmetic(numerator in 0_u128..1_000_000, failed in 0_usize..30_000, total in 1_usize..30_000) {
            let text = format!("0.{numerator:06}");
            let tolerated = 1_000_000 * failed as u128 <= numerator * total as u128;
            prop_assert_eq!(failed <= Tolerance::parse(&text).unwrap().allowed(total), tolerated);
        }

        #[test]
        fn never_panics(text in ".{0,40}", total: usize) {
            if let Ok(tolerance) = Tolerance::parse(&text) {
                prop_assert!(tolerance.allowed(total) <= total);
            }
        }
    }
}
