//! Writes the NodeImage's status: the only writes that an agent sends.
//!
//! Results and waits are written at once, a running pull after a second, bytes as seldom as the entry asks. Whatever
//! comes together is written together, and while a write is under way the next ones gather. A write that fails is
//! repeated with growing pauses, and at once when the API shows itself again. There is no heartbeat, but an
//! agent that missed an order, because it was stopped or cut off, writes once so that the controller tries it again.
//! While another agent with the name of this node writes the same status, both write rarely ([`DuplicateDetector`]).

mod write_schedule;

use std::time::Duration;

use larder_api::contract::{NODE_IMAGE_BYTES_MAX, status_patch};
use larder_api::node_image::{AgentStatus, ImageFsStatus, NodeImageStatus};
use larder_model::ByteSize;
use larder_planner::node::{DuplicateDetector, fit};
use larder_telemetry::Part;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use self::write_schedule::WriteSchedule;
use crate::clock::Clock;
use crate::desired::observe;
use crate::messages::{DesiredStatus, ObservedNodeImage};
use crate::metrics::{Metrics, WriteLabels};
use crate::node_images::NodeImages;

/// Pauses after failed writes.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Report {
    pub(crate) api: NodeImages,
    pub(crate) desired_status: watch::Receiver<Option<DesiredStatus>>,
    pub(crate) observed: watch::Receiver<Option<ObservedNodeImage>>,
    pub(crate) detector: DuplicateDetector,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) health: Part,
}

pub(crate) async fn run(mut report: Report, stop: CancellationToken) {
    let mut schedule = WriteSchedule::default();
    let mut failures = 0_u32;
    let mut not_before = Duration::ZERO;
    loop {
        if report.observed.has_changed().unwrap_or(false) {
            schedule.take_observed(report.observed.borrow_and_update().clone());
            not_before = Duration::ZERO;
            report.look_for_duplicate(&schedule);
        }
        let now = report.clock.now();
        report.show_health(now);
        let status = report.wanted_status(&schedule, now);
        let due = status
            .as_ref()
            .and_then(|(wanted, status)| schedule.due(wanted, status, now))
            .map(|due| due.max(not_before).max(report.detector.not_before()));
        match (due, status) {
            (Some(due), Some((wanted, status))) if due <= now => {
                if report.write(&mut schedule, &wanted, status).await {
                    failures = 0;
                } else {
                    failures += 1;
                    let longest = (PAUSE_MIN * 2_u32.saturating_pow(failures.min(10))).min(PAUSE_MAX);
                    not_before = report.clock.now() + rand::random_range(longest / 2..=longest);
                }
                // A last report on the way out is worth a try, a second one is not.
                if stop.is_cancelled() {
                    return;
                }
            }
            (due, _) => {
                if stop.is_cancelled() {
                    return;
                }
                let wake = due.into_iter().chain(report.detector.changes_at(now)).min();
                let wake = async {
                    match wake {
                        Some(wake) => sleep_until(report.clock.instant(wake)).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = wake => {}
                    Ok(()) = report.desired_status.changed() => {}
                    Ok(()) = report.observed.changed() => report.observed.mark_changed(),
                }
            }
        }
    }
}

impl Report {
    /// What the object's status should be, if there is an object and something to say about it.
    fn wanted_status(&mut self, schedule: &WriteSchedule, now: Duration) -> Option<(DesiredStatus, NodeImageStatus)> {
        let wanted = self.desired_status.borrow_and_update().clone()?;
        let observed = schedule.observed().filter(|observed| observed.uid == wanted.uid)?;
        let mut status = wanted.entries.status.clone();
        status.first_sync_status = observed
            .status
            .as_ref()
            .and_then(|status| status.first_sync_status.clone());
        let own = self.detector.own();
        status.agent = Some(AgentStatus {
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            runtime: wanted.runtime.clone(),
            public_key: own.public_key.clone(),
            instance: own.instance.clone(),
            conflicts_with: self.detector.conflicts_with(now).map(str::to_owned),
            last_seen: Some(self.clock.wall()),
        });
        status.image_fs = wanted.image_fs.map(|(capacity, free)| ImageFsStatus {
            capacity: signed(capacity),
            free: signed(free),
        });
        fit(&mut status, NODE_IMAGE_BYTES_MAX.saturating_sub(observed.rest_bytes));
        Some((wanted, status))
    }

    /// Writes, and says whether that went well.
    async fn write(&mut self, schedule: &mut WriteSchedule, wanted: &DesiredStatus, status: NodeImageStatus) -> bool {
        let before = schedule.observed().and_then(|observed| observed.status.as_ref());
        let Some(patch) = status_patch(&wanted.uid, before, &status) else {
            schedule.answered(wanted);
            return true;
        };
        let answer = self.api.patch_status(patch).await;
        let result = if answer.is_ok() { "ok" } else { "failed" };
        self.metrics.writes.get_or_create(&WriteLabels { result }).inc();
        match answer {
            Ok(object) => {
                schedule.written(wanted, observe(&object), self.clock.now());
                self.detector.written();
                self.look_for_duplicate(schedule);
                true
            }
            Err(error) if error.is_not_found() => {
                // It was deleted; the watch says so in a moment.
                tracing::info!("our NodeImage is not there; nothing is reported until it is");
                false
            }
            Err(error) => {
                schedule.tell_failure(&error.text());
                if error.is_refused() {
                    self.read_anew(schedule).await;
                }
                false
            }
        }
    }

    /// Reads the object after a refused patch. What is known of it may be wrong in a way that no watch event corrects: after
    /// etcd was restored, events look older than the last write.
    async fn read_anew(&mut self, schedule: &mut WriteSchedule) {
        match self.api.get().await {
            Ok(Some(object)) => {
                schedule.take_fresh(observe(&object));
                self.look_for_duplicate(schedule);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(
                error = error.text(),
                "our NodeImage cannot be read after a refused write"
            ),
        }
    }

    /// Looks whether the status that the API shows comes from another agent.
    fn look_for_duplicate(&mut self, schedule: &WriteSchedule) {
        let shown = schedule
            .observed()
            .and_then(|observed| observed.status.as_ref()?.agent.as_ref());
        let now = self.clock.now();
        if self.detector.observe(shown, now, rand::random_range(0.8..1.2)) {
            self.metrics.conflicts.inc();
            let pause = self.detector.not_before().saturating_sub(now);
            tracing::warn!(
                other = self.detector.conflicts_with(now),
                seconds = pause.as_secs(),
                "another agent with the name of this node writes its status; stop one of the two, or start it with its own \
                 --node-name. This one writes nothing for a while"
            );
        }
    }

    fn show_health(&self, now: Duration) {
        match self.detector.conflicts_with(now) {
            Some(other) if now < self.detector.not_before() => self.health.waiting(format!(
                "the agent {other} runs with the name of this node, too, and writes its status; stop one of the two, or start it \
                 with its own --node-name"
            )),
            _ => self.health.ready(),
        }
    }
}

fn signed(size: ByteSize) -> i64 {
    i64::try_from(size.0).unwrap_or(i64::MAX)
}
