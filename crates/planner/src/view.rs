//! What a campaign sees of one node: whether it is selected, what keeps it from taking part, what its NodeImage says.

use std::sync::Arc;

use jiff::Timestamp;
use larder_api::contract::Answer;
use larder_model::Reason;

use crate::occupancy::NoRoom;

/// A node's name, shared by everything that speaks of the node.
pub type NodeKey = Arc<str>;

/// One node, as one campaign sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Whether the campaign is for this node.
    pub selected: bool,
    /// What keeps it from taking part.
    pub block: Option<Block>,
    /// Why its NodeImage has no room for the campaign, where that is the block. Boxed, because it is rare.
    pub no_room: Option<Box<NoRoom>>,
    /// The node cannot take part because other software than Larder's agent serves its NodeImage, and the node needs a login.
    pub foreign_agent: bool,
    /// This campaign's claim in the node's NodeImage.
    pub claim: Option<ClaimView>,
    /// What the node's agent said last. Only whether it changes matters.
    pub heard: Heard,
    /// What the node reports cannot be read at the moment: it has no NodeImage, or the campaign has no task for it.
    pub unreadable: bool,
}

impl NodeView {
    /// A node that had succeeded before the campaign was taken up at `started`, and whose NodeImage is gone.
    pub fn succeeded_before(started: Timestamp) -> Self {
        Self {
            selected: true,
            claim: Some(ClaimView {
                handed_out: started,
                answer: Answer::Succeeded,
                ended: None,
                bytes_total: None,
                bytes_done: None,
                again: false,
                loss: None,
            }),
            unreadable: true,
            ..Self::default()
        }
    }
}

/// Signs of life of a node's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// When it last wrote, by its own clock, which may stand still.
    pub last_seen: Option<Timestamp>,
    /// Writes of the status that were seen.
    pub writes: u32,
}

/// Something that keeps a node from taking part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// What.
    pub reason: Reason,
    /// Since when, as far as can be told; the node fails when that is too long. None: it may wait for ever.
    pub since: Option<Timestamp>,
}

/// What a node's NodeImage says about one campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// When the order was written, by the controller's clock.
    pub handed_out: Timestamp,
    /// What the node says to it.
    pub answer: Answer,
    /// When that answer became final, by the node's clock.
    pub ended: Option<Timestamp>,
    /// Compressed size of the image, where the node tells.
    pub bytes_total: Option<i64>,
    /// Bytes of these that are there.
    pub bytes_done: Option<i64>,
    /// A failure that new credentials may undo: the order is given again.
    pub again: bool,
    /// Somebody removed the image after the node had it.
    pub loss: Option<Loss>,
}

/// What a node does about an image that it had, and that somebody else removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It pulls the image again.
    Pulling,
    /// It is about to, or waits for this reason.
    Waiting(Option<Reason>),
    /// It could not get the image again.
    Failed(Reason),
}

impl ClaimView {
    /// Whether the node has said its last word.
    pub fn is_final(&self) -> bool {
        match self.answer {
            Answer::Succeeded | Answer::Failed(_) => true,
            Answer::Unanswered | Answer::Waiting(_) | Answer::Pulling => false,
        }
    }
}

/// Ready-made values for the tests of this crate.
#[cfg(test)]
pub(crate) mod samples {
    use jiff::SignedDuration;
    use k8s_openapi::api::core::v1::ObjectReference;
    use larder_model::ImageRef;

    use super::*;
    use crate::campaign::{Campaign, Ending, PullRules, RESPONSE_TIME, SecretScope};
    use crate::select::Selection;
    use crate::task::{NodeTask, TaskImage, Tasks};
    use crate::windows::Windows;

    /// A job that asks for `nginx:1` on all nodes and ends when they are done.
    pub(crate) fn campaign(parallelism: usize) -> Campaign {
        let image = TaskImage::new(ImageRef::parse("nginx:1").unwrap(), Vec::new());
        Campaign {
            owner: ObjectReference {
                uid: Some("uid-1".into()),
                name: Some("job".into()),
                namespace: Some("default".into()),
                kind: Some("AnyKindOfJob".into()),
                api_version: Some("job.example.io/v1beta1".into()),
                ..ObjectReference::default()
            },
            tasks: Tasks::shared(NodeTask::new(vec![image], Vec::new())),
            selection: Selection::default(),
            parallelism,
            priority: 0,
            ending: Ending::Always {
                deadline: None,
                ttl: None,
            },
            rules: PullRules::default(),
            max_failures: None,
            failed_before: 0,
            secrets: Vec::new(),
            secret_scope: SecretScope::default(),
            response_time: RESPONSE_TIME,
            node_timeout: None,
            windows: Windows::default(),
            refresh: None,
            gates_nodes: false,
        }
    }

    /// `seconds` after the beginning of the tests' time.
    pub(crate) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_secs(seconds)
    }

    /// A selected node that can take part.
    pub(crate) fn able() -> NodeView {
        NodeView {
            selected: true,
            ..NodeView::default()
        }
    }

    /// A selected node that cannot take part.
    pub(crate) fn blocked(reason: Reason, since: Timestamp) -> NodeView {
        NodeView {
            block: Some(Block {
                reason,
                since: Some(since),
            }),
            ..able()
        }
    }

    /// A selected node that was given the order at a moment, and what it says to it.
    pub(crate) fn ordered(handed_out: Timestamp, answer: Answer) -> NodeView {
        let claim = ClaimView {
            handed_out,
            answer,
            ended: matches!(answer, Answer::Succeeded | Answer::Failed(_)).then_some(handed_out),
            bytes_total: None,
            bytes_done: None,
            again: false,
            loss: None,
        };
        NodeView {
            claim: Some(claim),
            ..able()
        }
    }

    /// A node's name.
    pub(crate) fn node(number: usize) -> NodeKey {
        format!("node-{number:05}").into()
    }
}
