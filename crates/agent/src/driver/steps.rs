//! Each step as a task, and what its end means.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use larder_model::{ImageRef, Reason};
use larder_planner::node::{Ended, Found, Image, Key, PinOp};
use larder_runtime::RuntimeError;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Driver, TaskPurpose, TaskResult};
use crate::messages::Orders;
use crate::metrics::PullLabels;
use crate::pin;
use crate::pull::PullAttempt;
use crate::settings::FetchMode;

/// Longest wait within one try for a registry that asks for time. Longer waits come between two tries.
const PATIENCE_MAX: Duration = Duration::from_mins(5);

impl Driver {
    /// Has the runtime throw away what was fetched for images that are not to be pulled any more.
    pub(super) fn drop_unfinished(&mut self) {
        let is_known = self.runtime.is_some() && !matches!(self.orders, Orders::Unknown);
        if !self.tools.owns_runtime || !is_known || !std::mem::take(&mut self.has_unfinished) {
            return;
        }
        let unfinished = self.scheduler.states().iter().filter(|(_, state)| !state.is_done());
        let entries = unfinished.filter_map(|(key, _)| self.scheduler.entry(key));
        let images = entries.filter_map(|entry| entry.image.clone().ok());
        let wanted: BTreeSet<ImageRef> = match self.tools.settings.fetch {
            FetchMode::Auto => images.collect(),
            // Of a time when it was on.
            FetchMode::Cri => BTreeSet::new(),
        };
        let runtime_handle = self.tools.runtime_handle.clone();
        self.spawn(TaskPurpose::DropUnfinished, async move {
            let doing = || "drop unfinished layers".to_owned();
            let dropped = match runtime_handle.get(doing).await {
                Ok(runtime) => runtime.drop_unfinished(&wanted).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &dropped {
                tracing::warn!(
                    error = error.text(),
                    "unfinished layers stay in the runtime's store until it answers"
                );
            }
            TaskResult::DroppedUnfinished(dropped.is_ok())
        });
    }

    pub(super) fn start_look(&mut self, run: u64, key: &Key) {
        let runtime_handle = self.tools.runtime_handle.clone();
        let entry = self.scheduler.entry(key).cloned();
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
            let runtime = match runtime_handle.get(|| format!("look up {image}")).await {
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
        self.spawn(TaskPurpose::Run(run), async move {
            tokio::select! {
                () = token.cancelled() => TaskResult::Looked(run, Found::Absent),
                found = look => TaskResult::Looked(run, found),
            }
        });
    }

    pub(super) fn start_pull(&mut self, run: u64, key: &Key, attempt: u32, limit: Duration) {
        let Some(mut job) = self.attempt(run, key) else {
            return;
        };
        job.patience = (limit / 2).min(PATIENCE_MAX);
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

    pub(super) fn start_pin_op(&mut self, pin_op: PinOp) {
        let runtime_handle = self.tools.runtime_handle.clone();
        let purpose = TaskPurpose::PinOp(pin_op.clone());
        self.spawn(purpose, async move {
            let end = pin::carry_out(&runtime_handle, &pin_op).await;
            TaskResult::PinOp(pin_op, end)
        });
    }

    pub(super) fn looked(&mut self, run: u64, found: Found) {
        self.cancel_tokens.remove(&run);
        if matches!(found, Found::Present(_)) {
            self.count("present", "");
        }
        let (now, wall) = (self.tools.clock.now(), self.tools.clock.wall());
        self.scheduler.looked(run, found, now, &wall);
    }

    pub(super) fn ended(&mut self, run: u64, key: &Key, end: Ended, took: Duration) {
        let seconds = took.as_secs_f64();
        self.cancel_tokens.remove(&run);
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
            // The scheduler decides whether it timed out or stood still.
            Ended::TimedOut => tracing::info!(image = %key, seconds, "pull took too long"),
            Ended::Canceled => {
                self.count("failed", Reason::Canceled.as_str());
                tracing::info!(image = %key, seconds, "pull given up");
            }
            Ended::Report { .. } => {}
        }
        let (now, wall) = (self.tools.clock.now(), self.tools.clock.wall());
        let timed_out = end == Ended::TimedOut;
        self.has_unfinished |= !matches!(end, Ended::Pulled(_) | Ended::Report { .. });
        self.scheduler.ended(run, end, now, &wall);
        if timed_out {
            let trouble = self.scheduler.state(key).and_then(|state| state.trouble.as_ref());
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

    fn attempt(&self, run: u64, key: &Key) -> Option<PullAttempt> {
        let Orders::Given(given) = &self.orders else {
            return None;
        };
        Some(PullAttempt {
            run,
            entry: self.scheduler.entry(key)?.clone(),
            order: given.order.clone(),
            spec: Arc::clone(&given.spec),
            patience: Duration::ZERO,
        })
    }

    fn token(&mut self, run: u64) -> CancellationToken {
        let token = CancellationToken::new();
        self.cancel_tokens.insert(run, token.clone());
        token
    }

    /// Runs within its time, unless it is given up before.
    fn spawn_run(&mut self, run: u64, key: &Key, limit: Duration, work: impl Future<Output = Ended> + Send + 'static) {
        let key = key.clone();
        let token = self.token(run);
        let promises = Arc::clone(&self.puller.promises);
        self.spawn(TaskPurpose::Run(run), async move {
            let began = Instant::now();
            let end = tokio::select! {
                () = token.cancelled() => Ended::Canceled,
                end = timeout(limit, work) => end.unwrap_or(Ended::TimedOut),
            };
            // A cancelled pull does not run to the line that removes its promise.
            promises.lock().await.remove(&run);
            TaskResult::Ended(run, key, end, began.elapsed())
        });
    }

    fn spawn(&mut self, purpose: TaskPurpose, work: impl Future<Output = TaskResult> + Send + 'static) {
        let id = self.tasks.spawn(work.in_current_span()).id();
        self.purposes.insert(id, purpose);
    }
}
