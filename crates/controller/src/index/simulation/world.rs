//! The API, the agents and the clock of the simulation.

mod prepulls;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroUsize;

use jiff::{SignedDuration, Timestamp};
use larder_api::names::EDGE_NODE_LABEL;
use larder_api::{ImagePrePullJob, ImagePullJob, NodeImage};
use larder_planner::NodeKey;
use larder_planner::order::claim_view;
use serde_json::{Value, json};

use super::start;
use crate::facts::NodeFacts;
use crate::index::{Index, JobKey, Kind, Limits, NodeAction, NodeAnswer, ObjectAction, ObjectAnswer, Seen, Target};

/// How bad the line is: shares in percent, times in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Carried out, but nobody hears of it.
    pub(super) lost_answers: u64,
    /// Never arrived.
    pub(super) lost_requests: u64,
    /// Carried out after everybody gave up on it.
    pub(super) late_requests: u64,
    /// Somebody else changes the NodeImage just before.
    pub(super) foreign_writes: u64,
    /// Agents write about other things.
    pub(super) chatter: u64,
    /// The watch shows things up to this much later.
    pub(super) watch_delay: u64,
}

pub(super) struct World {
    index: Index,
    now: Timestamp,
    faults: Faults,
    random: u64,
    revision: u64,
    nodes: BTreeMap<NodeKey, NodeImage>,
    jobs: BTreeMap<JobKey, ImagePullJob>,
    prepulls: BTreeMap<JobKey, ImagePrePullJob>,
    agenda: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: BTreeMap<u64, Event>,
    serial: u64,
    /// When the watch of each object has shown its last event: events of one object never overtake each other.
    shown: BTreeMap<String, Timestamp>,
    /// Versions that each agent pulled.
    pulled: BTreeMap<NodeKey, Vec<(String, i64)>>,
    /// A node whose NodeImage the API server refuses to change.
    pub(super) refused: Option<NodeKey>,
    pub(super) spec_writes: usize,
    pub(super) refusals: usize,
    /// The most nodes at work for one job, and for all together.
    pub(super) most_at_once: usize,
    pub(super) most_together: usize,
}

enum Event {
    Show(Kind, Seen),
    NodeAnswer(NodeKey, NodeAnswer),
    ObjectAnswer(Target, ObjectAnswer),
    /// A patch that arrives late.
    Arrives(NodeKey, Value),
    /// An agent has the image.
    Pulled(NodeKey, String, String, i64),
}

impl World {
    pub(super) fn new(nodes: usize, seed: u64, faults: Faults) -> Self {
        let mut world = Self {
            index: Index::new(limits()),
            now: start(),
            faults,
            random: seed.max(1),
            revision: 1,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            prepulls: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            events: BTreeMap::new(),
            serial: 0,
            shown: BTreeMap::new(),
            pulled: BTreeMap::new(),
            refused: None,
            spec_writes: 0,
            refusals: 0,
            most_at_once: 0,
            most_together: 0,
        };
        for number in 0..nodes {
            let name = format!("node-{number:03}");
            let object = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
                "metadata": {"name": name, "uid": format!("uid-{number}"), "generation": 1, "resourceVersion": "1", "labels": labels()},
                "spec": {}, "status": {"desired": 0},
            });
            world
                .nodes
                .insert(NodeKey::from(name), serde_json::from_value(object).unwrap());
        }
        world.list_everything();
        world
    }

    fn list_everything(&mut self) {
        let now = self.now;
        for kind in Kind::CLUSTER_WIDE {
            self.index.observe(&kind, Seen::Begin, now);
            let seen: Vec<Seen> = match kind {
                Kind::Node => self.nodes.keys().map(|node| Seen::Node(facts(node))).collect(),
                Kind::NodeImage => self
                    .nodes
                    .values()
                    .map(|object| Seen::NodeImage(Box::new(object.clone())))
                    .collect(),
                Kind::Job => self.jobs.values().map(|job| Seen::Job(Box::new(job.clone()))).collect(),
                Kind::PrePull => {
                    let jobs = self.prepulls.values();
                    jobs.map(|job| Seen::PrePull(Box::new(job.clone()))).collect()
                }
                Kind::List | Kind::Pods(_) => Vec::new(),
            };
            for seen in seen {
                self.index.observe(&kind, seen, now);
            }
            self.index.observe(&kind, Seen::Complete, now);
        }
    }

    /// Another replica takes over: it lists everything, and hears nothing of what the last one had under way, nor of what a
    /// watch from before that list would have shown.
    pub(super) fn change_leader(&mut self) {
        self.index = Index::new(self.index.limits.clone());
        self.events
            .retain(|_, event| matches!(event, Event::Pulled(..) | Event::Arrives(..)));
        // A lease expires only when the writes of its holder are over, late ones included.
        let late: Vec<u64> = self
            .events
            .iter()
            .filter(|(_, event)| matches!(event, Event::Arrives(..)))
            .map(|(serial, _)| *serial)
            .collect();
        for serial in late {
            if let Some(Event::Arrives(node, patch)) = self.events.remove(&serial) {
                self.apply(&node, &patch).ok();
            }
        }
        self.list_everything();
    }

    /// So many pulls at once in the whole fleet.
    pub(super) fn limit(&mut self, max: usize) {
        self.index.limits.max_active_pulls = NonZeroUsize::new(max);
    }

    pub(super) fn submit(&mut self, mut job: ImagePullJob) {
        job.metadata.resource_version = Some(self.next_revision());
        self.jobs.insert(JobKey::of(&job.metadata), job.clone());
        self.show(Kind::Job, Seen::Job(Box::new(job)), "job");
    }

    /// A number below `range`.
    fn draw(&mut self, range: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % range.max(1)
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    fn next_revision(&mut self) -> String {
        self.revision += 1;
        self.revision.to_string()
    }

    fn after(&mut self, milliseconds: u64, event: Event) {
        let pause = SignedDuration::from_millis(i64::try_from(milliseconds).unwrap());
        self.at(self.now + pause, event);
    }

    fn at(&mut self, moment: Timestamp, event: Event) {
        self.serial += 1;
        self.agenda.push(Reverse((moment, self.serial)));
        self.events.insert(self.serial, event);
    }

    /// The watch shows something, some time later.
    fn show(&mut self, kind: Kind, seen: Seen, key: &str) {
        let delay = 1 + self.draw(self.faults.watch_delay.max(1));
        let moment = self.now + SignedDuration::from_millis(i64::try_from(delay).unwrap());
        let moment = self.shown.get(key).map_or(moment, |last| moment.max(*last));
        self.shown.insert(key.to_owned(), moment);
        self.at(moment, Event::Show(kind, seen));
    }

    pub(super) fn run_until_over(&mut self, steps: usize) {
        for _ in 0..steps {
            let jobs_are_over = self.jobs.values().all(|job| {
                job.status
                    .as_ref()
                    .is_some_and(|status| status.completion_time.is_some())
            });
            if jobs_are_over && self.prepulls_are_over() {
                return;
            }
            self.step();
        }
        panic!(
            "never ends: {:?} {:?}",
            self.jobs.values().map(|job| &job.status).collect::<Vec<_>>(),
            self.prepulls.values().map(|job| &job.status).collect::<Vec<_>>()
        );
    }

    pub(super) fn run_steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    pub(super) fn run_for(&mut self, time: SignedDuration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Lets the index act, and the next thing happen.
    fn step(&mut self) {
        let now = self.now;
        if self.happens(self.faults.chatter) {
            self.chatter();
        }
        self.index.decide(now);
        while let Some((node, action)) = self.index.next_node_write(now) {
            self.node_request(node, action);
        }
        while let Some((target, action)) = self.index.next_object_write(now) {
            self.object_request(target, action);
        }
        while self.index.next_note().is_some() {}
        let event = self.agenda.peek().map(|Reverse((moment, _))| *moment);
        let wake = self.index.next_wake().map(|wake| wake.max(now));
        let idle = now + SignedDuration::from_secs(60);
        self.now = [event, wake, Some(idle)].into_iter().flatten().min().unwrap().max(now);
        while let Some(Reverse((moment, serial))) = self.agenda.peek().copied()
            && moment <= self.now
        {
            self.agenda.pop();
            if let Some(event) = self.events.remove(&serial) {
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Show(kind, seen) => self.index.observe(&kind, seen, now),
            Event::NodeAnswer(node, answer) => self.index.node_written(&node, answer, now),
            Event::ObjectAnswer(target, answer) => self.index.object_written(&target, answer, now),
            Event::Arrives(node, patch) => {
                self.apply(&node, &patch).ok();
            }
            Event::Pulled(node, image, tag, version) => self.pulled(&node, &image, &tag, version),
        }
    }

    fn node_request(&mut self, node: NodeKey, action: NodeAction) {
        let answer = match action {
            NodeAction::Look => NodeAnswer::Object(Box::new(self.nodes[&node].clone())),
            NodeAction::Patch(patch) => {
                if self.happens(self.faults.foreign_writes) {
                    self.foreign_write(&node);
                }
                if self.happens(self.faults.lost_requests) {
                    NodeAnswer::Unknown
                } else if self.happens(self.faults.late_requests) {
                    let late = 5_000 + self.draw(2_000);
                    self.after(late, Event::Arrives(node.clone(), patch));
                    NodeAnswer::Unknown
                } else {
                    let applied = self.apply(&node, &patch);
                    match applied {
                        Ok(_) if self.happens(self.faults.lost_answers) => NodeAnswer::Unknown,
                        Ok(object) => NodeAnswer::Object(Box::new(object)),
                        Err(refusal) => {
                            self.refusals += 1;
                            NodeAnswer::Refused(refusal)
                        }
                    }
                }
            }
            NodeAction::Create(_) | NodeAction::Delete { .. } => panic!("every node has its NodeImage"),
        };
        let pause = if matches!(answer, NodeAnswer::Unknown) {
            5_000
        } else {
            2
        };
        self.after(pause, Event::NodeAnswer(node, answer));
    }

    /// Somebody edits the NodeImage by hand: the generation moves on.
    fn foreign_write(&mut self, node: &NodeKey) {
        let mut object = self.nodes[node].clone();
        object.metadata.generation = object.metadata.generation.map(|generation| generation + 1);
        self.store(node, object);
    }

    /// Some agent writes its status, about something that is no business of ours.
    fn chatter(&mut self) {
        let count = u64::try_from(self.nodes.len()).unwrap();
        let chosen = usize::try_from(self.draw(count)).unwrap();
        let Some((node, object)) = self.nodes.iter().nth(chosen) else {
            return;
        };
        let (node, mut object) = (node.clone(), object.clone());
        object.status.get_or_insert_default().waiting += 1;
        self.store(&node, object);
    }

    fn apply(&mut self, node: &NodeKey, patch: &Value) -> Result<NodeImage, String> {
        if self.refused.as_ref() == Some(node) {
            return Err("that would be too much".to_owned());
        }
        let mut object = serde_json::to_value(&self.nodes[node]).unwrap();
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        json_patch::patch(&mut object, &patch).map_err(|error| error.to_string())?;
        let mut object: NodeImage = serde_json::from_value(object).unwrap();
        object.metadata.generation = object.metadata.generation.map(|generation| generation + 1);
        self.spec_writes += 1;
        self.store(node, object);
        let object = self.nodes[node].clone();
        self.agent_reads(node, &object);
        Ok(object)
    }

    fn store(&mut self, node: &NodeKey, mut object: NodeImage) {
        object.metadata.resource_version = Some(self.next_revision());
        self.nodes.insert(node.clone(), object.clone());
        self.show(Kind::NodeImage, Seen::NodeImage(Box::new(object)), node);
        self.look_at_the_whole();
    }

    /// How many nodes the API shows at work for one job, and for all together.
    fn look_at_the_whole(&mut self) {
        self.look_at_prepulls();
        let mut together = 0;
        for job in self.jobs.values() {
            let image = larder_model::ImageRef::parse(&job.spec.image).unwrap();
            let uid = job.metadata.uid.as_deref().unwrap();
            let at_work = self
                .nodes
                .values()
                .filter_map(|object| claim_view(object, &image, uid))
                .filter(|claim| !claim.is_final());
            let at_work = at_work.count();
            self.most_at_once = self.most_at_once.max(at_work);
            together += at_work;
        }
        self.most_together = self.most_together.max(together);
    }

    /// The agent takes up what is new, and has it some time later.
    fn agent_reads(&mut self, node: &NodeKey, object: &NodeImage) {
        for (image, spec) in &object.spec.images {
            for entry in &spec.tags {
                let name = format!("{image}:{}", entry.tag);
                let known = self.pulled.entry(node.clone()).or_default();
                if known.contains(&(name.clone(), entry.version)) {
                    continue;
                }
                known.push((name, entry.version));
                let time = 100 + self.draw(900);
                self.after(
                    time,
                    Event::Pulled(node.clone(), image.clone(), entry.tag.clone(), entry.version),
                );
            }
        }
    }

    fn pulled(&mut self, node: &NodeKey, image: &str, tag: &str, version: i64) {
        let mut object = self.nodes[node].clone();
        if object.entry(image, tag).is_none() {
            return;
        }
        let status = object.status.get_or_insert_default();
        let tags = &mut status.image_statuses.entry(image.to_owned()).or_default().tags;
        let result = json!({
            "tag": tag, "version": version, "phase": "Succeeded", "lastSucceeded": {"version": version},
            "completionTime": self.now.to_string(),
        });
        tags.retain(|known| known.tag != tag);
        tags.push(serde_json::from_value(result).unwrap());
        self.store(node, object);
    }

    fn object_request(&mut self, target: Target, action: ObjectAction) {
        let key = match &target {
            Target::Job(key) => key,
            Target::PrePull(key) => {
                let answer = self.prepull_request(key, action);
                return self.after(2, Event::ObjectAnswer(target, answer));
            }
            Target::List(_) => panic!("there are no lists"),
        };
        let answer = match action {
            ObjectAction::Status(patch) => {
                if self.happens(self.faults.lost_requests) {
                    ObjectAnswer::Failed("lost".into())
                } else {
                    let mut object = serde_json::to_value(&self.jobs[key]).unwrap();
                    json_patch::merge(&mut object, &patch);
                    let mut job: ImagePullJob = serde_json::from_value(object).unwrap();
                    job.metadata.resource_version = Some(self.next_revision());
                    self.jobs.insert(key.clone(), job.clone());
                    self.show(Kind::Job, Seen::Job(Box::new(job.clone())), "job");
                    ObjectAnswer::Job(Box::new(job))
                }
            }
            ObjectAction::Patch(_)
            | ObjectAction::Delete { .. }
            | ObjectAction::CreateChild(_)
            | ObjectAction::DeleteChild { .. } => {
                panic!("nobody asked for that")
            }
        };
        self.after(2, Event::ObjectAnswer(target, answer));
    }

    /// How often each node pulled.
    pub(super) fn pulls(&self) -> Vec<usize> {
        self.nodes
            .keys()
            .map(|node| self.pulled.get(node).map_or(0, Vec::len))
            .collect()
    }

    pub(super) fn status_of(&self, name: &str) -> larder_api::ImagePullJobStatus {
        let job = self
            .jobs
            .values()
            .find(|job| job.metadata.name.as_deref() == Some(name));
        job.and_then(|job| job.status.clone()).unwrap()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.nodes.values().all(|object| object.spec.images.is_empty())
    }
}

fn limits() -> Limits {
    Limits {
        max_active_pulls: None,
        pause: false,
        serve_jobs: true,
    }
}

fn labels() -> BTreeMap<String, String> {
    [(EDGE_NODE_LABEL.to_owned(), String::new())].into()
}

fn facts(node: &NodeKey) -> NodeFacts {
    NodeFacts {
        name: node.to_string(),
        labels: Some(labels()),
        ready: true,
        ..NodeFacts::default()
    }
}
