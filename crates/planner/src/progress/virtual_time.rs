//! Whole campaigns in virtual time: a fleet of nodes that answer after so many seconds, and no clock but a number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use jiff::{SignedDuration, Timestamp};
use larder_api::contract::Answer;
use larder_model::Reason;
use rstest::rstest;

use super::{OrderResult, Progress, Step};
use crate::campaign::Campaign;
use crate::finish::End;
use crate::view::samples::{able, at, blocked, campaign, node, ordered};
use crate::view::{NodeKey, NodeView};

/// A write and the watch event that follows it.
const WRITE: SignedDuration = SignedDuration::from_millis(4);

/// From the order to the agent's first word.
const TAKE_UP: SignedDuration = SignedDuration::from_millis(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// Pulls for this many seconds.
    Alive(i64),
    /// Kubernetes knows that it is away.
    Away,
    /// Its agent answered once and is gone; Kubernetes takes the node for ready.
    Mute,
}

struct Fleet {
    progress: Progress,
    nodes: BTreeMap<NodeKey, Node>,
    /// What happens when, in order.
    agenda: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: BTreeMap<u64, Event>,
    serial: u64,
    pulls: usize,
    most_at_once: usize,
    at_once: usize,
}

#[derive(Clone)]
enum Event {
    Written(NodeKey),
    TakenBack(NodeKey),
    Says(NodeKey, Timestamp, Answer),
}

struct Outcomes {
    end: End,
    seconds: i64,
    pulls: usize,
    most_at_once: usize,
    progress: Progress,
}

impl Fleet {
    fn new(campaign: Campaign, nodes: impl IntoIterator<Item = Node>) -> Self {
        let nodes: BTreeMap<NodeKey, Node> = nodes.into_iter().enumerate().map(|(i, kind)| (node(i), kind)).collect();
        let mut progress = Progress::new(campaign, at(0));
        for (name, kind) in &nodes {
            progress.node_changed(name, at_rest(*kind), at(0));
        }
        Self {
            progress,
            nodes,
            agenda: BinaryHeap::new(),
            events: BTreeMap::new(),
            serial: 0,
            pulls: 0,
            most_at_once: 0,
            at_once: 0,
        }
    }

    fn later(&mut self, moment: Timestamp, event: Event) {
        self.serial += 1;
        self.agenda.push(Reverse((moment, self.serial)));
        self.events.insert(self.serial, event);
    }

    fn run(mut self) -> Outcomes {
        let mut now = at(0);
        loop {
            for step in self.progress.decide(usize::MAX, now) {
                let event = match step {
                    Step::HandOut(name) => Event::Written(name),
                    Step::Withdraw(name) => Event::TakenBack(name),
                };
                self.later(now + WRITE, event);
            }
            if let Some(end) = self.progress.end(now) {
                return Outcomes {
                    end,
                    seconds: now.duration_since(at(0)).as_secs(),
                    pulls: self.pulls,
                    most_at_once: self.most_at_once,
                    progress: self.progress,
                };
            }
            let event = self.agenda.peek().map(|Reverse((moment, _))| *moment);
            let wake = self.progress.next_wake();
            now = [event, wake]
                .into_iter()
                .flatten()
                .min()
                .expect("something happens until the end")
                .max(now);
            while let Some(Reverse((moment, serial))) = self.agenda.peek().copied()
                && moment <= now
            {
                self.agenda.pop();
                let event = self.events.remove(&serial).unwrap();
                self.happens(event, now);
            }
        }
    }

    fn happens(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Written(name) => {
                self.at_once += 1;
                self.most_at_once = self.most_at_once.max(self.at_once);
                self.progress.node_changed(&name, ordered(now, Answer::Unanswered), now);
                self.progress.settle(&name, OrderResult::Done, now);
                if let Node::Alive(seconds) = self.nodes[&name] {
                    self.pulls += 1;
                    self.later(now + TAKE_UP, Event::Says(name.clone(), now, Answer::Pulling));
                    let end = now + SignedDuration::from_secs(seconds);
                    self.later(end, Event::Says(name, now, Answer::Succeeded));
                }
            }
            Event::TakenBack(name) => {
                self.at_once -= 1;
                self.progress.node_changed(&name, at_rest(self.nodes[&name]), now);
                self.progress.settle(&name, OrderResult::Done, now);
            }
            Event::Says(name, handed_out, answer) => {
                self.at_once -= usize::from(answer == Answer::Succeeded);
                self.progress.node_changed(&name, ordered(handed_out, answer), now);
            }
        }
    }
}

fn at_rest(kind: Node) -> NodeView {
    match kind {
        Node::Alive(_) | Node::Mute => able(),
        Node::Away => blocked(Reason::NodeNotReady, at(0)),
    }
}

#[test]
fn five_thousand_nodes_ten_at_a_time_take_five_thousand_pulls_and_no_time_in_between() {
    let outcome = Fleet::new(campaign(10), vec![Node::Alive(5); 5_000]).run();
    assert_eq!(
        (outcome.end, outcome.pulls, outcome.most_at_once),
        (End::AllDone, 5_000, 10)
    );
    assert!((2_475..=2_525).contains(&outcome.seconds), "{} s", outcome.seconds);
    assert_eq!(outcome.progress.counts().succeeded, 5_000);
}

#[test]
fn a_long_job_ends_although_its_first_nodes_are_long_done() {
    let outcome = Fleet::new(campaign(2), vec![Node::Alive(5); 1_500]).run();
    assert_eq!((outcome.end, outcome.pulls), (End::AllDone, 1_500));
    assert!((3_712..=3_788).contains(&outcome.seconds), "{} s", outcome.seconds);
}

#[rstest]
#[case::away(Node::Away, 100)]
#[case::away_and_many(Node::Away, 300)]
fn dead_nodes_cost_the_living_nothing(#[case] dead: Node, #[case] count: usize) {
    let living = 200;
    let nodes = vec![dead; count].into_iter().chain(vec![Node::Alive(5); living]);
    // The dead are waited for until their response time; it is set to just after the living are done.
    let impatient = Campaign {
        response_time: SignedDuration::from_secs(102),
        ..campaign(10)
    };
    let outcome = Fleet::new(impatient, nodes).run();
    assert_eq!(outcome.progress.counts().succeeded, living);
    assert_eq!(outcome.progress.counts().failed, count);
    assert_eq!(outcome.seconds, 102);
}

#[test]
fn mute_nodes_give_their_slots_back_and_fail_in_the_end() {
    let nodes = vec![Node::Mute; 10].into_iter().chain(vec![Node::Alive(5); 190]);
    let outcome = Fleet::new(campaign(10), nodes).run();
    let counts = outcome.progress.counts();
    assert_eq!((counts.succeeded, counts.failed), (190, 10));
    assert_eq!(counts.reasons, [(Reason::Unresponsive, 10)].into());
    assert!(outcome.most_at_once <= 10);
    assert!(outcome.seconds < 700, "{} s", outcome.seconds);
}
