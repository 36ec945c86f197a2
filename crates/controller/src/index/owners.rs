//! What an owner reference in a NodeImage's entry is.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::names::{KRUISE_GROUP, KUBEEDGE_GROUP};
use larder_planner::NodeKey;
use larder_planner::retention::{Entry, Owner};

use super::jobs::JobState;
use super::{Index, Kind};

impl Index {
    pub(super) fn owner(&self, node: &NodeKey, entry: Entry<'_>, reference: &ObjectReference) -> Owner {
        let group = reference
            .api_version
            .as_deref()
            .and_then(|version| version.split_once('/'))
            .map(|(group, _)| group);
        let kind = match (group, reference.kind.as_deref()) {
            (Some(KRUISE_GROUP), Some("ImagePullJob")) => Kind::Job,
            (Some(KUBEEDGE_GROUP), Some("ImagePrePullJob")) => Kind::PrePull,
            _ => return Owner::Unknown,
        };
        if !self.synced.contains(&kind) {
            return Owner::Unknown;
        }
        let uid = reference.uid.as_deref().unwrap_or_default();
        let Some(record) = self.job_uids.get(uid).and_then(|job| self.jobs.get(job)) else {
            let noticed = self.departed.get(uid).copied().unwrap_or(self.jobs_synced_at);
            return Owner::Gone(noticed);
        };
        match &record.state {
            JobState::Running(running) if !running.sees_pods => Owner::Unknown,
            JobState::Running(running) => {
                let campaign = running.progress.campaign();
                if let Some(work) = &running.work {
                    let task = work.tasks.get(node).filter(|_| running.has_chosen(node));
                    let wanted = task.is_some_and(|task| task.image(entry.name, entry.tag).is_some());
                    let terms = || work.plan.terms(campaign, node, running.progress.started());
                    return Owner::Running(wanted.then(terms));
                }
                let same = campaign.image.name() == entry.name && campaign.image.tag_text() == entry.tag;
                let selected = self.nodes.get(node).is_some_and(|node| node.jobs.contains(&record.id));
                let wanted = same && selected;
                Owner::Running(wanted.then(|| campaign.terms(node, running.progress.started())))
            }
            JobState::Ended(ended) => Owner::Ended {
                at: ended.at,
                pins: ended.pins,
            },
            JobState::Leaving(noticed) => Owner::Gone(*noticed),
            JobState::Idle => Owner::Unknown,
        }
    }

    /// Notes that a job is gone.
    pub(super) fn depart(&mut self, uid: String, now: Timestamp) {
        self.departed.insert(uid, now);
        // Entries leave within seconds; a day is more than any of them waits.
        let yesterday = now
            .checked_sub(jiff::SignedDuration::from_hours(24))
            .unwrap_or(Timestamp::MIN);
        self.departed.retain(|_, noticed| yesterday < *noticed);
    }
}
