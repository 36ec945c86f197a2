//! The text by which a node's entry in a status says why the node failed or waits, read back as a value.
//!
//! KubeEdge's status has no other field for it. A controller that takes a job over, and `larder why` after the job's end, know
//! nothing of the node but this text. It is read here and nowhere else.

use larder_model::Reason;

use super::nodes::Unfit;
use super::overriders::NO_VALID_IMAGE;
use super::texts::{NOT_EDGE, NOT_READY, PULLS_FAILED, TIMED_OUT, TURN_NEVER_CAME, no_such_node};
use crate::agent_nodes::NoAgent;

/// What the text of a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeText {
    /// The node does not qualify.
    Unfit(Unfit),
    /// The node's time was over.
    TimedOut,
    /// The job's time was over before the node was asked.
    TurnNeverCame,
    /// Images could not be pulled; the reason of the first of them, where it is known.
    PullsFailed(Option<Reason>),
    /// The advice that belongs to this reason.
    Advice(Reason),
    /// A text of the node itself, or of other software.
    Other,
}

impl NodeText {
    pub(super) fn read(text: &str, node: &str) -> Self {
        match text {
            TIMED_OUT => return Self::TimedOut,
            TURN_NEVER_CAME => return Self::TurnNeverCame,
            _ => {}
        }
        if let Some(unfit) = unfit(text, node) {
            return Self::Unfit(unfit);
        }
        // `there were some failures when pulling images: nginx:1 (NotFound), app:2 (Dns)`.
        if let Some(images) = text.strip_prefix(PULLS_FAILED) {
            let word = images.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
            return Self::PullsFailed(word.and_then(|(word, _)| word.parse().ok()));
        }
        let reason = Reason::ALL.into_iter().find(|reason| reason.advice() == text);
        reason.map_or(Self::Other, Self::Advice)
    }
}

/// Why a node does not qualify, where the text is that of [`Unfit::text`].
fn unfit(text: &str, node: &str) -> Option<Unfit> {
    let no_agent = || NoAgent::ALL.into_iter().find(|why| why.sentence() == text);
    match text {
        NOT_EDGE => Some(Unfit::NotEdge),
        NOT_READY => Some(Unfit::NotReady),
        _ if text == no_such_node(node) => Some(Unfit::Missing),
        _ if text.starts_with(NO_VALID_IMAGE) => Some(Unfit::Rewrite(text.to_owned())),
        _ => no_agent().map(Unfit::NoAgent),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn why_a_node_does_not_qualify_is_read_back() {
        let rewrite = Unfit::Rewrite(format!("{NO_VALID_IMAGE}\"a\" on this node: b"));
        let simple = [Unfit::Missing, Unfit::NotEdge, Unfit::NotReady, rewrite];
        for unfit in simple.into_iter().chain(NoAgent::ALL.map(Unfit::NoAgent)) {
            let text = unfit.text("node-1");
            assert_eq!(NodeText::read(&text, "node-1"), NodeText::Unfit(unfit));
        }
    }

    #[test]
    fn advice_is_read_back_as_the_reason() {
        for reason in Reason::ALL {
            assert_eq!(NodeText::read(reason.advice(), "node-1"), NodeText::Advice(reason));
        }
    }

    #[rstest]
    #[case::timed_out(TIMED_OUT, NodeText::TimedOut)]
    #[case::turn_never_came(TURN_NEVER_CAME, NodeText::TurnNeverCame)]
    #[case::pulls(&format!("{PULLS_FAILED}: nginx:1 (NotFound), app:2 (Dns)"), NodeText::PullsFailed(Some(Reason::NotFound)))]
    #[case::pulls_without_a_reason(PULLS_FAILED, NodeText::PullsFailed(None))]
    #[case::pulls_with_a_word_of_others(&format!("{PULLS_FAILED}: nginx:1 (Oops)"), NodeText::PullsFailed(None))]
    #[case::another_node(&no_such_node("node-2"), NodeText::Other)]
    #[case::empty("", NodeText::Other)]
    fn other_texts(#[case] text: &str, #[case] want: NodeText) {
        assert_eq!(NodeText::read(text, "node-1"), want);
    }
}
