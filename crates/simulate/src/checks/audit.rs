//! What must hold when the faults are over and time has passed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use larder_api::names::{NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE};

use super::jobs::has_ended;
use super::{Checks, Invariant, Violation};
use crate::api::{Api, Key, Kind, Object};
use crate::queue::Millis;
use crate::windows;

/// Writes of one object in the quiet time, at most: what expires then is cleaned up in one or two.
const QUIET_WRITES: usize = 8;

/// Refreshes of one job on one node in the quiet time, at most.
const REFRESHES: usize = 2;

/// A job is deleted at most this many seconds after its time to live.
const OVERDUE: i64 = 12;

/// Status may be behind for this long.
const STALE: Millis = 12_000;

impl Checks {
    /// The first job that neither ended nor says why it waits.
    pub(crate) fn unfinished_job(&self, api: &Api) -> Option<Violation> {
        let kinds = [Kind::PullJob, Kind::PrePullJob, Kind::ListJob];
        let mut jobs = kinds.into_iter().flat_map(|kind| api.list(kind));
        let job = jobs.find(|job| !self.is_settled(job, api))?;
        Some(Violation {
            invariant: Invariant::JobNeverEnds,
            what: format!("{:?} {} says: {}", job.key.kind, job.key.name, job.value["status"]),
        })
    }

    fn is_settled(&self, job: &Object, api: &Api) -> bool {
        if job.is_leaving() {
            return false;
        }
        if has_ended(job) {
            return true;
        }
        let status = &job.value["status"];
        let is_missing = api.list(Kind::Secret).next().is_none();
        let waits_for_secret = is_missing && status["reasons"]["SecretMissing"].is_number();
        let is_never = job.value["spec"]["completionPolicy"]["type"] == "Never";
        // A job that stays has everything that it can have; a list that stays has such children.
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        let may_wait = self.fleet.max_active_pulls.is_some()
            || !windows::is_empty(&self.fleet.windows)
            || !windows::is_empty(&job.value["spec"]["windows"]);
        let is_throttled = job.key.kind == Kind::PullJob
            && may_wait
            && job.value["spec"]["failurePolicy"].is_null()
            && count("succeeded") + count("failed") < count("desired");
        let rests = is_never && status.is_object() && !is_throttled && self.at_work(&job.uid, api).is_empty();
        waits_for_secret || rests
    }

    /// The quiet time begins.
    pub(crate) fn settle(&mut self) {
        self.rates.since_settled = Some(BTreeMap::new());
    }

    /// What is not as it should be after the quiet time.
    pub(crate) fn unsettled(&self, api: &Api) -> Option<Violation> {
        let writes = self.rates.since_settled.iter().flatten();
        let jobs = [Kind::PullJob, Kind::ListJob]
            .into_iter()
            .flat_map(|kind| api.list(kind));
        let refreshing: BTreeSet<&Key> = jobs
            .filter(|job| job.value["spec"]["refreshSchedule"].is_string())
            .map(|job| &job.key)
            .collect();
        let most = |key: &Key| match key.kind {
            Kind::NodeImage => QUIET_WRITES + REFRESHES * refreshing.len(),
            _ if refreshing.contains(key) => usize::MAX,
            _ => QUIET_WRITES,
        };
        if let Some((key, count)) = writes.into_iter().find(|(key, count)| most(key) < **count) {
            return Some(Violation {
                invariant: Invariant::WriteLoop,
                what: format!(
                    "{:?} {} was written {count} times in the quiet time",
                    key.kind, key.name
                ),
            });
        }
        let not_settled = |what: String| {
            Some(Violation {
                invariant: Invariant::NotSettled,
                what,
            })
        };
        for node in api.list(Kind::Node) {
            let labels = &node.value["metadata"]["labels"];
            if labels[NODE_TYPE_LABEL] == VIRTUAL_KUBELET_VALUE {
                continue;
            }
            let Some(image) = api.get(&Key::cluster(Kind::NodeImage, &node.key.name)) else {
                return not_settled(format!("{} has no NodeImage", node.key.name));
            };
            if image.value["metadata"]["labels"] != *labels {
                return not_settled(format!(
                    "the NodeImage of {} has other labels than the node",
                    node.key.name
                ));
            }
        }
        for image in api.list(Kind::NodeImage) {
            let name = &image.key.name;
            if api.get(&Key::cluster(Kind::Node, name)).is_none() {
                return not_settled(format!("there is a NodeImage {name}, and no node"));
            }
            let spec = image.node_image.as_ref().map(|image| &image.spec);
            let entries = spec
                .into_iter()
                .flat_map(|spec| spec.images.values())
                .flat_map(|image| &image.tags);
            for uid in entries.flat_map(|entry| &entry.claims).map(|claim| &claim.uid) {
                if !self.jobs.contains_key(uid) {
                    return not_settled(format!("{name} has a claim of job {uid}, which is gone"));
                }
            }
        }
        self.closed_for_ever(api).or_else(|| self.miscounted(api))
    }

    /// Without faults, status follows what the API shows within seconds. To be asked every few seconds.
    pub(crate) fn stale_status(&mut self, api: &Api, now: Millis) -> Option<Violation> {
        let mut stale = BTreeMap::new();
        for job in api
            .list(Kind::PullJob)
            .filter(|job| !has_ended(job) && !job.is_leaving())
        {
            let status = &job.value["status"];
            let shown = (
                status["succeeded"].as_u64().unwrap_or(0),
                status["active"].as_u64().unwrap_or(0),
            );
            let done = self.done.get(&job.uid).map_or(0, |done| done.len() as u64);
            let real = (done, self.at_work(&job.uid, api).len() as u64);
            if shown != real {
                let known = self.stale.get(&job.uid).filter(|(_, said)| *said == shown);
                let since = known.map_or(now, |(since, _)| *since);
                stale.insert(job.uid.clone(), (since, shown));
                if since + STALE < now {
                    return Some(Violation {
                        invariant: Invariant::StatusStale,
                        what: format!(
                            "{} has said {shown:?} (done, at work) for {} s, and the API shows {real:?}",
                            job.key.name,
                            (now - since) / 1_000
                        ),
                    });
                }
            }
        }
        self.stale = stale;
        None
    }

    /// A job whose time to live was over for a while by the controller's clock. Nothing but that moment makes the controller
    /// delete it.
    pub(crate) fn overdue_job(api: &Api, clock: Timestamp) -> Option<Violation> {
        let kinds = [Kind::PullJob, Kind::ListJob];
        let jobs = kinds.into_iter().flat_map(|kind| api.list(kind));
        let mut alone = jobs.filter(|job| job.value["metadata"]["ownerReferences"].is_null());
        let is_overdue = |job: &&crate::api::Shared| {
            let ttl = job.value["spec"]["completionPolicy"]["ttlSecondsAfterFinished"].as_i64();
            let ended = job.value["status"]["completionTime"].as_str();
            let ended = ended.and_then(|ended| ended.parse::<Timestamp>().ok());
            ttl.zip(ended)
                .is_some_and(|(ttl, ended)| ended.as_second() + ttl + OVERDUE < clock.as_second())
        };
        let job = alone.find(is_overdue)?;
        Some(Violation {
            invariant: Invariant::Overdue,
            what: format!(
                "{:?} {} outlives its time: {}",
                job.key.kind, job.key.name, job.value["status"]
            ),
        })
    }

    /// A running job whose status counts other nodes than the API shows. One with a schedule is never at rest.
    fn miscounted(&self, api: &Api) -> Option<Violation> {
        let rests = |job: &&crate::api::Shared| !has_ended(job) && !job.value["spec"]["refreshSchedule"].is_string();
        for job in api.list(Kind::PullJob).filter(rests) {
            let status = &job.value["status"];
            let shown = status["succeeded"].as_u64().unwrap_or(0);
            let done = self.done.get(&job.uid).map_or(0, |done| done.len() as u64);
            if shown != done {
                return Some(Violation {
                    invariant: Invariant::StatusStale,
                    what: format!("{} says {shown} nodes, and the API shows {done}", job.key.name),
                });
            }
        }
        None
    }
}
