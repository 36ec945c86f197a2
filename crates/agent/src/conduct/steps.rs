//! Each step as a task, and what its end means.

use std::sync::Arc;
use std::time::Duration;

use larder_model::Reason;
use larder_planner::node::{Chore, Ended, Found, Image, Key};
use larder_runtime::RuntimeError;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Conductor, Done, Job};
use crate::metrics::PullLabels;
use crate::pin;
use crate::pull::Try;
use crate::wants::Orders;

impl Conductor {
    pub(super) fn start_look(&mut self, run: u64, key: &Key) {
        let slot = self.tools.slot.clone();
        let entry = self.board.entry(key).cloned();
        let token = self.token(run);
        let look = async move {
            let Some(entry) = entry else {
                return Found::Absent;
            };
            let image = match &entry.image {
                Ok(image) => image,
                Err(why) => return Found::Unknown(Reason::InvalidReference, why.clone()),
            };
            let unknown = |error: RuntimeError| Found::Unknown(error.reason(), error.runtime_text());
            let runtime = match slot.get(|| format!("look up {image}")).await {
                Ok(runtime) => runtime,
                Err(error) => return unknown(error),
            };
            match runtime.status(image).await {
                Ok(Some(there)) => {
                    pin::name_at_once(&*runtime, &entry).await;
                    Found::Present(Image {
                        digest: there.digest_in(image).map(|digest| digest.to_string()),
                        id: there.id,
                        ..Image::default()
                    })
                }
                Ok(None) => Found::Absent,
                Err(error) => unknown(error),
            }
        };
        self.spawn(Job::Run(run), async move {
            tokio::select! {
                () = token.cancelled() => Done::Looked(run, Found::Absent),
                found = look => Done::Looked(run, found),
            }
        });
    }

    pub(super) fn start_pull(&mut self, run: u64, key: &Key, attempt: u32, limit: Duration) {
        let Some(job) = self.attempt(run, key) else {
            return;
        };
        tracing::info!(image = %key, version = job.entry.version, attempt, "pull begins");
        let puller = self.puller.clone();
        self.spawn_run(run, key, limit, async move { puller.attempt(&job).await });
    }

    pub(super) fn start_dry_run(&mut self, run: u64, key: &Key, limit: Duration) {
        let Some(job) = self.attempt(run, key) else {
            return;
        };
        let puller = self.puller.clone();
        self.spawn_run(run, key, limit, async move { puller.dry_run(&job).await });
    }

    pub(super) fn start_chore(&mut self, chore: Chore) {
        let slot = self.tools.slot.clone();
        let job = Job::Chore(chore.clone());
        self.spawn(job, async move {
            let end = pin::carry_out(&slot, &chore).await;
            Done::Chore(chore, end)
        });
    }

    pub(super) fn looked(&mut self, run: u64, found: Found) {
        self.given_up.remove(&run);
        if matches!(found, Found::Present(_)) {
            self.count("present", "");
        }
        let (now, wall) = (self.tools.clock.now(), self.tools.clock.wall());
        self.board.looked(run, found, now, &wall);
    }

    pub(super) fn ended(&mut self, run: u64, key: &Key, end: Ended, took: Duration) {
        let seconds = took.as_secs_f64();
        self.given_up.remove(&run);
        let (all, fetched) = match &end {
            Ended::Pulled(image) => (image.bytes, image.fetched),
            _ => (None, None),
        };
        let rest = self.fetched.ended(run, all, fetched);
        self.tools.metrics.bytes.inc_by(rest);
        match &end {
            Ended::Pulled(_) => {
                self.count("succeeded", "");
                self.tools.metrics.seconds.observe(seconds);
                tracing::info!(image = %key, seconds, "pull succeeded");
                self.tools.refresh.notify_one();
            }
            Ended::Failed { reason, words, .. } => {
                self.count("failed", reason.as_str());
                tracing::info!(image = %key, %reason, words, seconds, "pull failed");
            }
            // Why, the board finds out.
            Ended::TimedOut => tracing::info!(image = %key, seconds, "pull took too long"),
            Ended::Canceled => {
                self.count("failed", Reason::Canceled.as_str());
                tracing::info!(image = %key, seconds, "pull given up");
            }
            Ended::Report { .. } => {}
        }
        let (now, wall) = (self.tools.clock.now(), self.tools.clock.wall());
        let timed_out = end == Ended::TimedOut;
        self.board.ended(run, end, now, &wall);
        if timed_out {
            let trouble = self.board.track(key).and_then(|track| track.trouble.as_ref());
            self.count(
                "failed",
                trouble.map_or(Reason::Timeout, |trouble| trouble.reason).as_str(),
            );
        }
    }

    fn count(&self, result: &'static str, reason: &'static str) {
        self.tools
            .metrics
            .pulls
            .get_or_create(&PullLabels { result, reason })
            .inc();
    }

    fn attempt(&self, run: u64, key: &Key) -> Option<Try> {
        let Orders::Given(given) = &self.orders else {
            return None;
        };
        Some(Try {
            run,
            entry: self.board.entry(key)?.clone(),
            order: given.order.clone(),
            spec: Arc::clone(&given.spec),
        })
    }

    fn token(&mut self, run: u64) -> CancellationToken {
        let token = CancellationToken::new();
        self.given_up.insert(run, token.clone());
        token
    }

    /// Runs within its time, unless it is given up before.
    fn spawn_run(&mut self, run: u64, key: &Key, limit: Duration, work: impl Future<Output = Ended> + Send + 'static) {
        let key = key.clone();
        let token = self.token(run);
        let promises = Arc::clone(&self.puller.promises);
        self.spawn(Job::Run(run), async move {
            let began = Instant::now();
            let end = tokio::select! {
                () = token.cancelled() => Ended::Canceled,
                end = timeout(limit, work) => end.unwrap_or(Ended::TimedOut),
            };
            // Whoever was given up could not do it himself.
            promises.lock().await.remove(&run);
            Done::Ended(run, key, end, began.elapsed())
        });
    }

    fn spawn(&mut self, job: Job, work: impl Future<Output = Done> + Send + 'static) {
        let id = self.tasks.spawn(work.in_current_span()).id();
        self.jobs.insert(id, job);
    }
}
