//! One node: the facts of its Node, its NodeImage, the orders on their way to it, and the one write that may be under way.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use kube::core::ObjectMeta;
use larder_api::NodeImage;
use larder_api::contract::{IMAGE_NAMES_MAX, NODE_IMAGE_BYTES_MAX};
use larder_api::names::FAKE_NODE_IMAGE_LABEL;
use larder_model::Reason;
use larder_planner::NodeKey;
use larder_planner::progress::Outcome;
use serde_json::Value;
use tracing::warn;

use super::shelf::Shelf;
use super::thrift::{forget_needless, forget_words};
use super::{Index, JobId};
use crate::facts::NodeFacts;
use crate::merge::json_bytes;

/// A write whose outcome is unknown is looked into after this long, then after twice as long, …
const FIRST_LOOK: SignedDuration = SignedDuration::from_millis(500);

/// … but at least this often.
const LONGEST_LOOK: SignedDuration = SignedDuration::from_secs(15);

/// A patch that the API server refuses is made anew after this long.
const AFTER_REFUSAL: SignedDuration = SignedDuration::from_secs(30);

/// Room that one more entry with its result may take.
const ENTRY_BYTES: usize = 4 * 1_024;

/// Nodes that are looked at in search of one that is to be written. After a list everybody is looked at, and most need
/// nothing: others must not wait for that.
const LOOKS: usize = 128;

/// What is known of one node.
#[derive(Default)]
pub(super) struct NodeRecord {
    pub(super) facts: Option<NodeFacts>,
    pub(super) image: Shelf,
    /// The NodeImage came back from a write of ours: the watch may still be behind it.
    pub(super) ahead_of_watch: bool,
    /// Running jobs that select this node.
    pub(super) jobs: BTreeSet<JobId>,
    pub(super) orders: BTreeMap<JobId, Order>,
    pub(super) write: Write,
    pub(super) full_since: Option<Timestamp>,
    /// Bytes of the NodeImage.
    pub(super) bytes: usize,
    /// A hand-written entry was denied with the credentials it had; its Secrets are read again after this moment.
    pub(super) denied: Option<Timestamp>,
}

/// A step of a campaign that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Claim the image; the job's claim had this version before.
    Claim {
        before: Option<i64>,
    },
    Withdraw,
}

/// The one write of a NodeImage.
#[derive(Debug, Default)]
pub(super) enum Write {
    #[default]
    None,
    UnderWay(Sent),
    /// The outcome is not known: the object is read at this moment.
    Unsure {
        sent: Sent,
        tries: u32,
        look_at: Timestamp,
    },
}

/// What a write was made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) jobs: Vec<JobId>,
    /// Generation that the write was based on.
    pub(super) generation: Option<i64>,
    /// What the API server said against it.
    pub(super) refusal: Option<String>,
    tries: u32,
}

/// What to do with a NodeImage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeAction {
    Create(Box<NodeImage>),
    Delete {
        uid: Option<String>,
    },
    /// A JSON patch.
    Patch(Value),
    /// Read it, to learn what became of a write.
    Look,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum NodeAnswer {
    /// The object as it is now.
    Object(Box<NodeImage>),
    /// There is none.
    Absent,
    /// The API server said no.
    Refused(String),
    /// Nobody knows.
    Unknown,
}

impl NodeRecord {
    /// Whether Kubernetes has a node here that can pull.
    pub(super) fn has_node(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.is_virtual)
    }

    pub(super) fn taints(&self) -> &[Taint] {
        self.facts.as_ref().map_or(&[], |facts| &facts.taints)
    }

    /// The NodeImage, unless it is being deleted.
    pub(super) fn living_image(&self) -> Option<&NodeImage> {
        self.living_metadata()?;
        self.image.as_ref()
    }

    /// Its metadata, without unfolding the rest.
    pub(super) fn living_metadata(&self) -> Option<&ObjectMeta> {
        self.image
            .metadata()
            .filter(|metadata| metadata.deletion_timestamp.is_none())
    }

    /// Whether entries with these names and tags have room, as far as they are not there.
    pub(super) fn has_room_for<'a>(&self, entries: impl IntoIterator<Item = (&'a str, String)>) -> bool {
        let Some(image) = self.image.as_ref() else {
            return false;
        };
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut bytes = self.bytes;
        for (name, tag) in entries {
            if image.entry(name, &tag).is_none() {
                bytes += ENTRY_BYTES;
                names.insert(name);
            }
        }
        if bytes == self.bytes {
            return true;
        }
        names.retain(|name| !image.spec.images.contains_key(*name));
        image.spec.images.len() + names.len() <= IMAGE_NAMES_MAX && bytes <= NODE_IMAGE_BYTES_MAX
    }

    /// Forgets what was asked for and what is under way.
    pub(super) fn forget_orders(&mut self) {
        self.orders.clear();
        self.jobs.clear();
        self.write = Write::None;
        self.ahead_of_watch = false;
    }

    fn measure(&mut self, now: Timestamp) {
        self.bytes = self.image.as_ref().map_or(0, json_bytes);
        let crowded = self
            .image
            .as_ref()
            .is_some_and(|image| IMAGE_NAMES_MAX <= image.spec.images.len())
            || NODE_IMAGE_BYTES_MAX < self.bytes + ENTRY_BYTES;
        self.full_since = crowded.then(|| self.full_since.unwrap_or(now));
    }

    /// A NodeImage for this node, or changes to the one that is there; nothing if all is as it should be. Says nothing
    /// about its spec.
    fn lifecycle(&self, node: &NodeKey) -> Option<NodeAction> {
        match (self.image.metadata(), self.has_node()) {
            (None, true) => {
                let mut object = NodeImage::new(node, larder_api::NodeImageSpec::default());
                object.metadata.labels = self.facts.as_ref().and_then(|facts| facts.labels.clone());
                Some(NodeAction::Create(Box::new(object)))
            }
            (Some(metadata), false) => {
                let fake = metadata
                    .labels
                    .as_ref()
                    .is_some_and(|labels| labels.contains_key(FAKE_NODE_IMAGE_LABEL));
                let deleting = metadata.deletion_timestamp.is_some();
                (!fake && !deleting).then(|| NodeAction::Delete {
                    uid: metadata.uid.clone(),
                })
            }
            (Some(_), true) | (None, false) => None,
        }
    }

    /// Keeps the Node's labels only while the NodeImage has others: a fleet's labels are much of what is known of it.
    pub(super) fn share_labels(&mut self) {
        let (Some(facts), Some(metadata)) = (&mut self.facts, self.image.metadata()) else {
            return;
        };
        if facts.labels.is_some() && facts.labels == metadata.labels {
            facts.labels = None;
        }
    }

    /// Takes the Node's labels back from a NodeImage that is about to change or go.
    fn unshare_labels(&mut self) {
        if let (Some(facts), Some(metadata)) = (&mut self.facts, self.image.metadata())
            && facts.labels.is_none()
        {
            facts.labels = Some(metadata.labels.clone().unwrap_or_default());
        }
    }

    /// The labels that the NodeImage should have, if it has others: those of the Node.
    pub(super) fn labels_to_write(&self) -> Option<BTreeMap<String, String>> {
        let mut wanted = self.facts.as_ref()?.labels.clone()?;
        let now = self.image.metadata()?.labels.clone().unwrap_or_default();
        let fake = now.get_key_value(FAKE_NODE_IMAGE_LABEL);
        wanted.extend(fake.map(|(key, value)| (key.clone(), value.clone())));
        (wanted != now).then_some(wanted)
    }
}

impl Index {
    /// The next NodeImage to write, and how. None also if none was found among many: ask again in a while.
    pub(crate) fn next_node_write(&mut self, now: Timestamp) -> Option<(NodeKey, NodeAction)> {
        if !self.is_complete() {
            return None;
        }
        for _ in 0..LOOKS {
            let node = self.agenda.next_node()?;
            if let Some(action) = self.node_action(&node, now) {
                return Some((node, action));
            }
        }
        None
    }

    fn node_action(&mut self, node: &NodeKey, now: Timestamp) -> Option<NodeAction> {
        let record = self.nodes.get_mut(node)?;
        match &mut record.write {
            Write::UnderWay(_) => return None,
            Write::Unsure { look_at, .. } if now < *look_at => {
                let look_at = *look_at;
                self.agenda.node_later(node, Some(look_at));
                return None;
            }
            Write::Unsure { sent, tries, .. } => {
                let sent = Sent {
                    tries: *tries,
                    ..std::mem::take(sent)
                };
                record.write = Write::UnderWay(sent);
                return Some(NodeAction::Look);
            }
            Write::None => {}
        }
        if let Some(action) = record.lifecycle(node) {
            record.write = Write::UnderWay(Sent::default());
            return Some(action);
        }
        if record.image.is_none() {
            self.nodes.remove(node);
            return None;
        }
        let written = self.spec_to_write(node, now);
        self.fold_later(node);
        let (patch, sent) = written?;
        self.nodes.get_mut(node)?.write = Write::UnderWay(sent);
        Some(NodeAction::Patch(patch))
    }

    /// Takes in how a write of a NodeImage ended.
    pub(crate) fn node_written(&mut self, node: &NodeKey, answer: NodeAnswer, now: Timestamp) {
        let Some(record) = self.nodes.get_mut(node) else {
            return;
        };
        let Write::UnderWay(mut sent) = std::mem::take(&mut record.write) else {
            return;
        };
        match answer {
            NodeAnswer::Object(object) => {
                let generation = object.metadata.generation;
                self.take_in_image(node, *object, true, now);
                self.review(node, &sent, generation, now);
            }
            NodeAnswer::Absent => {
                self.image_gone(node, now);
                self.settle(node, &sent.jobs, Outcome::Refused(Reason::NodeUnsuitable), now);
            }
            NodeAnswer::Refused(message) => {
                sent.refusal = Some(message);
                record.write = Write::Unsure {
                    tries: sent.tries,
                    sent,
                    look_at: now,
                };
            }
            NodeAnswer::Unknown => {
                let tries = sent.tries + 1;
                let pause = FIRST_LOOK.saturating_mul(1 << tries.min(6)).min(LONGEST_LOOK);
                record.write = Write::Unsure {
                    sent,
                    tries,
                    look_at: now.checked_add(pause).unwrap_or(now),
                };
            }
        }
        self.agenda.node(node);
    }

    /// Settles what a write was made of, by what the object says now.
    fn review(&mut self, node: &NodeKey, sent: &Sent, generation: Option<i64>, now: Timestamp) {
        let (done, open): (Vec<JobId>, Vec<JobId>) = sent
            .jobs
            .iter()
            .copied()
            .partition(|job| self.is_carried_out(node, *job));
        self.settle(node, &done, Outcome::Done, now);
        // Somebody else wrote in between: the orders are written again on top of that.
        if generation == sent.generation
            && let Some(refusal) = &sent.refusal
        {
            warn!(node = &**node, refusal, "the API server refuses a NodeImage");
            self.settle(node, &open, Outcome::Refused(Reason::Internal), now);
            // The same patch would be refused again.
            if let Some(record) = self.nodes.get_mut(node) {
                record.write = Write::Unsure {
                    sent: Sent::default(),
                    tries: 0,
                    look_at: now.checked_add(AFTER_REFUSAL).unwrap_or(now),
                };
            }
        }
    }

    /// Tells jobs how their orders ended, and forgets the orders.
    pub(super) fn settle(&mut self, node: &NodeKey, jobs: &[JobId], outcome: Outcome, now: Timestamp) {
        for job in jobs {
            if let Some(record) = self.nodes.get_mut(node) {
                record.orders.remove(job);
            }
            if let Some(running) = self.running_mut(*job) {
                running.progress.settle(node, outcome, now);
                self.agenda.job(*job);
            }
        }
    }

    /// Takes in a NodeImage, from the watch or from a write.
    pub(super) fn take_in_image(&mut self, node: &NodeKey, mut object: NodeImage, from_write: bool, now: Timestamp) {
        forget_needless(&mut object.metadata);
        let record = self.nodes.entry(node.clone()).or_default();
        // The watch may be behind a write, and a write's answer behind the watch: what is older is no news. Between two
        // events of the watch the order counts, for an API server that was restored begins again with small numbers.
        if let Some(known) = record.image.metadata()
            && (record.ahead_of_watch || from_write)
            && known.uid == object.metadata.uid
            && revision(&object.metadata) < revision(known)
        {
            return;
        }
        let relabelled = record.image.metadata().map(|known| &known.labels) != Some(&object.metadata.labels);
        let leaving = object.metadata.deletion_timestamp.is_some();
        if relabelled {
            record.unshare_labels();
        }
        let before = record.image.replace(object);
        record.share_labels();
        record.ahead_of_watch = from_write;
        record.measure(now);
        self.note_results(node, before.as_ref(), now);
        if let Some(record) = self.nodes.get_mut(node) {
            record.image.change(forget_words);
        }
        if relabelled || leaving || before.is_none() {
            self.reselect_node(node, now);
        } else {
            self.touch_node(node, now);
        }
        self.show_loss(node, before.as_ref(), now);
        self.agenda.node(node);
        self.fold_later(node);
    }

    /// The NodeImage is gone.
    pub(super) fn image_gone(&mut self, node: &NodeKey, now: Timestamp) {
        if let Some(record) = self.nodes.get_mut(node) {
            record.unshare_labels();
            let before = record.image.take();
            record.ahead_of_watch = false;
            self.reselect_node(node, now);
            self.show_loss(node, before.as_ref(), now);
            self.agenda.node(node);
        }
    }
}

/// A resource version as a number; zero where it is none.
fn revision(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
