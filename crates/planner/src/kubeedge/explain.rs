//! Why a node of a job did not move: one sentence for every node, also for those that the job did not choose.

use jiff::Timestamp;
use larder_api::image_pre_pull_job::ImagePrePullJobStatus;
use larder_model::Reason;

use super::campaign::PrePull;
use super::nodes::{Chosen, NodeRule, Unfit, unfit};
use super::recorded::{self, Cause, RecordedNode};
use super::texts::NodePhase;
use crate::dialect::Candidate;
use crate::explain::{ExplainedState, Explanation};
use crate::progress::Progress;
use crate::secret::{SecretRef, UnusableSecrets};

/// Says about one node of a job where it stands and why, while the job runs.
pub fn explain(progress: &Progress, chosen: &Chosen, unusable: &UnusableSecrets, now: Timestamp) -> Explanation {
    let node = &chosen.name;
    if let Some(unfit) = &chosen.unfit {
        return Explanation {
            state: ExplainedState::Failed,
            reason: Some(unfit.reason()),
            sentence: with_advice(&unfit.text(node), Some(unfit.reason())),
        };
    }
    let mut said = progress.explain(node, now);
    let task = progress.campaign().tasks.of(node);
    let lacking = task.map(|task| unusable.among(&task.secrets())).unwrap_or_default();
    match said.state {
        ExplainedState::Succeeded => "Every image is there.".clone_into(&mut said.sentence),
        // The general advice speaks of the job's namespace, and this kind has none.
        ExplainedState::Blocked if said.reason == Some(Reason::SecretMissing) && !lacking.is_empty() => {
            said.sentence = format!("Waits: {}.", unusable_secrets(lacking.all()));
        }
        ExplainedState::Waiting if progress.too_many_failures() => {
            "Is not served: more nodes failed than failureTolerate allows.".clone_into(&mut said.sentence);
        }
        _ => {}
    }
    said
}

/// What is said of Secrets that cannot be used, with one sentence for every cause: a job may name Secrets of all namespaces, and
/// its author shall not learn from it which of them exist.
pub(super) fn unusable_secrets<'a>(secrets: impl IntoIterator<Item = &'a SecretRef>) -> String {
    let names: Vec<String> = secrets.into_iter().map(ToString::to_string).collect();
    format!(
        "pull secrets cannot be used, because they do not exist, hold no docker configuration, or are in a namespace that is \
         closed to ImagePrePullJobs: {}",
        names.join(", ")
    )
}

/// Says about any other node why it is none of the job's; `known` is the node as Kubernetes has it now.
pub fn not_chosen(plan: &PrePull, known: Option<Candidate<'_>>) -> Explanation {
    let matching = known.filter(|node| match &plan.nodes {
        NodeRule::Names(_) => false,
        NodeRule::Labels(rule) => rule.matches(node.labels),
    });
    let sentence = match matching.map(|node| unfit(node, plan.waits_for_nodes())) {
        None => "The job does not select this node.",
        Some(Some(Unfit::NotReady)) => {
            "It has the right labels, but was not ready when the job began; with activeDeadlineSeconds it would be waited for."
        }
        Some(Some(Unfit::NoAgent(why))) => {
            return Explanation::without_agent(why);
        }
        Some(Some(_)) => {
            "It has the right labels, but is no edge node: it lacks the label node-role.kubernetes.io/edge with an empty value."
        }
        Some(None) => "It has the right labels, but the job had chosen its nodes before; nobody is taken in later.",
    };
    Explanation {
        state: ExplainedState::NotSelected,
        reason: None,
        sentence: sentence.to_owned(),
    }
}

/// Says the same about the nodes of a job that is over, as its status tells.
pub fn after_the_end(status: &ImagePrePullJobStatus) -> Vec<(String, Explanation)> {
    let say = |node: RecordedNode<'_>| {
        let reason = node.cause.as_ref().map(Cause::reason);
        let (state, reason, sentence) = match node.phase {
            Some(NodePhase::Successful) => (ExplainedState::Succeeded, None, "Every image is there.".to_owned()),
            Some(NodePhase::Failure | NodePhase::Unknown) => {
                let text = node.text.unwrap_or("it failed; the status does not say how");
                (ExplainedState::Failed, reason, with_advice(text, reason))
            }
            Some(NodePhase::Pending | NodePhase::InProgress) | None => (
                ExplainedState::Waiting,
                None,
                "The job ended before its turn came.".to_owned(),
            ),
        };
        let explanation = Explanation {
            state,
            reason,
            sentence,
        };
        (node.name.to_owned(), explanation)
    };
    recorded::nodes(status).map(say).collect()
}

/// A text of the status as a sentence, and what to do about it.
fn with_advice(text: &str, reason: Option<Reason>) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let advice = reason.map(|reason| format!(" {}", reason.advice())).unwrap_or_default();
    format!("{first}{}.{advice}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::kubeedge::Before;
    use crate::kubeedge::samples::{Fleet, candidates, edge_nodes, job};
    use crate::view::samples::at;

    fn said(fleet: &Fleet, node: &str) -> (&'static str, String) {
        let mut chosen = fleet.choice().nodes.iter().filter(|chosen| &*chosen.name == node);
        let said = match chosen.next() {
            Some(chosen) => explain(&fleet.progress, chosen, &fleet.unusable, at(1)),
            None => not_chosen(&fleet.run.plan, candidates(&fleet.nodes).get(node).copied()),
        };
        (said.state.as_str(), said.sentence)
    }

    #[test]
    fn a_node_that_waits_for_a_secret_names_it_with_its_own_namespace() {
        let template = json!({"nodeNames": ["a"], "imageSecrets": "shops/login"});
        let mut fleet = Fleet::start(
            &job(&template, &json!([])),
            edge_nodes(&[("a", "east")]),
            &Before::default(),
        );
        fleet.unusable.missing.insert(SecretRef::parse("shops/login").unwrap());
        fleet.step(0);
        let (state, sentence) = said(&fleet, "a");
        assert_eq!(state, "Blocked");
        assert_eq!(
            sentence,
            "Waits: pull secrets cannot be used, because they do not exist, hold no docker configuration, or are in a \
             namespace that is closed to ImagePrePullJobs: shops/login."
        );
    }

    #[test]
    fn every_node_has_its_sentence() {
        let mut nodes = edge_nodes(&[
            ("a", "east"),
            ("b", "east"),
            ("cloud", "east"),
            ("far", "west"),
            ("off", "east"),
        ]);
        nodes
            .get_mut("cloud")
            .unwrap()
            .labels
            .remove(larder_api::names::EDGE_NODE_LABEL);
        nodes.get_mut("off").unwrap().ready = false;
        let template = json!({"labelSelector": {"matchLabels": {"region": "east"}}, "failureTolerate": "0"});
        let mut fleet = Fleet::start(&job(&template, &json!([])), nodes, &Before::default());
        fleet.step(0);
        fleet.nodes.extend(edge_nodes(&[("late", "east")]));
        for (node, state, words) in [
            ("a", "Ordered", "has not taken it up yet"),
            ("b", "Waiting", "1 of 1 slots are taken"),
            ("cloud", "NotSelected", "is no edge node"),
            ("far", "NotSelected", "does not select"),
            ("off", "NotSelected", "was not ready when the job began"),
            ("late", "NotSelected", "chosen its nodes before"),
            ("nowhere", "NotSelected", "does not select"),
        ] {
            let (is, sentence) = said(&fleet, node);
            assert_eq!(is, state, "{node}: {sentence}");
            assert!(sentence.contains(words), "{node}: {sentence}");
        }
        fleet.fail("a", Reason::NotFound, 1);
        assert!(said(&fleet, "b").1.contains("failureTolerate"));
    }

    #[test]
    fn a_named_node_that_cannot_take_part_failed() {
        let template = json!({"nodeNames": ["gone", "a"]});
        let mut fleet = Fleet::start(
            &job(&template, &json!([])),
            edge_nodes(&[("a", "east")]),
            &Before::default(),
        );
        fleet.step(0);
        let (state, sentence) = said(&fleet, "gone");
        assert_eq!(state, "Failed");
        assert!(sentence.starts_with("Failed to get node"), "{sentence}");
        assert!(sentence.ends_with(Reason::NodeUnsuitable.advice()), "{sentence}");
    }

    #[rstest]
    #[case::done(json!({"phase": "Successful"}), "Succeeded", None, "Every image is there.")]
    #[case::failed(json!({"phase": "Failure", "cause": "NotReadyAtStart", "reason": "the node is not ready"}), "Failed", Some(Reason::NodeNotReady), "The node is not ready.")]
    #[case::silent(json!({"phase": "Unknown", "cause": "Unresponsive", "reason": "The node task has timed out"}), "Failed", Some(Reason::Unresponsive), "The node task has timed out.")]
    #[case::whatever_the_text(json!({"phase": "Failure", "cause": "Dns", "reason": "the node is not ready"}), "Failed", Some(Reason::Dns), "The node is not ready.")]
    #[case::without_its_text(json!({"phase": "Failure", "cause": "Tls"}), "Failed", Some(Reason::Tls), "It failed; the status does not say how.")]
    #[case::by_other_software(json!({"phase": "Failure", "reason": "the node is not ready"}), "Failed", None, "The node is not ready.")]
    #[case::failed_without_a_word(json!({"phase": "Failure"}), "Failed", None, "It failed; the status does not say how.")]
    #[case::never_tried(json!({"phase": "Pending"}), "Waiting", None, "The job ended before its turn came.")]
    fn a_job_that_is_over(
        #[case] mut node: serde_json::Value,
        #[case] state: &str,
        #[case] reason: Option<Reason>,
        #[case] sentence: &str,
    ) {
        node["nodeName"] = json!("a");
        let status = serde_json::from_value(json!({"phase": "Failure", "nodeStatus": [node]})).unwrap();
        let [(name, said)] = after_the_end(&status).try_into().unwrap();
        assert_eq!((name.as_str(), said.state.as_str(), said.reason), ("a", state, reason));
        let advice = reason.map(|reason| format!(" {}", reason.advice()));
        assert_eq!(said.sentence, format!("{sentence}{}", advice.unwrap_or_default()));
    }

    /// The word that is counted during the job is the word after it.
    #[rstest]
    #[case::not_found(Reason::NotFound)]
    #[case::check(Reason::CheckFailed)]
    #[case::full(Reason::NoSpace)]
    #[case::one_try(Reason::Timeout)]
    fn the_word_is_the_same_during_the_job_and_after_it(#[case] reason: Reason) {
        let template = json!({"nodeNames": ["a"]});
        let mut fleet = Fleet::start(
            &job(&template, &json!([])),
            edge_nodes(&[("a", "east")]),
            &Before::default(),
        );
        fleet.step(0);
        fleet.fail("a", reason, 1);
        let status = fleet.status(1);
        assert_eq!(status.phase.as_deref(), Some("Failure"));
        assert_eq!(status.progress.reasons.keys().collect::<Vec<_>>(), [reason.as_str()]);
        assert_eq!(after_the_end(&status)[0].1.reason, Some(reason));
    }
}
