//! What a person wants to know of a job, whatever its kind. Pure: objects in, a view out.

use std::collections::BTreeMap;

use kube::ResourceExt;
use larder_api::conditions::{COMPLETE, FAILED};
use larder_api::progress::JobProgress;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use serde::Serialize;

/// One job. Field names are the output of `-o json`, on which scripts rely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobView {
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) desired: i32,
    pub(crate) active: i32,
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    pub(crate) bytes_total: Option<i64>,
    pub(crate) bytes_done: Option<i64>,
    pub(crate) eta_seconds: Option<i64>,
    pub(crate) message: String,
    /// How many nodes failed or wait, for each reason.
    #[serde(skip)]
    pub(crate) reasons: BTreeMap<String, i32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum Phase {
    /// No controller has looked at it yet.
    #[default]
    New,
    Running,
    Complete,
    Failed,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Phase::New => "New",
            Phase::Running => "Running",
            Phase::Complete => "Complete",
            Phase::Failed => "Failed",
        }
    }

    pub(crate) fn is_final(self) -> bool {
        matches!(self, Phase::Complete | Phase::Failed)
    }
}

impl JobView {
    /// `imagepulljob/web`, as kubectl names it.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.kind.to_ascii_lowercase(), self.name)
    }

    /// The title, with the namespace where there is one.
    pub(crate) fn full_title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.title()),
            None => self.title(),
        }
    }

    /// `NotFound 3, Timeout 1`, the most frequent first.
    pub(crate) fn reasons_text(&self) -> String {
        let mut reasons: Vec<(&String, i32)> = self.reasons.iter().map(|(reason, count)| (reason, *count)).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let texts: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        texts.join(", ")
    }

    fn with_progress(mut self, progress: &JobProgress) -> Self {
        self.bytes_total = progress.bytes_total;
        self.bytes_done = progress.bytes_done;
        self.eta_seconds = progress.eta_seconds;
        self.reasons.clone_from(&progress.reasons);
        self.phase = phase(progress);
        self
    }
}

/// The conditions say it, for every kind alike.
fn phase(progress: &JobProgress) -> Phase {
    let holds = |kind: &str| {
        progress
            .conditions
            .iter()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    if holds(COMPLETE) {
        Phase::Complete
    } else if holds(FAILED) {
        Phase::Failed
    } else {
        Phase::Running
    }
}

impl From<&ImagePullJob> for JobView {
    fn from(job: &ImagePullJob) -> Self {
        let view = Self {
            kind: "ImagePullJob",
            namespace: job.namespace(),
            name: job.name_any(),
            ..Self::default()
        };
        let Some(status) = &job.status else { return view };
        Self {
            desired: status.desired,
            active: status.active,
            succeeded: status.succeeded,
            failed: status.failed,
            message: status.message.clone().unwrap_or_default(),
            ..view
        }
        .with_progress(&status.progress)
    }
}

impl From<&ImageListPullJob> for JobView {
    fn from(job: &ImageListPullJob) -> Self {
        let view = Self {
            kind: "ImageListPullJob",
            namespace: job.namespace(),
            name: job.name_any(),
            ..Self::default()
        };
        let Some(status) = &job.status else { return view };
        let said = status
            .progress
            .conditions
            .iter()
            .find(|condition| condition.status == "True");
        Self {
            desired: status.desired,
            active: status.active,
            succeeded: status.succeeded,
            failed: status.completed - status.succeeded,
            message: said.map(|condition| condition.message.clone()).unwrap_or_default(),
            ..view
        }
        .with_progress(&status.progress)
    }
}

impl From<&ImagePrePullJob> for JobView {
    fn from(job: &ImagePrePullJob) -> Self {
        let view = Self {
            kind: "ImagePrePullJob",
            name: job.name_any(),
            ..Self::default()
        };
        let Some(status) = &job.status else { return view };
        let said = status
            .progress
            .conditions
            .iter()
            .find(|condition| condition.status == "True");
        let said = said
            .map(|condition| condition.message.clone())
            .filter(|said| !said.is_empty());
        let is_working = |phase: &Option<String>| phase.as_deref() == Some("InProgress");
        let working = status.node_status.iter().filter(|node| is_working(&node.phase)).count();
        let omitted = status.omitted_nodes.iter().filter(|group| is_working(&group.phase));
        let omitted: i32 = omitted.map(|group| group.count).sum();
        Self {
            desired: status.desired,
            active: i32::try_from(working).unwrap_or(i32::MAX).saturating_add(omitted),
            succeeded: status.succeeded,
            failed: status.failed,
            message: said.or_else(|| status.reason.clone()).unwrap_or_default(),
            ..view
        }
        .with_progress(&status.progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_api::ImagePullJobStatus;
    use rstest::rstest;
    use serde_json::json;

    fn job(status: &serde_json::Value) -> ImagePullJob {
        let status: ImagePullJobStatus = serde_json::from_value(status.clone()).unwrap();
        let mut job = ImagePullJob::new("web", larder_api::ImagePullJobSpec::default());
        job.metadata.namespace = Some("default".into());
        job.status = Some(status);
        job
    }

    #[rstest]
    #[case::running(json!({"desired": 3, "active": 1}), Phase::Running)]
    #[case::complete(json!({"conditions": [{"type": "Complete", "status": "True"}]}), Phase::Complete)]
    #[case::failed(json!({"conditions": [{"type": "Complete", "status": "False"}, {"type": "Failed", "status": "True"}]}), Phase::Failed)]
    fn phases(#[case] status: serde_json::Value, #[case] want: Phase) {
        assert_eq!(JobView::from(&job(&status)).phase, want);
    }

    #[test]
    fn a_job_without_a_status_is_new() {
        let job = ImagePullJob::new("web", larder_api::ImagePullJobSpec::default());
        assert_eq!(JobView::from(&job).phase, Phase::New);
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        let view = JobView::from(&job(
            &json!({"desired": 3, "active": 1, "succeeded": 2, "bytesTotal": 10, "bytesDone": 5, "etaSeconds": 4, "message": "job is running, progress 66.7%"}),
        ));
        assert_eq!(
            serde_json::to_value(view).unwrap(),
            json!({"kind": "ImagePullJob", "namespace": "default", "name": "web", "phase": "Running", "desired": 3, "active": 1, "succeeded": 2,
                   "failed": 0, "bytesTotal": 10, "bytesDone": 5, "etaSeconds": 4, "message": "job is running, progress 66.7%"})
        );
    }

    #[test]
    fn what_is_not_known_is_null_in_the_json() {
        let new = ImagePullJob::new("web", larder_api::ImagePullJobSpec::default());
        let json = serde_json::to_value(JobView::from(&new)).unwrap();
        for key in ["bytesTotal", "bytesDone", "etaSeconds"] {
            assert_eq!(json.get(key), Some(&serde_json::Value::Null), "{key}");
        }
    }
}
