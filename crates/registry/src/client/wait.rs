//! A wait that a registry asked for, visible to others while it lasts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Requests that wait at the same time end their waits within this time, where it is the same wait.
const SAME: Duration = Duration::from_secs(1);

/// Whether requests wait because the registry asked for time. Clones show the same.
#[derive(Debug, Clone, Default)]
pub struct RegistryWait(Arc<Mutex<Option<Wait>>>);

#[derive(Debug, Clone, Copy)]
struct Wait {
    asked: Duration,
    until: Instant,
}

impl RegistryWait {
    /// How long the registry asked to wait. `None` once that is over.
    pub fn asked(&self) -> Option<Duration> {
        let wait = (*self.lock())?;
        (Instant::now() < wait.until).then_some(wait.asked)
    }

    /// A request begins to wait. One that has to wait for the rest of a known wait changes nothing.
    pub(super) fn begin(&self, asked: Duration) {
        let until = Instant::now() + asked;
        let mut wait = self.lock();
        if wait.is_none_or(|known| known.until + SAME < until) {
            *wait = Some(Wait { asked, until });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_shown_as_it_was_asked_for_until_it_is_over() {
        let seconds = Duration::from_secs;
        let wait = RegistryWait::default();
        assert_eq!(wait.asked(), None);
        wait.begin(seconds(40));
        tokio::time::advance(seconds(10)).await;
        // Another request waits for the rest.
        wait.begin(seconds(30));
        assert_eq!(wait.clone().asked(), Some(seconds(40)));
        wait.begin(seconds(60));
        assert_eq!(wait.asked(), Some(seconds(60)));
        tokio::time::advance(seconds(60)).await;
        assert_eq!(wait.asked(), None);
    }
}
