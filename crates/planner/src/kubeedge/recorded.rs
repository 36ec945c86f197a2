//! What a job's status tells of its nodes, read back as values: a controller that takes a job over, and `larder why` after
//! the job's end, know nothing else of the nodes. Texts are for people; nothing here is decided by them.

use larder_api::image_pre_pull_job::ImagePrePullJobStatus;
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

/// The nodes that a status tells of.
pub(super) fn nodes(status: &ImagePrePullJobStatus) -> impl Iterator<Item = RecordedNode<'_>> {
    status.node_status.iter().filter_map(|entry| {
        Some(RecordedNode {
            name: entry.node_name.as_deref()?,
            phase: entry.phase.as_deref().and_then(NodePhase::parse),
            cause: entry.cause.as_deref().and_then(Cause::parse),
            text: entry.reason.as_deref().filter(|text| !text.is_empty()),
        })
    })
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
