//! Jobs: what they allow, and what their status says.

use serde_json::Value;

use super::{Checks, EXCUSED, Invariant};
use crate::api::{Change, Kind, Object, Writer};
use crate::queue::Millis;

/// A result counts in a job's last status if the API showed it this long before.
const SHOWN_LONG_ENOUGH: Millis = 60_000;

/// Writes in a row of nothing but a job's `etaSeconds`.
const ESTIMATES: usize = 20;

/// What the checks know of a job.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one job")]
pub(super) struct JobInfo {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The largest number of nodes at a time, and from when to when it held.
    limits: Vec<(Millis, usize)>,
    /// Images that it names, as they stand in NodeImages.
    pub(super) images: Vec<(String, String)>,
    pub(super) is_never: bool,
    pub(super) by_pods: bool,
    pub(super) windows: Value,
    has_deadline: bool,
    /// A node's time in an ImagePrePullJob.
    pub(super) times_out_after: Option<Millis>,
    /// When its spec last changed.
    pub(super) edited: Millis,
    pub(super) has_ended: bool,
}

impl JobInfo {
    fn of(object: &Object, now: Millis) -> Self {
        let spec = &object.value["spec"];
        let template = &spec["imagePrePullTemplate"];
        let is_pre_pull = object.key.kind == Kind::PrePullJob;
        let limit = if is_pre_pull {
            &template["concurrency"]
        } else {
            &spec["parallelism"]
        };
        let limit = limit
            .as_u64()
            .and_then(|limit| usize::try_from(limit).ok())
            .unwrap_or(1);
        let limit = if is_pre_pull { limit.max(1) } else { limit };
        let named: Vec<&Value> = match object.key.kind {
            Kind::PrePullJob => template["images"].as_array().into_iter().flatten().collect(),
            _ => vec![&spec["image"]],
        };
        let references = named
            .into_iter()
            .filter_map(|image| larder_model::ImageRef::parse(image.as_str()?).ok());
        let policy = &spec["completionPolicy"];
        Self {
            name: object.key.name.clone(),
            kind: object.key.kind,
            limits: vec![(now, limit)],
            images: references
                .map(|image| (image.name().to_owned(), image.tag_text()))
                .collect(),
            is_never: policy["type"] == "Never",
            by_pods: !spec["podSelector"].is_null(),
            windows: if is_pre_pull {
                &template["windows"]
            } else {
                &spec["windows"]
            }
            .clone(),
            has_deadline: !policy["activeDeadlineSeconds"].is_null() || !template["activeDeadlineSeconds"].is_null(),
            times_out_after: is_pre_pull.then(|| template["timeoutSeconds"].as_u64().unwrap_or(300) * 1_000),
            edited: now,
            has_ended: has_ended(object),
        }
    }

    /// How many nodes may be at work: an edit reaches the controller some time later.
    pub(super) fn limit(&self, now: Millis) -> usize {
        let newest = self.limits.iter().rev();
        let mut most = 0;
        for (since, limit) in newest {
            most = most.max(*limit);
            if since + EXCUSED < now {
                break;
            }
        }
        most
    }

    /// When it was last edited, if it was.
    pub(super) fn edited_at(&self) -> Option<Millis> {
        (1 < self.limits.len()).then_some(self.edited)
    }

    pub(super) fn was_edited(&self, now: Millis) -> bool {
        self.edited_at().is_some_and(|at| now < at + EXCUSED)
    }

    pub(super) fn ends_by_itself(&self) -> bool {
        self.has_deadline || self.kind == Kind::PrePullJob
    }

    pub(super) fn is_disturbed_by_pods(&self, pods_moved: Millis, now: Millis) -> bool {
        self.by_pods && now < pods_moved + EXCUSED
    }
}

/// Whether a job says that it is over.
pub(super) fn has_ended(object: &Object) -> bool {
    let status = &object.value["status"];
    match object.key.kind {
        Kind::PrePullJob => matches!(status["phase"].as_str(), Some("Completed" | "Failure" | "Failed")),
        _ => status["completionTime"].is_string(),
    }
}

fn differ_in_estimate_only(before: &Value, after: &Value) -> bool {
    let (Some(old), Some(new)) = (before["status"].as_object(), after["status"].as_object()) else {
        return false;
    };
    let rest = |key: &&String| *key != "etaSeconds";
    let mut keys = old.keys().chain(new.keys()).filter(rest);
    before["spec"] == after["spec"] && keys.all(|key| old.get(key) == new.get(key))
}

fn count(status: &Value, field: &str) -> i64 {
    status[field].as_i64().unwrap_or(0)
}

impl Checks {
    pub(super) fn job_changed(&mut self, change: &Change, now: Millis) {
        let same = match (&change.before, &change.after) {
            (Some(before), Some(after)) if before.uid == after.uid => Some((before, after)),
            _ => None,
        };
        if let Some((before, after)) = same {
            self.status_changed(before, after, change.writer, now);
            if let Some(info) = self.jobs.get_mut(&after.uid) {
                info.has_ended = has_ended(after);
                if before.value["spec"] != after.value["spec"] {
                    let mut newer = JobInfo::of(after, now);
                    newer.limits.splice(0..0, info.limits.drain(..));
                    *info = newer;
                }
            }
            return;
        }
        if let Some(before) = &change.before {
            self.jobs.remove(&before.uid);
            self.open.remove(&before.uid);
            self.done.remove(&before.uid);
        }
        if let Some(after) = &change.after {
            self.jobs.insert(after.uid.clone(), JobInfo::of(after, now));
        }
    }

    /// The time that is left counts down by itself, and must not be written each time that it does.
    fn check_estimate(&mut self, before: &Object, after: &Object) {
        let counted = self.estimates.entry(after.uid.clone()).or_default();
        if differ_in_estimate_only(&before.value, &after.value) {
            *counted += 1;
        } else {
            *counted = 0;
        }
        if ESTIMATES < *counted {
            let what = format!(
                "{:?} {} is written for its etaSeconds alone",
                after.key.kind, after.key.name
            );
            self.violate(Invariant::WriteLoop, || what);
        }
    }

    fn status_changed(&mut self, before: &Object, after: &Object, writer: Writer, now: Millis) {
        if writer != (Writer::Controller { late: false }) {
            self.overwritten.insert(after.uid.clone());
            return;
        }
        if self.overwritten.remove(&after.uid) {
            return;
        }
        self.check_estimate(before, after);
        let Some(info) = self.jobs.get(&after.uid) else {
            return;
        };
        let (old, new) = (&before.value["status"], &after.value["status"]);
        let name = format!("{:?} {}", info.kind, info.name);
        let edited = before.value["metadata"]["generation"] != after.value["metadata"]["generation"]
            || now < info.edited + EXCUSED && 1 < info.limits.len();
        if has_ended(before) && !has_ended(after) && !edited {
            self.violate(Invariant::StatusRegressed, || {
                format!("{name} had ended and runs again")
            });
            return;
        }
        if old["startTime"].is_string() && old["startTime"] != new["startTime"] {
            self.violate(Invariant::StatusRegressed, || format!("{name} has another startTime"));
            return;
        }
        let quiet = !edited
            && !info.is_never
            && !info.is_disturbed_by_pods(self.pods_moved, now)
            && !self.disturbed_nodes.values().any(|at| now < at + EXCUSED);
        let (was, is) = (count(old, "succeeded"), count(new, "succeeded"));
        if quiet && is < was && info.kind != Kind::ListJob {
            self.violate(Invariant::StatusRegressed, || {
                format!("{name} had {was} nodes and has {is} now")
            });
            return;
        }
        if quiet && info.kind != Kind::ListJob && !has_ended(before) && has_ended(after) {
            let done = self.done.get(&after.uid).into_iter().flatten();
            let counted = done.filter(|(_, since)| *since + SHOWN_LONG_ENOUGH < now).count();
            if is < i64::try_from(counted).unwrap_or(0) {
                let what = format!("{name} ends with {is} nodes, and the API shows {counted} that have everything");
                self.violate(Invariant::ResultLost, || what);
            }
        }
    }
}
