//! A limit on bytes a second, shared by all connections.

use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How far reading may run ahead of the limit, so that the timer's granularity costs no bandwidth.
const SLACK: Duration = Duration::from_millis(20);

pub(super) struct Bandwidth {
    limit: Option<NonZeroU64>,
    /// When everything that was taken so far has been paid for.
    paid_at: Mutex<Option<Instant>>,
}

impl Bandwidth {
    pub(super) fn new(limit: Option<NonZeroU64>) -> Self {
        Self {
            limit,
            paid_at: Mutex::new(None),
        }
    }

    /// Waits until so many bytes more fit under the limit. Bytes that were not used earlier are not saved up.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(limit) = self.limit else { return };
        let cost = Duration::from_secs_f64(to_f64(bytes) / to_f64(limit.get()));
        let paid_at = {
            let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let next = paid_at.map_or(now, |at| at.max(now)) + cost;
            *paid_at = Some(next);
            next
        };
        if let Some(wait_until) = paid_at.checked_sub(SLACK) {
            sleep_until(wait_until).await;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no exact bytes")]
fn to_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_takers_together_stay_within_five_percent() {
        let bandwidth = Bandwidth::new(NonZeroU64::new(5_000_000));
        let start = Instant::now();
        let takers = (0..8).map(|_| async {
            for _ in 0..200 {
                bandwidth.take(16_384).await;
            }
        });
        join_all(takers).await;
        let rate = 8.0 * 200.0 * 16_384.0 / start.elapsed().as_secs_f64();
        assert!((4_750_000.0..=5_250_000.0).contains(&rate), "{rate}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nobody_waits() {
        let start = Instant::now();
        Bandwidth::new(None).take(u64::MAX).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
