//! What the planner says of every node, for the one job that an engine has seen.

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::campaign::SecretScope;
use larder_planner::dialect::Refusal;
use larder_planner::explain::Explanation;
use larder_planner::progress::Hold;
use larder_planner::secret::UnusableSecrets;
use larder_planner::windows::Closed;

use super::Engine;
use super::jobs::JobState;

/// What keeps the job's nodes waiting with the whole fleet. An engine that has seen one job alone is told.
#[derive(Clone, Debug)]
pub(crate) struct FleetWaits {
    /// The job's status says that the fleet's limit does.
    pub(crate) capped: bool,
    /// So many jobs with a higher priority wait for that limit too.
    pub(crate) jobs_before: usize,
    /// The job's status says that windows of the fleet do, which may not be known here.
    pub(crate) outside: Option<Closed>,
}

impl Engine {
    /// Explains every node to the one job that this engine has seen; or says why the job is not served.
    pub(crate) fn explain_job(
        &mut self,
        unusable: &UnusableSecrets,
        fleet: FleetWaits,
        now: Timestamp,
    ) -> Result<Vec<(NodeKey, Explanation)>, String> {
        let Some(id) = self.jobs.ids().next() else {
            return Err("it was not seen".to_owned());
        };
        self.read_job(id, now);
        self.set_unusable(id, unusable.clone(), now);
        while self.scan_next(now).is_some() {}
        let Some(record) = self.jobs.get_mut(id) else {
            return Err("it was not seen".to_owned());
        };
        let running = match &mut record.state {
            JobState::Running(running) => running,
            JobState::Refused(Refusal::InvalidSpec(why) | Refusal::NoNodesMatched(why) | Refusal::NotServed(why)) => {
                return Err(why.clone());
            }
            JobState::Idle | JobState::Ended(_) | JobState::Leaving(_) => return Err("it does not run".to_owned()),
        };
        let whole_job_waits = running.progress.campaign().secret_scope == SecretScope::Campaign;
        if whole_job_waits && !unusable.is_empty() {
            running.progress.hold(Some(Hold::Secrets {
                missing: unusable.missing.iter().map(ToString::to_string).collect(),
                unreadable: unusable.unreadable.iter().map(ToString::to_string).collect(),
                forbidden: Vec::new(),
            }));
        }
        running.progress.follow_windows(now);
        if let Some(closed) = fleet.outside.filter(|_| !running.progress.is_held()) {
            running.progress.hold(Some(Hold::OutsideWindow(closed)));
        }
        running.progress.cap(fleet.capped, fleet.jobs_before);
        let without_agent = running.progress.without_agent();
        let nodes = self.nodes.records().iter();
        let nodes = nodes.filter(|(_, record)| record.image.is_some() || record.no_agent.is_some());
        let nodes = nodes.map(|(node, record)| (node.clone(), record.candidate()));
        let mut found = record.job.explain(&running.progress, unusable, &nodes.collect(), now);
        for (node, explanation) in &mut found {
            if let Some(why) = without_agent.get(node) {
                *explanation = Explanation::without_agent(why);
            }
        }
        Ok(found)
    }
}
