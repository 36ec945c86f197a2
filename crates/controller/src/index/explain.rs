//! What the planner says of every node, for a job that somebody asks about.

use jiff::Timestamp;
use larder_planner::explain::Explanation;
use larder_planner::progress::Hold;

use super::Index;
use super::jobs::Refusal;

impl Index {
    /// Explains every node to the one job that this index has seen; or says why it is not served.
    pub(crate) fn explain_job(
        &mut self,
        hold: Option<Hold>,
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
        let Some(running) = self.running(id) else {
            return Err("it does not run".to_owned());
        };
        let with_image = self.nodes.iter().filter(|(_, record)| record.image.is_some());
        let say = |node: &larder_planner::NodeKey| (node.to_string(), running.progress.explain(node, now));
        Ok(with_image.map(|(node, _)| say(node)).collect())
    }
}
