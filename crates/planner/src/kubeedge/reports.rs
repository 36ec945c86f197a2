//! What a job's nodes have said so far. A success is never taken back: not by a later failure, which the contract sees to,
//! and not because the node left the cluster with its NodeImage.

use std::collections::BTreeMap;

use jiff::Timestamp;
use larder_api::ImagePrePullJobStatus;

use super::recorded::{self, RecordedNode};
use super::texts::NodePhase;
use super::verdict::began;
use crate::report::NodeReport;
use crate::view::NodeKey;

/// The reports of a job's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports(BTreeMap<NodeKey, NodeReport>);

impl Reports {
    /// Successes of nodes that have left the cluster since: only the job's own status still tells of them. `is_there` says
    /// whether a node still exists.
    pub fn of_departed(status: Option<&ImagePrePullJobStatus>, is_there: impl Fn(&str) -> bool) -> Self {
        let handed_out = status.and_then(began).unwrap_or(Timestamp::UNIX_EPOCH);
        let nodes = status.into_iter().flat_map(recorded::nodes);
        let departed = nodes.filter(|node| node.phase == Some(NodePhase::Successful) && !is_there(node.name));
        let report = |node: RecordedNode<'_>| {
            let images = Vec::new();
            (NodeKey::from(node.name), NodeReport { handed_out, images })
        };
        departed.map(report).collect()
    }

    /// Takes in what a node reports; None while it has no order, or no NodeImage. Says whether that is news.
    pub fn set(&mut self, node: &NodeKey, report: Option<NodeReport>) -> bool {
        if self.0.get(node) == report.as_ref() {
            return false;
        }
        match report {
            Some(report) => self.0.insert(node.clone(), report),
            None => self.0.remove(node),
        };
        true
    }

    /// The nodes that reported.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeKey> {
        self.0.keys()
    }

    /// What a node said.
    pub fn get(&self, node: &str) -> Option<&NodeReport> {
        self.0.get(node)
    }

    /// Nodes that have the order, or are done with it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody has the order.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(NodeKey, NodeReport)> for Reports {
    fn from_iter<T: IntoIterator<Item = (NodeKey, NodeReport)>>(reports: T) -> Self {
        Self(reports.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use larder_model::{Phase, Reason};
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::kubeedge::Before;
    use crate::kubeedge::samples::{Fleet, edge_nodes, job};
    use crate::view::samples::at;
    use larder_api::contract::Answer;

    #[rstest]
    #[case::a_success_stays(Phase::Succeeded, None, "Successful")]
    #[case::a_pull_that_was_under_way_is_lost(Phase::Pulling, None, "Pending")]
    #[case::a_failure_is_lost_with_its_order(Phase::Failed, Some(Reason::Dns), "Pending")]
    fn a_node_that_left_the_cluster(#[case] phase: Phase, #[case] reason: Option<Reason>, #[case] want: &str) {
        let template = json!({"nodeNames": ["a", "b"], "failureTolerate": "1"});
        let nodes = edge_nodes(&[("a", "east"), ("b", "east")]);
        let mut fleet = Fleet::start(&job(&template, &json!([])), nodes, &Before::default());
        fleet.step(0);
        fleet.say("a", "nginx:1", phase, reason, 1);
        fleet.nodes.remove("a");
        fleet.show(&"a".into(), at(2));
        let status = fleet.status(2);
        assert_eq!(status.node_status[0].phase.as_deref(), Some(want));
    }

    #[test]
    fn the_status_tells_of_successes_on_nodes_that_are_gone() {
        let status = json!({"phase": "InProgress", "nodeStatus": [
            {"nodeName": "done-and-gone", "phase": "Successful"},
            {"nodeName": "done", "phase": "Successful"},
            {"nodeName": "gone", "phase": "InProgress"},
        ]});
        let status = serde_json::from_value(status).unwrap();
        let reports = Reports::of_departed(Some(&status), |node| node == "done");
        assert_eq!(reports.len(), 1);
        let report = reports.get("done-and-gone").unwrap();
        assert_eq!(report.answer(), Answer::Succeeded);
    }

    #[test]
    fn images_that_an_edit_added_are_still_owed() {
        let template = json!({"nodeNames": ["a"]});
        let mut fleet = Fleet::start(
            &job(&template, &json!([])),
            edge_nodes(&[("a", "east")]),
            &Before::default(),
        );
        fleet.step(0);
        fleet.succeed("a", 1);
        let edited = json!({"nodeNames": ["a"], "images": ["nginx:1", "redis:7"]});
        let mut edited = Fleet::start(&job(&edited, &json!([])), fleet.nodes, &Before::of(None, ["a".into()]));
        assert_eq!(edited.step(2), ["a"]);
        edited.say("a", "redis:7", Phase::Succeeded, None, 3);
        assert_eq!(edited.status(3).phase.as_deref(), Some("Completed"));
    }
}
