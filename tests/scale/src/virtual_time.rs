//! A large campaign without any clock: the planner, nodes that answer after so many seconds, and nothing else.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::contract::Answer;
use larder_model::ImageRef;
use larder_planner::campaign::{Campaign, Ending, PullRules, RESPONSE_TIME, SecretScope};
use larder_planner::progress::OrderResult;
use larder_planner::select::Selection;
use larder_planner::task::{NodeTask, TaskImage, Tasks};
use larder_planner::windows::Windows;
use larder_planner::{ClaimView, NodeKey, NodeView, Progress, Step};

use crate::hollow::name_of;

/// A write and the watch event that follows it.
const WRITE: SignedDuration = SignedDuration::from_millis(10);

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Campaigned {
    /// Pulls on all nodes together.
    pub pulls: usize,
    /// The most there were at once.
    pub most_at_once: usize,
    /// Seconds of virtual time until the job was over.
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Written(NodeKey),
    Pulled(NodeKey, Timestamp),
}

/// Runs one job on so many nodes, so many at once, with pulls of so many seconds.
pub fn run(nodes: usize, parallelism: usize, pull: SignedDuration) -> Campaigned {
    let start = Timestamp::UNIX_EPOCH;
    let mut progress = Progress::new(campaign(parallelism), start);
    for number in 0..nodes {
        progress.node_changed(&name_of(number).into(), view(None), start);
    }
    let mut agenda: BinaryHeap<Reverse<(Timestamp, Event)>> = BinaryHeap::new();
    let (mut now, mut pulls, mut at_once, mut most_at_once) = (start, 0, 0, 0);
    loop {
        for step in progress.decide(usize::MAX, now) {
            let Step::HandOut(node) = step else {
                panic!("nothing is taken back where everybody answers: {step:?}");
            };
            agenda.push(Reverse((now + WRITE, Event::Written(node))));
        }
        if progress.end(now).is_some() {
            return Campaigned {
                pulls,
                most_at_once,
                seconds: now.duration_since(start).as_secs_f64(),
            };
        }
        let Reverse((moment, event)) = agenda.pop().unwrap();
        now = moment;
        match event {
            Event::Written(node) => {
                pulls += 1;
                at_once += 1;
                most_at_once = most_at_once.max(at_once);
                progress.node_changed(&node, view(Some((now, Answer::Pulling))), now);
                progress.settle(&node, OrderResult::Done, now);
                agenda.push(Reverse((now + pull, Event::Pulled(node, now))));
            }
            Event::Pulled(node, handed_out) => {
                at_once -= 1;
                progress.node_changed(&node, view(Some((handed_out, Answer::Succeeded))), now);
            }
        }
    }
}

fn campaign(parallelism: usize) -> Campaign {
    let image = ImageRef::parse("registry.example/image:1").unwrap();
    let image = TaskImage::new(image, Vec::new());
    Campaign {
        owner: ObjectReference::default(),
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

fn view(claim: Option<(Timestamp, Answer)>) -> NodeView {
    let claim = claim.map(|(handed_out, answer)| ClaimView {
        handed_out,
        answer,
        ended: (answer == Answer::Succeeded).then_some(handed_out),
        bytes_total: None,
        bytes_done: None,
        again: false,
        loss: None,
    });
    NodeView {
        selected: true,
        claim,
        ..NodeView::default()
    }
}
