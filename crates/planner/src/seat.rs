//! Where one node stands in one campaign, and what follows from it.
//!
//! A [`Seat`] is what is known: the last view of the node, a write that is under way, and how often the node kept silent.
//! A [`Place`] is what follows from it at a moment; it is a function of the seat, the campaign and the time.

use jiff::{SignedDuration, Timestamp};
use larder_api::contract::Answer;
use larder_model::{Reason, Retry};

use crate::campaign::{Campaign, later};
use crate::refresh;
use crate::view::{ClaimView, NodeView};

/// An order that nobody takes up for this long is withdrawn, and its slot passed on. An agent answers within a second.
pub(crate) const ACKNOWLEDGE: SignedDuration = SignedDuration::from_secs(30);

/// A node that kept silent is tried again after a minute, then after two, four, …
const FIRST_REST: SignedDuration = SignedDuration::from_mins(1);

/// … but at least this often.
const LONGEST_REST: SignedDuration = SignedDuration::from_hours(1);

/// What is known of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat {
    pub(crate) view: NodeView,
    pub(crate) pending: Option<Pending>,
    /// Boxed, because few nodes ever keep silent and there may be a hundred thousand seats.
    pub(crate) silence: Option<Box<Silence>>,
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
pub(crate) struct Silence {
    pub(crate) reason: Reason,
    pub(crate) since: Timestamp,
    pub(crate) tries: u32,
    pub(crate) retry_at: Timestamp,
    pub(crate) heard: Option<Timestamp>,
}

/// Which of a campaign's counters a node is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tally {
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
pub(crate) enum Turn {
    /// Never served, or to be served anew.
    First,
    /// Kept silent before: those that never did come first.
    AfterSilence,
    /// Was served; its day is over.
    Refresh,
}

/// What follows from a seat at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) tally: Tally,
    /// Whether the node holds a slot.
    pub(crate) slot: bool,
    /// Whether it may be given one.
    pub(crate) turn: Option<Turn>,
    /// Whether its order is to be taken back, and why.
    pub(crate) recall: Option<Reason>,
    /// When time alone changes any of this.
    pub(crate) wake: Option<Timestamp>,
    /// Whether the node was unable to take part for too long just now.
    pub(crate) gives_up: bool,
}

impl Tally {
    /// Why a node waits or failed.
    pub(crate) fn reason(self) -> Option<Reason> {
        match self {
            Tally::Waiting(reason) => reason,
            Tally::Failed(reason) => Some(reason),
            Tally::Outside | Tally::Active | Tally::Succeeded => None,
        }
    }
}

impl Silence {
    /// One more failed try of a seat at `now`.
    pub(crate) fn after(seat: &Seat, reason: Reason, since: Timestamp, now: Timestamp) -> Self {
        let previous = seat.silence.as_deref();
        let tries = previous.map_or(0, |silence| silence.tries).saturating_add(1);
        let rest = FIRST_REST.saturating_mul(1 << (tries - 1).min(6)).min(LONGEST_REST);
        Self {
            reason,
            since: previous.map_or(since, |silence| silence.since),
            tries,
            retry_at: later(now, rest),
            heard: seat.view.heard,
        }
    }
}

impl Seat {
    /// Takes a new view in.
    pub(crate) fn see(&mut self, view: NodeView) {
        let acknowledged = view.claim.is_some_and(|claim| !kept_silent(claim));
        if acknowledged {
            self.silence = None;
            self.gave_up = None;
        }
        if let Some(silence) = &mut self.silence
            && silence.reason == Reason::Unresponsive
            && silence.heard != view.heard
        {
            // The agent is back. What it said before may have been about something else, so its tries stay counted.
            silence.heard = view.heard;
            silence.retry_at = Timestamp::MIN;
        }
        self.view = view;
    }

    /// Where the node stands at `now`.
    pub(crate) fn place(&self, campaign: &Campaign, node: &str, now: Timestamp) -> Place {
        let unfinished = self.view.claim.is_some_and(|claim| !claim.is_final());
        let held = self.pending.is_some() || unfinished;
        if !self.view.selected {
            return Place {
                slot: held,
                ..Place::default()
            };
        }
        match (self.pending, self.view.claim) {
            (Some(Pending::HandOut(_)), _) => active(),
            (Some(Pending::Withdraw(reason)), _) => Place {
                tally: Tally::Waiting(Some(reason)),
                slot: true,
                ..Place::default()
            },
            (None, Some(claim)) if claim.is_final() => self.answered(claim, campaign, node, now),
            (None, Some(claim)) => self.ordered(claim, now),
            (None, None) => self.unordered(campaign, now),
        }
    }

    /// The node has said its last word.
    fn answered(&self, claim: ClaimView, campaign: &Campaign, node: &str, now: Timestamp) -> Place {
        let ended = claim
            .ended
            .unwrap_or(claim.handed_out)
            .clamp(claim.handed_out, now.max(claim.handed_out));
        let (tally, due) = match claim.answer {
            Answer::Failed(reason) if claim.again || self.redo => {
                return Place {
                    tally: Tally::Waiting(self.view.block.map(|block| block.reason).or(Some(reason))),
                    turn: self.view.block.is_none().then_some(Turn::First),
                    ..Place::default()
                };
            }
            Answer::Failed(reason) => (Tally::Failed(reason), refresh::after_failure(ended)),
            Answer::Succeeded | Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling => (
                Tally::Succeeded,
                refresh::after_success(campaign.uid(), node, claim.handed_out),
            ),
        };
        let due = campaign.is_endless().then_some(due);
        let is_due = due.is_some_and(|due| due <= now);
        Place {
            tally,
            turn: (is_due && self.view.block.is_none()).then_some(Turn::Refresh),
            wake: due.filter(|due| now < *due),
            ..Place::default()
        }
    }

    /// The node has the order and no result.
    fn ordered(&self, claim: ClaimView, now: Timestamp) -> Place {
        let limit = if kept_silent(claim) {
            let reason = match claim.answer {
                Answer::Waiting(Some(reason)) => reason,
                _ => Reason::Unresponsive,
            };
            Some((later(claim.handed_out, ACKNOWLEDGE), reason))
        } else {
            let gone = self.view.block.filter(|block| block.reason == Reason::NodeNotReady);
            gone.map(|block| (later(block.since.max(claim.handed_out), ACKNOWLEDGE), block.reason))
        };
        Place {
            recall: limit.filter(|(limit, _)| *limit <= now).map(|(_, reason)| reason),
            wake: limit.map(|(limit, _)| limit).filter(|limit| now < *limit),
            ..active()
        }
    }

    /// The node does not have the order.
    fn unordered(&self, campaign: &Campaign, now: Timestamp) -> Place {
        let endless = campaign.is_endless();
        if let Some(reason) = self.gave_up.filter(|_| !endless) {
            return Place {
                tally: Tally::Failed(reason),
                ..Place::default()
            };
        }
        if let Some(block) = self.view.block {
            return waiting(block.reason, later(block.since, campaign.response_time), now);
        }
        let Some(silence) = &self.silence else {
            return Place {
                tally: Tally::Waiting(None),
                turn: Some(Turn::First),
                ..Place::default()
            };
        };
        let mut place = waiting(silence.reason, later(silence.since, campaign.response_time), now);
        let given_up = place.gives_up && !endless;
        if silence.retry_at <= now {
            place.turn = (!given_up).then_some(Turn::AfterSilence);
        } else if !given_up {
            place.wake = Some(place.wake.map_or(silence.retry_at, |wake| wake.min(silence.retry_at)));
        }
        place
    }
}

/// Whether the node does not do what it was told: it never took the order up, or it says that something of its own has
/// to change first.
fn kept_silent(claim: ClaimView) -> bool {
    match claim.answer {
        Answer::Unanswered => true,
        Answer::Waiting(reason) => reason.is_some_and(|reason| reason.retry() == Retry::Later),
        Answer::Pulling | Answer::Succeeded | Answer::Failed(_) => false,
    }
}

fn active() -> Place {
    Place {
        tally: Tally::Active,
        slot: true,
        ..Place::default()
    }
}

/// Unable to take part: waited for until the limit, failed from then on.
fn waiting(reason: Reason, limit: Timestamp, now: Timestamp) -> Place {
    if limit <= now {
        return Place {
            tally: Tally::Failed(reason),
            gives_up: true,
            ..Place::default()
        };
    }
    Place {
        tally: Tally::Waiting(Some(reason)),
        wake: Some(limit),
        ..Place::default()
    }
}

#[cfg(test)]
mod tests;
