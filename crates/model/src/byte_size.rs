//! Amounts of data, and how people read them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. Sums and differences stop at the ends of the range: a size on a report must never wrap around.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl ByteSize {
    /// No bytes at all.
    pub const ZERO: ByteSize = ByteSize(0);

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let (tenths, unit) = (1u32..).zip(UNITS).fold((u128::MAX, ""), |found, (power, unit)| {
            // 1023.96 KiB would round to 1024.0 KiB; the next unit says it as 1.0 MiB.
            if found.0 < 10_240 {
                found
            } else {
                (rounded_tenths(self.0, power), unit)
            }
        });
        f.pad(&format!("{}.{} {unit}", tenths / 10, tenths % 10))
    }
}

fn rounded_tenths(bytes: u64, power: u32) -> u128 {
    let unit = 1024_u128.pow(power);
    (u128::from(bytes) * 10 + unit / 2) / unit
}

/// Why a text is no number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of bytes; write it like 5MiB, 5MB or 5242880")]
pub struct ByteSizeError(String);

/// Reads `5MiB`, `5Mi` (powers of 1024), `5MB`, `5M` (powers of 1000) and plain numbers.
impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let bad = || ByteSizeError(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let unit = unit.strip_suffix('B').unwrap_or(unit);
        let (unit, base) = match unit.strip_suffix('i') {
            Some(unit) if !unit.is_empty() => (unit, 1024_u64),
            _ => (unit, 1000),
        };
        let power = match unit {
            "" => 0,
            "K" | "k" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return Err(bad()),
        };
        let factor = base.checked_pow(power).ok_or_else(bad)?;
        number.checked_mul(factor).map(ByteSize).ok_or_else(bad)
    }
}

impl Add for ByteSize {
    type Output = ByteSize;

    fn add(self, other: ByteSize) -> ByteSize {
        ByteSize(self.0.saturating_add(other.0))
    }
}

impl Sub for ByteSize {
    type Output = ByteSize;

    fn sub(self, other: ByteSize) -> ByteSize {
        ByteSize(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for ByteSize {
    fn add_assign(&mut self, other: ByteSize) {
        *self = *self + other;
    }
}

impl SubAssign for ByteSize {
    fn sub_assign(&mut self, other: ByteSize) {
        *self = *self - other;
    }
}

impl Sum for ByteSize {
    fn sum<I: Iterator<Item = ByteSize>>(sizes: I) -> ByteSize {
        sizes.fold(ByteSize::ZERO, Add::add)
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("0", Some(0))]
    #[case::plain("5242880", Some(5 << 20))]
    #[case::binary("5MiB", Some(5 << 20))]
    #[case::as_kubernetes_writes("5Mi", Some(5 << 20))]
    #[case::decimal("5MB", Some(5_000_000))]
    #[case::short("5M", Some(5_000_000))]
    #[case::bytes("7B", Some(7))]
    #[case::kilo("2k", Some(2_000))]
    #[case::too_large("99999999999TiB", None)]
    #[case::fraction("1.5MiB", None)]
    #[case::unit_alone("MiB", None)]
    #[case::negative("-1", None)]
    #[case::nothing("", None)]
    #[case::other_unit("5MiBs", None)]
    #[case::half_a_unit("5i", None)]
    fn reads(#[case] text: &str, #[case] want: Option<u64>) {
        assert_eq!(text.parse::<ByteSize>().ok(), want.map(ByteSize));
    }

    #[rstest]
    #[case::nothing(0, "0 B")]
    #[case::bytes(512, "512 B")]
    #[case::last_of_bytes(1023, "1023 B")]
    #[case::first_kib(1024, "1.0 KiB")]
    #[case::mebibytes(1_572_864, "1.5 MiB")]
    #[case::gibibytes(2 << 30, "2.0 GiB")]
    #[case::rounded_up_into_the_next_unit((1 << 20) - 1, "1.0 MiB")]
    #[case::just_below_the_next_unit(1_048_473, "1023.9 KiB")]
    #[case::everything(u64::MAX, "16.0 EiB")]
    fn prints(#[case] bytes: u64, #[case] want: &str) {
        assert_eq!(ByteSize(bytes).to_string(), want);
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(ByteSize(u64::MAX) + ByteSize(1), ByteSize(u64::MAX));
        assert_eq!(ByteSize(1) - ByteSize(2), ByteSize::ZERO);
        assert_eq!(
            [1, 2, u64::MAX].map(ByteSize).into_iter().sum::<ByteSize>(),
            ByteSize(u64::MAX)
        );
    }

    #[test]
    fn is_a_plain_number_in_json() {
        assert_eq!(serde_json::to_string(&ByteSize(7)).unwrap(), "7");
        assert_eq!(serde_json::from_str::<ByteSize>("7").unwrap(), ByteSize(7));
    }

    proptest! {
        #[test]
        fn a_larger_size_never_prints_in_a_smaller_unit(a: u64, b: u64) {
            let unit = |bytes: u64| {
                let text = ByteSize(bytes).to_string();
                UNITS.iter().position(|u| text.ends_with(u))
            };
            let (small, large) = (a.min(b), a.max(b));
            prop_assert!(unit(small) <= unit(large));
        }
    }
}
