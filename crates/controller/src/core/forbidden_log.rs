//! Warnings about calls that the API server forbids: at most one a minute for each kind of call. Missing rights concern
//! every node, and a line for each of them would be hundreds a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two warnings about one kind of call.
const PAUSE: Duration = Duration::from_mins(1);

/// When was warned of what. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ForbiddenLog(Arc<Mutex<BTreeMap<&'static str, Warned>>>);

#[derive(Debug)]
struct Warned {
    at: Instant,
    /// Calls since then.
    calls: u64,
}

impl ForbiddenLog {
    /// Takes in that a call was forbidden. If a warning is due: how many calls were since the last one.
    pub(super) fn warning_due(&self, call: &'static str, now: Instant) -> Option<u64> {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = warned.get_mut(call) else {
            warned.insert(call, Warned { at: now, calls: 0 });
            return Some(1);
        };
        known.calls += 1;
        if now < known.at + PAUSE {
            return None;
        }
        known.at = now;
        Some(std::mem::take(&mut known.calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_of_call_is_warned_of_once_a_minute() {
        let (log, start) = (ForbiddenLog::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(log.warning_due("nodeimage_patch", start), Some(1));
        for second in 0..60 {
            assert_eq!(log.warning_due("nodeimage_patch", after(second)), None);
        }
        assert_eq!(log.warning_due("secret_get", after(59)), Some(1), "another kind");
        assert_eq!(log.warning_due("nodeimage_patch", after(60)), Some(61));
        assert_eq!(log.warning_due("nodeimage_patch", after(61)), None);
    }
}
