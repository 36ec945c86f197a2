//! The two clocks of a node. Decisions use the steady one; wall time is for people to read, and may be wrong or jump.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

/// Both clocks. Clones show the same time.
#[derive(Clone)]
pub struct Clock {
    start: Instant,
    start_reads: Duration,
    boot: Arc<str>,
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Clock {
    /// The clocks of this machine. The steady one counts from its boot, so that it goes on when the agent restarts.
    pub fn of_this_machine() -> Self {
        let proc = Path::new("/proc");
        let boot = std::fs::read_to_string(proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
        let uptime = std::fs::read_to_string(proc.join("uptime")).unwrap_or_default();
        let seconds = uptime.split_whitespace().next().and_then(|text| text.parse().ok());
        let reads = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Self::new(boot.trim(), reads.unwrap_or_default(), wall_of_this_machine)
    }

    /// A clock whose steady part shows `reads` now, on the boot of this name, with any wall clock.
    pub fn new(boot: &str, reads: Duration, wall: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            start: Instant::now(),
            start_reads: reads,
            boot: boot.into(),
            wall: Arc::new(wall),
        }
    }

    /// The steady clock.
    pub fn now(&self) -> Duration {
        self.start_reads + self.start.elapsed()
    }

    /// The moment when the steady clock shows this.
    pub fn instant(&self, moment: Duration) -> Instant {
        self.start + moment.saturating_sub(self.start_reads)
    }

    /// Names the life of the machine in which the steady clock counts.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// What the wall clock shows, in whole seconds as Kubernetes writes it.
    pub fn wall(&self) -> Time {
        let now = (self.wall)();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this crate that reads the wall clock"
)]
fn wall_of_this_machine() -> Timestamp {
    Timestamp::now()
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock")
            .field("boot", &self.boot)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn steady_time_passes_whatever_the_wall_says() {
        let clock = Clock::new("boot", Duration::from_secs(100), || Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(clock.now(), Duration::from_secs(105));
        assert_eq!(
            clock.instant(Duration::from_secs(107)) - Instant::now(),
            Duration::from_secs(2)
        );
        assert_eq!(clock.wall().0, Timestamp::UNIX_EPOCH);
    }

    #[tokio::test]
    async fn this_machine_has_booted() {
        let clock = Clock::of_this_machine();
        assert!(clock.now() > Duration::ZERO);
        assert!(!clock.boot().is_empty());
    }
}
