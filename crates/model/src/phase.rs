//! Where the pull of one image on one node stands.

use crate::text::closed_set;

/// The four phases of a pull, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Ordered, not begun.
    Waiting,
    /// Under way.
    Pulling,
    /// The image is on the node.
    Succeeded,
    /// Given up, with a reason.
    Failed,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Phase; 4] = [Phase::Waiting, Phase::Pulling, Phase::Succeeded, Phase::Failed];

    /// The word in status fields.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Waiting => "Waiting",
            Phase::Pulling => "Pulling",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
        }
    }

    /// Whether nothing more happens until a new version is ordered.
    pub const fn is_final(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

closed_set!(Phase, "phase");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_themselves() {
        for phase in Phase::ALL {
            assert_eq!(phase.as_str().parse(), Ok(phase));
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = "pulling".parse::<Phase>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`pulling` is not a known phase; use one of: Waiting, Pulling, Succeeded, Failed"
        );
    }

    #[test]
    fn two_phases_are_final() {
        assert_eq!(Phase::ALL.map(Phase::is_final), [false, false, true, true]);
    }
}
