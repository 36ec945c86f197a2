//! What a job's status tells of its nodes, read back as values: a controller that takes a job over, and `larder why` after
//! the job's end, know nothing else of the nodes. Texts are for people; nothing here is decided by them.

use larder_api::image_pre_pull_job::{ImagePrePullJobStatus, OmittedNodes};
use larder_model::Reason;

use super::nodes::Unfit;
use super::texts::NodePhase;

/// One node, as a status tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedNode<'a> {
    pub(super) name: &'a str,
    pub(super) phase: Option<NodePhase>,
    /// Why it failed. Other software, which knows no such field, does not tell.
    pub(super) cause: Option<Cause>,
    /// The same for people.
    pub(super) text: Option<&'a str>,
}

/// Why a node failed, as the word in its entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It did not qualify when the job chose its nodes, and was not tried.
    Unfit(Unfit),
    /// It did, and failed later.
    Reason(Reason),
}

/// The nodes that a status tells of: those with an entry, and those that it only names.
pub(super) fn nodes(status: &ImagePrePullJobStatus) -> impl Iterator<Item = RecordedNode<'_>> {
    let entries = status.node_status.iter().filter_map(|entry| {
        Some(RecordedNode {
            name: entry.node_name.as_deref()?,
            phase: phase(entry.phase.as_deref()),
            cause: entry.cause.as_deref().and_then(Cause::parse),
            text: entry.reason.as_deref().filter(|text| !text.is_empty()),
        })
    });
    let omitted = status.omitted_nodes.iter().flat_map(|group| {
        let cause = group.cause.as_deref().and_then(Cause::parse);
        group.nodes.iter().map(move |name| RecordedNode {
            name,
            phase: phase(group.phase.as_deref()),
            cause: cause.clone(),
            text: None,
        })
    });
    entries.chain(omitted)
}

/// Whether a status tells of every node that the job chose and that may hold no claim: there was room for their names.
pub(super) fn is_complete(status: &ImagePrePullJobStatus) -> bool {
    let is_named = |group: &OmittedNodes| usize::try_from(group.count).is_ok_and(|count| count <= group.nodes.len());
    let may_lack_claims = |group: &&OmittedNodes| phase(group.phase.as_deref()) != Some(NodePhase::Successful);
    status.omitted_nodes.iter().filter(may_lack_claims).all(is_named)
}

/// The phase that a word means.
pub(super) fn phase(word: Option<&str>) -> Option<NodePhase> {
    word.and_then(NodePhase::parse)
}

impl Cause {
    fn parse(word: &str) -> Option<Self> {
        let unfit = Unfit::parse(word).map(Self::Unfit);
        unfit.or_else(|| word.parse().ok().map(Self::Reason))
    }

    /// The word by which reasons are counted.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Unfit(unfit) => unfit.reason(),
            Self::Reason(reason) => *reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_is_read_back() {
        for unfit in Unfit::RECORDED {
            assert_eq!(Cause::parse(unfit.word()), Some(Cause::Unfit(unfit)));
        }
        for reason in Reason::ALL {
            assert_eq!(Cause::parse(reason.as_str()), Some(Cause::Reason(reason)));
        }
        assert_eq!(Cause::parse("Oops"), None);
    }

    #[test]
    fn no_word_has_two_meanings() {
        let words = Unfit::RECORDED.map(|unfit| unfit.word());
        let all: BTreeSet<&str> = words.into_iter().chain(Reason::ALL.map(Reason::as_str)).collect();
        assert_eq!(all.len(), Unfit::RECORDED.len() + Reason::ALL.len());
    }

    #[test]
    fn what_the_overriders_made_of_an_image_is_looked_at_anew() {
        let rewrite = Unfit::Rewrite("no valid image".to_owned());
        assert_eq!(
            Cause::parse(rewrite.word()),
            Some(Cause::Reason(Reason::InvalidReference))
        );
    }
}
