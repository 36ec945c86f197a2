//! Durations as Kubernetes writes them: `12h`, `1h30m`, `500ms`, `0`.

use std::time::Duration;

/// Reads a duration; `None` if it is none, is negative or does not fit.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        total = total.checked_add(scaled(number, unit_seconds(unit)?)?)?;
        rest = tail;
    }
    Some(total)
}

fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

fn scaled(number: &str, unit: f64) -> Option<Duration> {
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::hours("12h", Some(43_200_000))]
    #[case::hours_and_minutes("1h30m", Some(5_400_000))]
    #[case::as_kubernetes_prints("6h0m0s", Some(21_600_000))]
    #[case::milliseconds("500ms", Some(500))]
    #[case::fraction("1.5h", Some(5_400_000))]
    #[case::zero("0", Some(0))]
    #[case::zero_seconds("0s", Some(0))]
    #[case::empty("", None)]
    #[case::no_unit("12", None)]
    #[case::unknown_unit("1d", None)]
    #[case::negative("-1h", None)]
    #[case::two_dots("1.2.3s", None)]
    #[case::no_number("h", None)]
    #[case::too_long("999999999999999999999h", None)]
    fn reads(#[case] text: &str, #[case] want_ms: Option<u64>) {
        assert_eq!(parse(text), want_ms.map(Duration::from_millis));
    }
}
