//! Where one node stands in one campaign, and what follows from it.
//!
//! A [`NodeState`] is what is known: the last view of the node, an order that is being written, and how often the node did not respond.
//! A [`Derived`] is what follows from it at a moment; it is a function of the state, the campaign and the time.

use jiff::{SignedDuration, Timestamp};
use larder_api::contract::Answer;
use larder_model::{Reason, Retry};

use crate::campaign::{Campaign, later};
use crate::refresh;
use crate::view::{ClaimView, Heard, Loss, NodeView};

/// An order that nobody takes up for this long is withdrawn, and its slot passed on. An agent answers within a second.
pub(crate) const ACKNOWLEDGE: SignedDuration = SignedDuration::from_secs(30);

/// A node that kept silent is tried again after a minute, then after two, four, …
const FIRST_REST: SignedDuration = SignedDuration::from_mins(1);

/// … but at least this often.
const LONGEST_REST: SignedDuration = SignedDuration::from_hours(1);

/// The same for a node whose NodeImage had no room for the order beside others that were written with it: what these really
/// take is known as soon as they are written.
const FULL_REST: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(2), SignedDuration::from_mins(1));

/// What is known of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) view: NodeView,
    pub(crate) pending: Option<Pending>,
    /// Boxed, because few nodes ever fail to respond and there may be a hundred thousand states.
    pub(crate) no_response: Option<Box<NoResponse>>,
    /// The node was unable to take part for too long; final in a campaign that ends.
    pub(crate) gave_up: Option<Reason>,
    /// The job was edited after this node failed.
    pub(crate) redo: bool,
}

/// A write that was asked for and whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    HandOut(Timestamp),
    Withdraw(Reason),
}

/// A node that was given the order and could not take it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoResponse {
    pub(crate) reason: Reason,
    pub(crate) since: Timestamp,
    pub(crate) tries: u32,
    pub(crate) retry_at: Timestamp,
    pub(crate) heard: Heard,
}

/// Which of a campaign's counters a node is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bucket {
    /// Not one of the selected nodes.
    #[default]
    Outside,
    /// Not ordered, for this reason if it is not just its turn.
    Waiting(Option<Reason>),
    /// Ordered, no result.
    Active,
    Succeeded,
    Failed(Reason),
}

/// Why a node is next, in the order in which nodes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueClass {
    /// Never served, or to be served anew.
    First,
    /// Kept silent before: those that never did come first.
    AfterNoResponse,
    /// Has its task; the time for a refresh has come.
    Refresh,
}

/// What follows from a state at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Derived {
    pub(crate) bucket: Bucket,
    /// Whether the node holds a slot.
    pub(crate) slot: bool,
    /// Whether it may be given one.
    pub(crate) turn: Option<QueueClass>,
    /// Whether its order is to be taken back, and why.
    pub(crate) recall: Option<Reason>,
    /// When time alone changes any of this.
    pub(crate) wake: Option<Timestamp>,
    /// Whether the node was unable to take part for too long just now.
    pub(crate) gives_up: bool,
}

impl Bucket {
    /// Why a node waits or failed.
    pub(crate) fn reason(self) -> Option<Reason> {
        match self {
            Bucket::Waiting(reason) => reason,
            Bucket::Failed(reason) => Some(reason),
            Bucket::Outside | Bucket::Active | Bucket::Succeeded => None,
        }
    }
}

impl NoResponse {
    /// One more failed try of a node at `now`.
    pub(crate) fn after(state: &NodeState, reason: Reason, since: Timestamp, now: Timestamp) -> Self {
        let previous = state.no_response.as_deref();
        let tries = previous.map_or(0, |no_response| no_response.tries).saturating_add(1);
        let (first, longest) = match reason {
            Reason::NodeFull => FULL_REST,
            _ => (FIRST_REST, LONGEST_REST),
        };
        let rest = first.saturating_mul(1 << (tries - 1).min(6)).min(longest);
        Self {
            reason,
            since: previous.map_or(since, |no_response| no_response.since),
            tries,
            retry_at: later(now, rest),
            heard: state.view.heard,
        }
    }
}

impl NodeState {
    /// Whether a view says nothing new. That an agent spoke is news only if it was silent before.
    pub(crate) fn has_seen(&mut self, view: &NodeView) -> bool {
        if self.no_response.is_none() {
            self.view.heard = view.heard;
        }
        self.view == *view
    }

    /// Takes a new view in.
    pub(crate) fn see(&mut self, mut view: NodeView) {
        self.keep_what_outlives_the_object(&mut view);
        let acknowledged = view.claim.is_some_and(|claim| !is_unanswered(claim));
        if acknowledged {
            self.no_response = None;
            self.gave_up = None;
        }
        if let Some(no_response) = &mut self.no_response {
            let agent_is_back = no_response.reason == Reason::Unresponsive && no_response.heard != view.heard;
            let can_take_part_again = self.view.block.is_some() && view.block.is_none();
            if agent_is_back || can_take_part_again {
                // What the agent said may have been about something else, so its tries stay counted.
                no_response.heard = view.heard;
                no_response.retry_at = Timestamp::MIN;
            }
        }
        self.view = view;
    }

    /// A success is not taken back because the NodeImage that told of it is gone, and a node that stays gone or full is so
    /// since the first view that said so.
    fn keep_what_outlives_the_object(&self, view: &mut NodeView) {
        let succeeded = self.view.claim.filter(|claim| claim.answer == Answer::Succeeded);
        if view.unreadable && view.selected {
            view.claim = view.claim.or(succeeded);
        }
        if let (Some(before), Some(block)) = (self.view.block, &mut view.block)
            && before.reason == block.reason
            && matches!(block.reason, Reason::NodeUnsuitable | Reason::NodeFull)
        {
            block.since = before.since.into_iter().chain(block.since).min();
        }
    }

    /// Where the node stands at `now`.
    pub(crate) fn derive(&self, campaign: &Campaign, node: &str, now: Timestamp) -> Derived {
        let claim = self.view.claim.map(|claim| claim_at(claim, campaign, now));
        let unfinished = claim.is_some_and(|claim| !claim.is_final());
        let held = self.pending.is_some() || unfinished;
        if !self.view.selected {
            return Derived {
                slot: held,
                ..Derived::default()
            };
        }
        match (self.pending, claim) {
            (Some(Pending::HandOut(_)), _) => active(),
            (Some(Pending::Withdraw(reason)), _) => Derived {
                bucket: Bucket::Waiting(Some(reason)),
                slot: true,
                ..Derived::default()
            },
            (None, Some(claim)) if claim.is_final() => self.answered(claim, campaign, node, now),
            (None, Some(claim)) => self.ordered(claim, campaign, now),
            (None, None) => self.unordered(campaign, now),
        }
    }

    /// The node has said its last word.
    fn answered(&self, claim: ClaimView, campaign: &Campaign, node: &str, now: Timestamp) -> Derived {
        let ended = claim
            .ended
            .unwrap_or(claim.handed_out)
            .clamp(claim.handed_out, now.max(claim.handed_out));
        let (endless, schedule) = (campaign.is_endless(), campaign.refresh.as_ref());
        let (bucket, due) = match claim.answer {
            Answer::Failed(reason) if claim.again || self.redo => {
                return Derived {
                    bucket: Bucket::Waiting(self.view.block.map(|block| block.reason).or(Some(reason))),
                    turn: self.view.block.is_none().then_some(QueueClass::First),
                    ..Derived::default()
                };
            }
            Answer::Failed(reason) => (
                Bucket::Failed(reason),
                endless.then(|| refresh::after_failure(schedule, campaign.uid(), node, ended)),
            ),
            Answer::Succeeded if matches!(claim.loss, Some(Loss::Failed(_))) => (
                Bucket::Succeeded,
                endless.then(|| refresh::after_failure(schedule, campaign.uid(), node, ended)),
            ),
            Answer::Succeeded | Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling => (
                Bucket::Succeeded,
                endless.then(|| refresh::after_success(schedule, campaign.uid(), node, claim.handed_out)),
            ),
        };
        let is_due = due.is_some_and(|due| due <= now);
        Derived {
            bucket,
            turn: (is_due && self.view.block.is_none()).then_some(QueueClass::Refresh),
            wake: due.filter(|due| now < *due),
            ..Derived::default()
        }
    }

    /// The node has the order and no result.
    fn ordered(&self, claim: ClaimView, campaign: &Campaign, now: Timestamp) -> Derived {
        let limit = if is_unanswered(claim) {
            let reason = match claim.answer {
                Answer::Waiting(Some(reason)) => reason,
                _ => Reason::Unresponsive,
            };
            Some((later(claim.handed_out, ACKNOWLEDGE), reason))
        } else {
            let gone = self.view.block.filter(|block| block.reason == Reason::NodeNotReady);
            gone.map(|block| {
                let since = block.since.unwrap_or(claim.handed_out).max(claim.handed_out);
                (later(since, ACKNOWLEDGE), block.reason)
            })
        };
        Derived {
            recall: limit.filter(|(limit, _)| *limit <= now).map(|(_, reason)| reason),
            wake: [limit.map(|(limit, _)| limit), campaign.overdue_at(claim.handed_out)]
                .into_iter()
                .flatten()
                .filter(|limit| now < *limit)
                .min(),
            ..active()
        }
    }

    /// The node does not have the order.
    fn unordered(&self, campaign: &Campaign, now: Timestamp) -> Derived {
        let endless = campaign.is_endless();
        if let Some(reason) = self.gave_up.filter(|_| !endless) {
            return Derived {
                bucket: Bucket::Failed(reason),
                ..Derived::default()
            };
        }
        if let Some(block) = self.view.block {
            return match block.since {
                Some(since) => waiting(block.reason, later(since, campaign.response_time), now),
                None => Derived {
                    bucket: Bucket::Waiting(Some(block.reason)),
                    ..Derived::default()
                },
            };
        }
        let Some(no_response) = &self.no_response else {
            return Derived {
                bucket: Bucket::Waiting(None),
                turn: Some(QueueClass::First),
                ..Derived::default()
            };
        };
        let mut derived = waiting(
            no_response.reason,
            later(no_response.since, campaign.response_time),
            now,
        );
        let given_up = derived.gives_up && !endless;
        if no_response.retry_at <= now {
            derived.turn = (!given_up).then_some(QueueClass::AfterNoResponse);
        } else if !given_up {
            derived.wake = Some(
                derived
                    .wake
                    .map_or(no_response.retry_at, |wake| wake.min(no_response.retry_at)),
            );
        }
        derived
    }
}

/// What a claim is worth at `now`: past its time a node without a result counts as unresponsive. A result that arrives
/// later replaces this.
fn claim_at(claim: ClaimView, campaign: &Campaign, now: Timestamp) -> ClaimView {
    let overdue = campaign.overdue_at(claim.handed_out).is_some_and(|limit| limit <= now);
    if claim.is_final() || !overdue {
        return claim;
    }
    ClaimView {
        answer: Answer::Failed(Reason::Unresponsive),
        ..claim
    }
}

/// Whether the node does not do what it was told: it never took the order up, or it says that something of its own has
/// to change first.
fn is_unanswered(claim: ClaimView) -> bool {
    match claim.answer {
        Answer::Unanswered => true,
        Answer::Waiting(reason) => reason.is_some_and(|reason| reason.retry() == Retry::Later),
        Answer::Pulling | Answer::Succeeded | Answer::Failed(_) => false,
    }
}

fn active() -> Derived {
    Derived {
        bucket: Bucket::Active,
        slot: true,
        ..Derived::default()
    }
}

/// Unable to take part: waited for until the limit, failed from then on.
fn waiting(reason: Reason, limit: Timestamp, now: Timestamp) -> Derived {
    if limit <= now {
        return Derived {
            bucket: Bucket::Failed(reason),
            gives_up: true,
            ..Derived::default()
        };
    }
    Derived {
        bucket: Bucket::Waiting(Some(reason)),
        wake: Some(limit),
        ..Derived::default()
    }
}

#[cfg(test)]
mod tests;
