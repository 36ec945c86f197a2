//! Where one node stands, in words that both shapes are made of.

use jiff::Timestamp;
use larder_api::contract::Answer;
use larder_model::Reason;

use crate::finish::End;
use crate::kubeedge::nodes::Unfit;
use crate::kubeedge::texts::{
    Event, NOT_READY, NodePhase, PULLS_FAILED, State, TIMED_OUT, TURN_NEVER_CAME, no_such_node,
};
use crate::kubeedge::truncate_status::Details;
use crate::node::own_words;
use crate::node_state::Bucket;
use crate::report::{ImageReport, NodeReport};
use crate::task::{NodeTask, TaskImage};
use crate::view::NodeKey;

/// Failed images that a node's reason names; the others are counted.
const IMAGES_NAMED: usize = 3;

/// Where a node stands in the engine, and at the job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeStanding {
    Waiting(Option<Reason>),
    Active,
    Succeeded,
    Failed(Reason),
    /// The job ended while the node was at work.
    CutOff,
}

/// What a node that has the order says to it.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) task: &'a NodeTask,
    pub(super) report: &'a NodeReport,
    /// When the node is no longer waited for.
    pub(super) overdue_at: Option<Timestamp>,
    pub(super) details: Details,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: NodeKey,
    pub(super) phase: NodePhase,
    pub(super) state: State,
    pub(super) event: Event,
    /// Why it failed or waits, as it is counted.
    pub(super) why: Option<Reason>,
    /// Why it failed, as the word in its entry.
    pub(super) cause: Option<&'static str>,
    /// Why it failed or waits, as a text.
    pub(super) reason: Option<String>,
    pub(super) time: Option<Timestamp>,
    pub(super) check: Option<Action>,
    pub(super) pull: Option<Action>,
    pub(super) images: Vec<ImageLine>,
}

/// How an action on a node ended.
#[derive(Clone, Debug)]
pub(super) struct Action {
    /// Why it failed; none: it did not.
    pub(super) failure: Option<String>,
    pub(super) time: Option<Timestamp>,
}

/// How one image on one node ended.
#[derive(Clone, Debug)]
pub(super) struct ImageLine {
    pub(super) written: String,
    pub(super) resolved: Option<String>,
    /// Why it failed; none: it is there.
    pub(super) failure: Option<String>,
}

impl NodeStanding {
    pub(super) fn of(bucket: Bucket, end: Option<End>, waits_for_secrets: bool) -> Self {
        match (bucket, end) {
            (Bucket::Succeeded, _) => Self::Succeeded,
            (Bucket::Failed(reason), _) => Self::Failed(reason),
            (Bucket::Active, Some(_)) => Self::CutOff,
            (Bucket::Active, None) => Self::Active,
            // Whoever could not take part failed for its own reason; the others' turn did not come.
            (Bucket::Waiting(reason), Some(End::Deadline)) => Self::Failed(reason.unwrap_or(Reason::DeadlineExceeded)),
            (Bucket::Outside, Some(End::Deadline)) => Self::Failed(Reason::DeadlineExceeded),
            (Bucket::Waiting(None) | Bucket::Outside, _) if waits_for_secrets => {
                Self::Waiting(Some(Reason::SecretMissing))
            }
            (Bucket::Waiting(reason), _) => Self::Waiting(reason),
            (Bucket::Outside, _) => Self::Waiting(None),
        }
    }
}

impl Line {
    /// A node that failed before anything was tried.
    pub(super) fn unfit(name: &NodeKey, unfit: &Unfit, began: Timestamp) -> Self {
        Self {
            reason: Some(unfit.text(name)),
            why: Some(unfit.reason()),
            cause: Some(unfit.word()),
            time: Some(began),
            ..Self::at(name, NodePhase::Failure, State::Failed, Event::Init)
        }
    }

    pub(super) fn of(name: &NodeKey, standing: NodeStanding, work: Option<Work<'_>>) -> Self {
        let report = work.map(|work| work.report);
        let mut line = match standing {
            NodeStanding::Waiting(why) => Self {
                why,
                // Every node would say the same of a Secret; the job says it once.
                reason: why
                    .filter(|why| *why != Reason::SecretMissing)
                    .map(|why| text(why, name)),
                ..Self::at(name, NodePhase::Pending, State::Init, Event::Init)
            },
            NodeStanding::Active => Self::at(name, NodePhase::InProgress, State::Checking, Event::Init),
            NodeStanding::Succeeded => Self::at(name, NodePhase::Successful, State::Successful, Event::Pull),
            NodeStanding::CutOff => Self::silent(name, Reason::DeadlineExceeded),
            NodeStanding::Failed(Reason::Unresponsive) => Self::silent(name, Reason::Unresponsive),
            NodeStanding::Failed(why) => Self::failed(name, why, report),
        };
        let Some(work) = work.filter(|_| line.phase != NodePhase::Pending) else {
            return line;
        };
        let (task, report) = (work.task, work.report);
        let gathers = match line.phase {
            NodePhase::Successful => work.details.of_done_nodes,
            _ => work.details.of_others,
        };
        if gathers {
            line.images = task
                .images()
                .iter()
                .zip(&report.images)
                .filter_map(image_line)
                .collect();
        }
        line.check = check(report);
        line.pull = line.pull_action(task, report);
        if line.state == State::Checking && line.passed_checks() {
            (line.state, line.event) = (State::Pulling, Event::Check);
        }
        let action = line.pull.as_ref().or(line.check.as_ref());
        let said = action.and_then(|action| action.time);
        line.time = Some(match line.phase {
            NodePhase::Unknown => work.overdue_at.unwrap_or(report.handed_out),
            _ => said.unwrap_or(report.handed_out).max(report.handed_out),
        });
        line
    }

    /// Whether the node's checks let it through.
    pub(super) fn passed_checks(&self) -> bool {
        self.phase == NodePhase::Successful || self.check.as_ref().is_some_and(|check| check.failure.is_none())
    }

    fn at(name: &NodeKey, phase: NodePhase, state: State, event: Event) -> Self {
        Self {
            name: name.clone(),
            phase,
            state,
            event,
            why: None,
            cause: None,
            reason: None,
            time: None,
            check: None,
            pull: None,
            images: Vec::new(),
        }
    }

    /// A node that kept silent past its time.
    fn silent(name: &NodeKey, why: Reason) -> Self {
        Self {
            why: Some(why),
            cause: Some(why.as_str()),
            reason: Some(TIMED_OUT.to_owned()),
            ..Self::at(name, NodePhase::Unknown, State::Failed, Event::TimeOut)
        }
    }

    fn failed(name: &NodeKey, why: Reason, report: Option<&NodeReport>) -> Self {
        let (event, reason) = match report {
            _ if is_timeout(why) && report.is_none() => (Event::TimeOut, TURN_NEVER_CAME.to_owned()),
            None => (Event::Init, text(why, name)),
            Some(report) if failures(report).any(|(_, why)| is_timeout(why)) => (Event::TimeOut, TIMED_OUT.to_owned()),
            Some(report) if why == Reason::CheckFailed => {
                let check = check(report).and_then(|check| check.failure);
                (Event::Check, check.unwrap_or_else(|| text(why, name)))
            }
            Some(_) => (Event::Pull, PULLS_FAILED.to_owned()),
        };
        Self {
            why: Some(why),
            cause: Some(why.as_str()),
            reason: Some(reason),
            ..Self::at(name, NodePhase::Failure, State::Failed, event)
        }
    }

    /// The action `Pull`, once it is over. Puts the images that failed into the node's reason.
    fn pull_action(&mut self, task: &NodeTask, report: &NodeReport) -> Option<Action> {
        let time = report.images.iter().filter_map(|image| image.ended).max();
        match self.phase {
            NodePhase::Successful => Some(Action { failure: None, time }),
            NodePhase::Failure if self.event == Event::Pull || self.event == Event::TimeOut => {
                let failure = self.reason.clone();
                if self.event == Event::Pull {
                    self.reason = Some(format!("{PULLS_FAILED}: {}", failed_images(task, report)));
                }
                Some(Action { failure, time })
            }
            NodePhase::Failure | NodePhase::Pending | NodePhase::InProgress | NodePhase::Unknown => None,
        }
    }
}

/// `nginx:1 (NotFound), app:2 (Dns), and 3 more`.
fn failed_images(task: &NodeTask, report: &NodeReport) -> String {
    let images = task.images().iter().zip(&report.images);
    let failed: Vec<(&str, Reason)> = images
        .filter_map(|(image, said)| said.failure().map(|why| (image.written.as_str(), why)))
        .collect();
    let named = failed.iter().take(IMAGES_NAMED);
    let mut parts: Vec<String> = named.map(|(image, why)| format!("{image} ({why})")).collect();
    let more = failed.len().saturating_sub(IMAGES_NAMED);
    parts.extend((0 < more).then(|| format!("and {more} more")));
    parts.join(", ")
}

fn failures(report: &NodeReport) -> impl Iterator<Item = (&ImageReport, Reason)> {
    report
        .images
        .iter()
        .filter_map(|image| image.failure().map(|why| (image, why)))
}

fn is_timeout(why: Reason) -> bool {
    matches!(why, Reason::Timeout | Reason::DeadlineExceeded)
}

/// The action `Check`, once it is over: the first check that said no, or that one of the images got through.
fn check(report: &NodeReport) -> Option<Action> {
    let refused = failures(report).find(|(_, why)| *why == Reason::CheckFailed);
    if let Some((image, why)) = refused {
        let words = image.message.as_deref().map(|message| own_words(message, Some(why)));
        let words = words.filter(|words| !words.is_empty()).unwrap_or(why.advice());
        return Some(Action {
            failure: Some(words.to_owned()),
            time: image.ended,
        });
    }
    let passed = || report.images.iter().filter(|image| image.passed_checks());
    let time = passed().filter_map(|image| image.started.or(image.ended)).min();
    passed().next().map(|_| Action { failure: None, time })
}

fn image_line((image, report): (&TaskImage, &ImageReport)) -> Option<ImageLine> {
    let there = report.answer == Answer::Succeeded;
    if !there && report.failure().is_none() {
        return None;
    }
    let message = || report.message.clone().filter(|message| !message.is_empty());
    Some(ImageLine {
        written: image.written.clone(),
        resolved: image.is_rewritten().then(|| image.image.familiar()),
        failure: report
            .failure()
            .map(|why| message().unwrap_or_else(|| why.advice().to_owned())),
    })
}

/// A reason that is the whole node's.
fn text(why: Reason, node: &str) -> String {
    match why {
        Reason::NodeNotReady => NOT_READY.to_owned(),
        Reason::NodeUnsuitable => no_such_node(node),
        _ => why.advice().to_owned(),
    }
}
