//! Whether logins may be sealed for nodes: only while the API server is seen to enforce the node policy, which lets each
//! node write its own NodeImage's status and nobody else's. Otherwise any agent could publish a key in another node's name,
//! and receive what is sealed for that node.
//!
//! That the policy is installed says little: its binding may be gone, or only warn. So it is tried ([`Probe`]): a write that
//! the policy must refuse. This module decides when, on which node, and what the outcome means; the controller tries.

use jiff::{SignedDuration, Timestamp};

use crate::campaign::later;
use crate::view::NodeKey;

/// Right after a change, the API server may still act by what it knew before: it is tried again after this long, then
/// after twice as long, …
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// … up to this while the policy is enforced …
const WHILE_ENFORCED: SignedDuration = SignedDuration::from_secs(60);

/// … and up to this while jobs may wait for it.
const WHILE_WAITING: SignedDuration = SignedDuration::from_secs(10);

/// What is known of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodePolicy {
    /// It was not tried yet, or cannot be tried.
    #[default]
    NotKnown,
    /// The API server refused a write for it.
    Enforced,
    /// The API server accepted a write that the policy forbids.
    NotEnforced,
}

/// What came of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The policy refused the write.
    Refused,
    /// The write was accepted.
    Accepted,
    /// Something other than the policy refused it: this shows nothing, and another try will not either until a person
    /// changes something.
    Inconclusive,
    /// No answer, or none that shows anything this time.
    NoAnswer,
}

/// When the policy is tried next, on which node, and what was found.
#[derive(Clone, Debug, Default)]
pub struct PolicyCheck {
    found: NodePolicy,
    /// The node of the last try.
    node: Option<NodeKey>,
    pause: Option<SignedDuration>,
    /// None: at once.
    due: Option<Timestamp>,
    in_flight: bool,
}

impl PolicyCheck {
    /// What is known of the policy.
    pub fn found(&self) -> NodePolicy {
        self.found
    }

    /// Whether it was tried at all, on any node.
    pub fn was_tried(&self) -> bool {
        self.node.is_some()
    }

    /// When the next try is due; None while one is under way.
    pub fn next(&self) -> Option<Timestamp> {
        (!self.in_flight).then(|| self.due.unwrap_or(Timestamp::MIN))
    }

    /// The node to try now, of those that have a NodeImage, in the order of their names. A binding may leave nodes out, so
    /// each try takes the next one; but a node on which the write was accepted is tried until it is refused.
    pub fn begin<'a>(
        &mut self,
        mut nodes: impl Iterator<Item = &'a NodeKey> + Clone,
        now: Timestamp,
    ) -> Option<NodeKey> {
        if self.in_flight || self.due.is_some_and(|due| now < due) {
            return None;
        }
        let stays = |node: &&NodeKey| match (&self.node, self.found) {
            (Some(last), NodePolicy::NotEnforced) => last <= *node,
            (Some(last), NodePolicy::NotKnown | NodePolicy::Enforced) => last < *node,
            (None, _) => true,
        };
        let node = nodes.clone().find(stays).or_else(|| nodes.next()).cloned();
        match &node {
            Some(_) => {
                self.node.clone_from(&node);
                self.in_flight = true;
            }
            // Without a node there is nothing to seal either.
            None => self.due = Some(later(now, FIRST_PAUSE)),
        }
        node
    }

    /// Takes in what came of a try. True if that changes what is known.
    pub fn end(&mut self, probe: Probe, now: Timestamp) -> bool {
        self.in_flight = false;
        let before = self.found;
        self.found = match probe {
            Probe::Refused => NodePolicy::Enforced,
            Probe::Accepted => NodePolicy::NotEnforced,
            Probe::Inconclusive => NodePolicy::NotKnown,
            Probe::NoAnswer => before,
        };
        let longest = match self.found {
            NodePolicy::Enforced => WHILE_ENFORCED,
            NodePolicy::NotKnown | NodePolicy::NotEnforced => WHILE_WAITING,
        };
        let pause = self.pause.map_or(FIRST_PAUSE, |pause| pause.saturating_mul(2));
        let pause = pause.min(longest);
        self.pause = Some(pause);
        self.due = Some(later(now, pause));
        self.found != before
    }

    /// The policy or its binding changed: it is tried at once, and again a few times soon after.
    pub fn changed(&mut self) {
        self.due = None;
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::view::samples::at;

    fn nodes() -> Vec<NodeKey> {
        ["a", "b", "c"].map(NodeKey::from).to_vec()
    }

    /// Tries once at a moment, and says on which node and whether the finding changed.
    fn probe(check: &mut PolicyCheck, probe: Probe, seconds: i64) -> (String, bool) {
        let node = check.begin(nodes().iter(), at(seconds)).unwrap();
        assert_eq!(check.next(), None, "a second try beside the first");
        assert_eq!(check.begin(nodes().iter(), at(seconds)), None);
        (node.to_string(), check.end(probe, at(seconds)))
    }

    #[rstest]
    #[case::refused(Probe::Refused, NodePolicy::Enforced)]
    #[case::accepted(Probe::Accepted, NodePolicy::NotEnforced)]
    #[case::inconclusive(Probe::Inconclusive, NodePolicy::NotKnown)]
    #[case::no_answer(Probe::NoAnswer, NodePolicy::NotKnown)]
    fn a_try_shows(#[case] outcome: Probe, #[case] found: NodePolicy) {
        let mut check = PolicyCheck::default();
        assert_eq!(check.found(), NodePolicy::NotKnown);
        let changed = probe(&mut check, outcome, 0).1;
        assert_eq!((check.found(), changed), (found, found != NodePolicy::NotKnown));
    }

    #[rstest]
    #[case::still_enforced(Probe::Refused, Probe::NoAnswer, NodePolicy::Enforced)]
    #[case::still_not_enforced(Probe::Accepted, Probe::NoAnswer, NodePolicy::NotEnforced)]
    #[case::deleted(Probe::Refused, Probe::Accepted, NodePolicy::NotEnforced)]
    #[case::restored(Probe::Accepted, Probe::Refused, NodePolicy::Enforced)]
    #[case::cannot_be_tried_any_more(Probe::Refused, Probe::Inconclusive, NodePolicy::NotKnown)]
    fn a_second_try_shows(#[case] first: Probe, #[case] second: Probe, #[case] found: NodePolicy) {
        let mut check = PolicyCheck::default();
        probe(&mut check, first, 0);
        probe(&mut check, second, 60);
        assert_eq!(check.found(), found);
    }

    #[rstest]
    #[case::enforced(Probe::Refused, &[1, 2, 4, 8, 16, 32, 60, 60])]
    #[case::not_enforced(Probe::Accepted, &[1, 2, 4, 8, 10, 10])]
    #[case::inconclusive(Probe::Inconclusive, &[1, 2, 4, 8, 10, 10])]
    fn it_is_tried_again_and_again(#[case] outcome: Probe, #[case] pauses: &[i64]) {
        let mut check = PolicyCheck::default();
        let mut now = 0;
        for pause in pauses {
            probe(&mut check, outcome, now);
            assert_eq!(check.next(), Some(at(now + pause)));
            assert_eq!(check.begin(nodes().iter(), at(now + pause - 1)), None);
            now += pause;
        }
        check.changed();
        assert_eq!(check.next(), Some(Timestamp::MIN), "a change is waited for");
        probe(&mut check, outcome, now);
        assert_eq!(check.next(), Some(at(now + 1)));
    }

    #[test]
    fn every_node_has_its_turn_and_one_without_the_policy_keeps_it() {
        let mut check = PolicyCheck::default();
        let mut on = |outcome, seconds| probe(&mut check, outcome, seconds).0;
        let refused = [0, 100, 200, 300].map(|seconds| on(Probe::Refused, seconds));
        assert_eq!(refused, ["a", "b", "c", "a"]);
        let accepted = [400, 500, 600].map(|seconds| on(Probe::Accepted, seconds));
        assert_eq!(accepted, ["b", "b", "b"]);
        assert_eq!(on(Probe::Refused, 700), "b");
        assert_eq!(on(Probe::Refused, 800), "c");
    }

    #[test]
    fn without_a_node_nothing_is_tried() {
        let mut check = PolicyCheck::default();
        assert_eq!(check.begin([].iter(), at(0)), None);
        assert_eq!(check.next(), Some(at(1)));
        assert_eq!(check.found(), NodePolicy::NotKnown);
    }
}
