//! What the planner says of every node, for a job that somebody asks about.

use std::collections::BTreeSet;

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::explain::Explanation;
use larder_planner::prepull::SecretRef;
use larder_planner::prepull::explain::{explain, not_chosen};
use larder_planner::progress::Hold;

use super::Index;
use super::jobs::Refusal;
use super::prepulls::{Work, candidate};

impl Index {
    /// Explains every node to the one job that this index has seen; or says why it is not served. `capped`: the controller says
    /// that the whole fleet's limit keeps nodes waiting.
    pub(crate) fn explain_job(
        &mut self,
        hold: Option<Hold>,
        capped: bool,
        now: Timestamp,
    ) -> Result<Vec<(String, Explanation)>, String> {
        let Some((id, record)) = self.jobs.iter().next() else {
            return Err("it was not seen".to_owned());
        };
        let id = *id;
        match &record.refusal {
            Some(Refusal::Spec(why)) => return Err(why.clone()),
            Some(Refusal::GateOff) => return Err("jobs are not served at all".to_owned()),
            None => {}
        }
        let Some(running) = self.running_mut(id) else {
            return Err("it does not run".to_owned());
        };
        running.progress.hold(hold);
        running.progress.cap(capped);
        let Some(running) = self.running(id) else {
            return Err("it does not run".to_owned());
        };
        let with_image = self.nodes.iter().filter(|(_, record)| record.image.is_some());
        let say = |node: &NodeKey| (node.to_string(), running.progress.explain(node, now));
        Ok(with_image.map(|(node, _)| say(node)).collect())
    }

    /// The same for an ImagePrePullJob: its own nodes in its own order, then the others.
    pub(crate) fn explain_prepull(
        &mut self,
        missing_secrets: BTreeSet<SecretRef>,
        unreadable_secrets: BTreeSet<SecretRef>,
        capped: bool,
        now: Timestamp,
    ) -> Result<Vec<(String, Explanation)>, String> {
        let Some(id) = self.jobs.keys().next().copied() else {
            return Err("it was not seen".to_owned());
        };
        self.read_prepull(id, now);
        if let Some(Refusal::Spec(why)) = self.jobs.get(&id).and_then(|record| record.refusal.as_ref()) {
            return Err(why.clone());
        }
        self.mark_unusable(id, missing_secrets, unreadable_secrets, now);
        if let Some(running) = self.running_mut(id) {
            running.progress.cap(capped);
        }
        let Some(running) = self.running(id) else {
            return Err("it does not run".to_owned());
        };
        let Some(work) = running.work.as_deref() else {
            return Err("it is no ImagePrePullJob".to_owned());
        };
        let Work { plan, choice, .. } = work;
        let chosen: BTreeSet<&NodeKey> = choice.nodes.iter().map(|chosen| &chosen.name).collect();
        let own = choice.nodes.iter().map(|chosen| {
            let lacks = work.lacking(&chosen.name);
            let said = explain(plan, choice, &running.progress, chosen, &lacks, now);
            (chosen.name.to_string(), said)
        });
        let others = self.nodes.iter().filter(|(node, _)| !chosen.contains(node));
        let others = others.map(|(node, record)| (node.to_string(), not_chosen(plan, candidate(record))));
        Ok(own.chain(others).collect())
    }
}
