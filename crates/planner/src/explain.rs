//! Why a node did not move: one sentence for every node of a campaign.

mod loss;
mod sentences;

use jiff::Timestamp;
use larder_api::contract::Answer;
use larder_api::names::{FOREIGN_AGENT, FOREIGN_AGENT_VENDOR};
use larder_model::{ByteSize, Reason};

use crate::agent_nodes::NoAgent;
use crate::node_state::{Bucket, Derived, NodeState, Pending};
use crate::progress::{Hold, Progress};
use crate::view::ClaimView;

pub(crate) use self::loss::lost_sentence;
pub use self::sentences::names_fleet_limit;
pub(crate) use self::sentences::{
    FLEET_LIMIT, LOGINS_WITHHELD, date_and_time, foreign_agents_sentence, no_logins_sentence,
    too_many_failures_sentence,
};
use self::sentences::{jobs_before_sentence, secrets_sentence};

/// What is to be said about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Where it stands.
    pub state: ExplainedState,
    /// Why it failed or waits.
    pub reason: Option<Reason>,
    /// A sentence for people.
    pub sentence: String,
}

/// Where a node stands, in one word. Those that need attention come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExplainedState {
    /// It could not get what was asked for.
    Failed,
    /// Something keeps it from taking part.
    Blocked,
    /// The order is being written, or the node has not taken it up.
    Ordered,
    /// It pulls.
    Pulling,
    /// The node has the order and has not begun.
    Queued,
    /// Its turn has not come.
    Waiting,
    /// It has what was asked for.
    Succeeded,
    /// The job leaves it out, because it has no agent.
    NoAgent,
    /// The job is not for it.
    NotSelected,
}

impl ExplainedState {
    /// The word, on which scripts rely.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Blocked => "Blocked",
            Self::Ordered => "Ordered",
            Self::Pulling => "Pulling",
            Self::Queued => "Queued",
            Self::Waiting => "Waiting",
            Self::Succeeded => "Succeeded",
            Self::NoAgent => "NoAgent",
            Self::NotSelected => "NotSelected",
        }
    }
}

impl Explanation {
    /// Says of a node that the job leaves it out, because it has no agent.
    pub fn without_agent(why: NoAgent) -> Self {
        let sentence = format!(
            "Left out: {}. The job neither waits for it nor fails because of it.",
            why.sentence()
        );
        say(ExplainedState::NoAgent, Some(Reason::NodeUnsuitable), sentence)
    }
}

impl Hold {
    /// What a job's status says of it; None if it is over at once.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Self::FleetPaused => Some("handing out is paused for the whole fleet".to_owned()),
            Self::Secrets {
                missing,
                unreadable,
                forbidden,
            } => Some(secrets_sentence(missing, unreadable, forbidden)),
            Self::ListingPods => Some("waits for the list of the pods in its namespace".to_owned()),
            Self::OutsideWindow(closed) => Some(closed.to_string()),
            Self::ReadingSecrets => None,
        }
    }
}

impl Progress {
    /// Says about one node where it stands and why.
    pub fn explain(&self, node: &str, now: Timestamp) -> Explanation {
        let Some(indexed) = self.nodes.get(node) else {
            let sentence = "The job does not select this node.".to_owned();
            return say(ExplainedState::NotSelected, None, sentence);
        };
        let (state, derived) = (&indexed.state, indexed.derived);
        match derived.bucket {
            Bucket::Outside => say(
                ExplainedState::NotSelected,
                None,
                "The job does not select this node any more.".into(),
            ),
            Bucket::Succeeded => match state.view.claim.and_then(|claim| claim.loss) {
                Some(loss) => loss::lost(loss, derived.wake),
                None => say(ExplainedState::Succeeded, None, self.success(node, derived)),
            },
            Bucket::Failed(reason) => say(
                ExplainedState::Failed,
                Some(reason),
                failure(state, reason, derived.wake),
            ),
            Bucket::Active => at_work(state, now),
            Bucket::Waiting(reason) => match (reason, derived.turn) {
                (_, Some(_)) => say(ExplainedState::Waiting, reason, self.queued(node)),
                (Some(reason), None) if state.view.foreign_agent => say(
                    ExplainedState::Blocked,
                    Some(reason),
                    format!("Cannot take part yet. {}", foreign_agent_sentence()),
                ),
                (Some(reason), None) => say(
                    ExplainedState::Blocked,
                    Some(reason),
                    waits(state, reason, derived.wake, now),
                ),
                (None, None) => say(ExplainedState::Waiting, None, "Waits for its turn.".into()),
            },
        }
    }

    fn success(&self, node: &str, derived: Derived) -> String {
        if derived.turn.is_some() {
            return format!("The image is there, and its refresh is due. {}", self.queued(node));
        }
        let refresh = derived.wake.filter(|_| self.campaign.is_endless());
        match (refresh, &self.campaign.refresh) {
            (Some(moment), Some(schedule)) => {
                let moment = date_and_time(&schedule.local_time(moment));
                format!("The image is there; its next refresh is at {moment}.")
            }
            (Some(moment), None) => format!("The image is there; it is looked at again at {moment}."),
            (None, _) => "The image is there.".to_owned(),
        }
    }

    /// Who occupies a node that has no room for this job, for the job's message.
    pub(crate) fn no_room_sentence(&self) -> Option<String> {
        if !self.counts.reasons.contains_key(&Reason::NodeFull) {
            return None;
        }
        let mut full = self.nodes.iter().filter_map(|(node, indexed)| {
            let no_room = indexed.state.view.no_room.as_ref()?;
            Some(format!("on {node}, {no_room}"))
        });
        full.next()
    }

    /// Why a node that could be served is not.
    fn queued(&self, node: &str) -> String {
        match &self.hold {
            Some(Hold::FleetPaused) => return "Waits: handing out is paused for the whole fleet.".to_owned(),
            Some(Hold::Secrets {
                missing,
                unreadable,
                forbidden,
            }) => {
                return format!("Waits: {}.", secrets_sentence(missing, unreadable, forbidden));
            }
            Some(Hold::ReadingSecrets) => return "Waits: the job's pull secrets are being read.".to_owned(),
            Some(Hold::OutsideWindow(closed)) => return format!("Waits: the job is {closed}."),
            Some(Hold::ListingPods) => return "Waits: the pods of the job's namespace are being listed.".to_owned(),
            None => {}
        }
        let parallelism = self.campaign.parallelism;
        if parallelism == 0 {
            return "Waits: the job is paused (parallelism 0).".to_owned();
        }
        if self.too_many_failures() {
            return "Is not served: more nodes failed than failurePolicy.maxFailures allows.".to_owned();
        }
        let ahead = self.queue.iter().take_while(|(_, name)| &**name != node).count();
        if self.capped {
            let jobs = jobs_before_sentence(self.jobs_before).map(|jobs| format!("; {jobs}"));
            return format!(
                "Waits, {ahead} nodes are before it: {FLEET_LIMIT}{}.",
                jobs.unwrap_or_default()
            );
        }
        if self.counts.slots < parallelism {
            return format!("Is about to be served, {ahead} nodes are before it.");
        }
        let busy = self.counts.slots;
        format!("Waits for its turn: {busy} of {parallelism} slots are taken, {ahead} nodes are before it.")
    }
}

/// What to do about a node whose NodeImage other software serves.
fn foreign_agent_sentence() -> String {
    format!(
        "The node needs a login, and no Larder agent has reported there: its NodeImage is served by another agent, such as \
         {FOREIGN_AGENT_VENDOR}'s {FOREIGN_AGENT}, which cannot open one. Stop that agent and start Larder's."
    )
}

fn say(state: ExplainedState, reason: Option<Reason>, sentence: String) -> Explanation {
    Explanation {
        state,
        reason,
        sentence,
    }
}

fn failure(state: &NodeState, reason: Reason, retry: Option<Timestamp>) -> String {
    let again = retry
        .map(|moment| format!(" It is tried again at {moment}."))
        .unwrap_or_default();
    format!("{}{}{again}", occupants(state, reason), reason.advice())
}

fn waits(state: &NodeState, reason: Reason, until: Option<Timestamp>, now: Timestamp) -> String {
    let left = until.map(|until| until.duration_since(now).as_secs().max(0));
    let limit = left
        .map(|seconds| format!(" Looked at again in {seconds} s."))
        .unwrap_or_default();
    let occupants = occupants(state, reason);
    format!("Cannot take part yet. {occupants}{}{limit}", reason.advice())
}

/// Who occupies a node whose NodeImage has no room; a sentence, or nothing.
fn occupants(state: &NodeState, reason: Reason) -> String {
    let no_room = state.view.no_room.as_ref().filter(|_| reason == Reason::NodeFull);
    no_room
        .map(|no_room| format!("{}. ", sentence_case(&no_room.to_string())))
        .unwrap_or_default()
}

fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn at_work(state: &NodeState, now: Timestamp) -> Explanation {
    let claim = match (state.pending, state.view.claim) {
        (Some(Pending::HandOut(_)), _) | (_, None) => {
            return say(ExplainedState::Ordered, None, "The order is being written.".into());
        }
        (_, Some(claim)) => claim,
    };
    let seconds = now.duration_since(claim.handed_out).as_secs().max(0);
    match claim.answer {
        Answer::Unanswered => {
            let text = format!("Was given the order {seconds} s ago; its agent has not taken it up yet.");
            say(ExplainedState::Ordered, None, text)
        }
        Answer::Waiting(reason) => {
            let why = reason.map_or("Other pulls on this node come first.", Reason::advice);
            say(
                ExplainedState::Queued,
                reason,
                format!("The node has the order and waits. {why}"),
            )
        }
        Answer::Pulling | Answer::Succeeded | Answer::Failed(_) => {
            say(ExplainedState::Pulling, None, pulling(claim, seconds))
        }
    }
}

fn pulling(claim: ClaimView, seconds: i64) -> String {
    let size = |bytes: i64| ByteSize(u64::try_from(bytes).unwrap_or(0));
    match (claim.bytes_done, claim.bytes_total) {
        (Some(done), Some(total)) => {
            format!("Pulls: {} of {} after {seconds} s.", size(done), size(total))
        }
        _ => format!("Pulls since {seconds} s; its runtime does not tell bytes."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::samples::{able, at, blocked, campaign, node, ordered};
    use crate::{NodeView, Progress};
    use rstest::rstest;

    fn explain(view: NodeView, seconds: i64) -> Explanation {
        let mut progress = Progress::new(campaign(1), at(0));
        progress.node_changed(&node(1), view, at(0));
        progress.explain(&node(1), at(seconds))
    }

    #[rstest]
    #[case::succeeded(ordered(at(0), Answer::Succeeded), "Succeeded", "The image is there.")]
    #[case::failed(
        ordered(at(0), Answer::Failed(Reason::Dns)),
        "Failed",
        "Check the registry's host name, and that the node's DNS server can resolve it."
    )]
    #[case::ordered(
        ordered(at(0), Answer::Unanswered),
        "Ordered",
        "Was given the order 5 s ago; its agent has not taken it up yet."
    )]
    #[case::pulls(
        ordered(at(0), Answer::Pulling),
        "Pulling",
        "Pulls since 5 s; its runtime does not tell bytes."
    )]
    #[case::behind_others(
        ordered(at(0), Answer::Waiting(None)),
        "Queued",
        "The node has the order and waits. Other pulls on this node come first."
    )]
    #[case::not_ready(
        blocked(Reason::NodeNotReady, at(0)),
        "Blocked",
        "Cannot take part yet. Bring the node back, or take it out of the job's selector. Looked at again in 595 s."
    )]
    fn says(#[case] view: NodeView, #[case] state: &str, #[case] sentence: &str) {
        let explanation = explain(view, 5);
        assert_eq!(
            (explanation.state.as_str(), explanation.sentence.as_str()),
            (state, sentence)
        );
    }

    #[test]
    fn a_full_node_tells_who_occupies_it() {
        let mut object = larder_api::NodeImage::default();
        for number in 0..256 {
            let entry = larder_api::node_image::ImageTagSpec {
                tag: "1".to_owned(),
                owner_references: vec![k8s_openapi::api::core::v1::ObjectReference {
                    namespace: Some("team-a".to_owned()),
                    ..Default::default()
                }],
                ..Default::default()
            };
            let image = larder_api::node_image::ImageSpec {
                tags: vec![entry],
                ..Default::default()
            };
            object.spec.images.insert(format!("i{number}"), image);
        }
        let campaign = campaign(1);
        let task = campaign.tasks.of("node").unwrap();
        let no_room = crate::occupancy::claim_fits(&object, 40 * 1_024, None, &campaign, task).unwrap_err();
        let mut view = blocked(Reason::NodeFull, at(0));
        view.no_room = Some(Box::new(no_room));
        let mut progress = Progress::new(campaign, at(0));
        progress.node_changed(&node(1), view, at(0));
        let who = "40.0 KiB of 256.0 KiB and 256 of 256 image names of the NodeImage are occupied, most by the jobs of \
                   namespace team-a: 33.8 KiB and 256 image names; this job needs 2.5 KiB more";
        assert_eq!(
            progress.explain(&node(1), at(5)).sentence,
            format!(
                "Cannot take part yet. {who}. {} Looked at again in 595 s.",
                Reason::NodeFull.advice()
            )
        );
        assert_eq!(progress.no_room_sentence(), Some(format!("on node-00001, {who}")));
    }

    #[test]
    fn bytes_are_told_where_they_are_known() {
        let mut view = ordered(at(0), Answer::Pulling);
        let claim = view.claim.as_mut().unwrap();
        (claim.bytes_done, claim.bytes_total) = (Some(1 << 20), Some(4 << 20));
        assert_eq!(explain(view, 5).sentence, "Pulls: 1.0 MiB of 4.0 MiB after 5 s.");
    }

    fn queued(change: impl FnOnce(&mut Progress)) -> String {
        let mut progress = Progress::new(campaign(1), at(0));
        for number in 0..3 {
            progress.node_changed(&node(number), able(), at(0));
        }
        change(&mut progress);
        progress.explain(&node(2), at(1)).sentence
    }

    #[test]
    fn a_node_in_the_queue_learns_what_it_waits_for() {
        let taken = queued(|progress| drop(progress.decide(9, at(0))));
        assert_eq!(
            taken,
            "Waits for its turn: 1 of 1 slots are taken, 1 nodes are before it."
        );
        let capped = queued(|progress| drop(progress.decide(0, at(0))));
        assert_eq!(
            capped,
            "Waits, 2 nodes are before it: the whole fleet has as many pulls as --max-active-pulls allows."
        );
        let outranked = queued(|progress| progress.cap(true, 1));
        assert_eq!(
            outranked,
            "Waits, 2 nodes are before it: the whole fleet has as many pulls as --max-active-pulls allows; 1 job with a higher \
             priority goes first."
        );
        let soon = queued(|_| {});
        assert_eq!(soon, "Is about to be served, 2 nodes are before it.");
        let fleet = queued(|progress| progress.hold(Some(Hold::FleetPaused)));
        assert_eq!(fleet, "Waits: handing out is paused for the whole fleet.");
        let secret = queued(|progress| {
            progress.hold(Some(Hold::Secrets {
                missing: vec!["default/pull".into()],
                unreadable: vec![],
                forbidden: vec![],
            }));
        });
        assert_eq!(
            secret,
            "Waits: the pull secret default/pull does not exist; nothing is pulled until that is mended."
        );
        let paused = queued(|progress| progress.edit(campaign(0), at(0)));
        assert_eq!(paused, "Waits: the job is paused (parallelism 0).");
    }

    #[test]
    fn a_node_that_is_not_selected_is_told_so() {
        let progress = Progress::new(campaign(1), at(0));
        assert_eq!(progress.explain("stranger", at(0)).state, ExplainedState::NotSelected);
    }
}
