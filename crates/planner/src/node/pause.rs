//! How long to wait between two tries.

use std::time::Duration;

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);

/// The pause after this many tries that failed: 1, 2, 4 … 30 s.
pub fn pause_after(failed: u32) -> Duration {
    let doublings = failed.saturating_sub(1).min(5);
    Duration::from_secs(1 << doublings).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_half_a_minute() {
        let pauses: Vec<u64> = (1..9).map(|failed| pause_after(failed).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pause_after(u32::MAX), LONGEST);
    }
}
