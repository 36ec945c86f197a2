//! The nodes that the controller knows: the facts of each Node, its NodeImage, the orders on their way to it, and the one
//! write of the NodeImage that may be in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ObjectMeta;
use larder_api::NodeImage;
use larder_api::names::FAKE_NODE_IMAGE_LABEL;
use larder_planner::agent_nodes::{AgentNodes, NoAgent};
use larder_planner::dialect::{Candidate, Fleet};
use larder_planner::node_spec::Order;
use larder_planner::occupancy::Occupancy;
use larder_planner::retention::HandWrittenEnds;
use larder_planner::{NodeKey, SecretRef};

use super::compressed_node_image::CompressedNodeImage;
use super::credentials::hand_written_secrets;
use super::node_writes::{NodeWrite, WriteState};
use super::strip::{forget_needless, forget_texts};
use super::{JobId, revision};
use crate::facts::NodeFacts;

/// NodeImages that stay decompressed: those that something happened to last.
const DECOMPRESSED: usize = 256;

/// Uids of NodeImages that are remembered after the objects are gone: as many as writes may be in flight, and more.
const GONE: usize = 256;

/// What is known of one node.
#[derive(Default)]
pub(super) struct NodeRecord {
    pub(super) facts: Option<NodeFacts>,
    /// Why the Node has no agent, if it has none.
    pub(super) no_agent: Option<NoAgent>,
    pub(super) image: CompressedNodeImage,
    /// The NodeImage came back from a write of ours: the watch may still be behind it.
    ahead_of_watch: bool,
    /// Running jobs that select this node.
    pub(super) jobs: BTreeSet<JobId>,
    pub(super) orders: BTreeMap<JobId, Order>,
    pub(super) write: WriteState,
    /// Size of the NodeImage as JSON.
    pub(super) bytes: usize,
    /// Writes of the NodeImage's status that the watch has shown.
    pub(super) status_writes: u32,
    /// Who occupies a NodeImage that is crowded.
    pub(super) occupancy: Option<Box<Occupancy>>,
    /// When pulls of entries without owners were seen to have ended.
    pub(super) hand_written_ends: HandWrittenEnds,
    /// A hand-written entry was denied with the credentials it had; its Secrets are read again after this moment.
    pub(super) denied: Option<Timestamp>,
}

/// All nodes.
#[derive(Default)]
pub(super) struct Nodes {
    /// Boxed: the leaves of a tree are half empty, and a record is large.
    records: BTreeMap<NodeKey, Box<NodeRecord>>,
    /// How many of them have no agent.
    without_agent: usize,
    /// Nodes whose NodeImage is decompressed, in the order in which they were looked at.
    decompressed: VecDeque<NodeKey>,
    /// The uids of NodeImages that are gone, the latest last: the response to a write may still bring one back.
    gone: VecDeque<String>,
}

/// What an observation changed.
pub(super) enum NodeChange {
    /// Nothing that decisions look at.
    Nothing,
    /// Something that jobs which select the node want to know.
    Seen,
    /// Something that selections look at.
    Reselect,
}

impl NodeRecord {
    /// Whether Kubernetes has a node here, and not only something that looks like one.
    pub(super) fn has_node(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| !facts.is_virtual)
    }

    /// The NodeImage, unless it is being deleted.
    pub(super) fn living_image(&self) -> Option<&NodeImage> {
        self.living_metadata()?;
        self.image.as_ref()
    }

    /// Its metadata, without decompressing the rest.
    pub(super) fn living_metadata(&self) -> Option<&ObjectMeta> {
        let metadata = self.image.metadata();
        metadata.filter(|metadata| metadata.deletion_timestamp.is_none())
    }

    /// The Node, as a dialect looks at it; None where Kubernetes has none.
    pub(super) fn candidate(&self) -> Option<Candidate<'_>> {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        let facts = self.facts.as_ref()?;
        let of_image = || self.image.metadata()?.labels.as_ref();
        Some(Candidate {
            labels: facts.labels.as_ref().or_else(of_image).unwrap_or(&NO_LABELS),
            ready: facts.ready,
            no_agent: self.no_agent,
        })
    }

    fn measure(&mut self) {
        let image = self.image.as_ref();
        let bytes = self.image.bytes();
        let crowded = image.filter(|image| Occupancy::is_crowded(image, bytes));
        let occupancy = crowded.map(|image| Box::new(Occupancy::of(image, bytes)));
        (self.bytes, self.occupancy) = (bytes, occupancy);
    }

    /// A NodeImage for this node, or the deletion of one without a node; None if neither is due. Says nothing about its
    /// spec. A NodeImage whose node has lost its agent stays: somebody may have written entries into it.
    pub(super) fn lifecycle(&self, node: &NodeKey) -> Option<NodeWrite> {
        match (self.image.metadata(), self.has_node()) {
            (None, true) if self.no_agent.is_some() => None,
            (None, true) => {
                let mut object = NodeImage::new(node, larder_api::NodeImageSpec::default());
                object.metadata.labels = self.facts.as_ref().and_then(|facts| facts.labels.clone());
                Some(NodeWrite::Create(Box::new(object)))
            }
            (Some(metadata), false) => {
                let labels = metadata.labels.as_ref();
                let fake = labels.is_some_and(|labels| labels.contains_key(FAKE_NODE_IMAGE_LABEL));
                let deleting = metadata.deletion_timestamp.is_some();
                (!fake && !deleting).then(|| NodeWrite::Delete {
                    uid: metadata.uid.clone(),
                })
            }
            (Some(_), true) | (None, false) => None,
        }
    }

    /// Secrets that the hand-written entries name.
    pub(super) fn hand_written_secrets(&self) -> Vec<SecretRef> {
        let images = self
            .image
            .as_ref()
            .into_iter()
            .flat_map(|image| image.spec.images.values());
        let hand_written = images.filter(|image| image.tags.iter().any(|entry| entry.owner_references.is_empty()));
        hand_written.flat_map(hand_written_secrets).collect()
    }

    /// Keeps the Node's labels only while the NodeImage has others: a fleet's labels are much of what is known of it.
    fn share_labels(&mut self) {
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

impl Nodes {
    pub(super) fn get(&self, node: &str) -> Option<&NodeRecord> {
        self.records.get(node).map(|record| &**record)
    }

    pub(super) fn get_mut(&mut self, node: &str) -> Option<&mut NodeRecord> {
        self.records.get_mut(node).map(|record| &mut **record)
    }

    pub(super) fn records(&self) -> &BTreeMap<NodeKey, Box<NodeRecord>> {
        &self.records
    }

    /// How many nodes have an agent, or are to have one.
    pub(super) fn with_agent(&self) -> usize {
        self.records.len() - self.without_agent
    }

    pub(super) fn keys(&self) -> Vec<NodeKey> {
        self.records.keys().cloned().collect()
    }

    /// The NodeImage of a node, unless it is being deleted.
    pub(super) fn living_image(&self, node: &str) -> Option<&NodeImage> {
        self.get(node)?.living_image()
    }

    /// Nodes on which a job may have an entry. Rarely one on which it has none.
    pub(super) fn that_may_name(&self, uid: &str) -> Vec<NodeKey> {
        let named = self.records.iter().filter(|(_, record)| record.image.may_name(uid));
        named.map(|(node, _)| node.clone()).collect()
    }

    /// Takes in a Node. Its start-up taint keeps agents away that do not tolerate it, and no job: it leaves when jobs are done.
    pub(super) fn observe_node(
        &mut self,
        mut facts: NodeFacts,
        agents: &AgentNodes,
        start_up_taint: Option<&str>,
    ) -> (NodeKey, NodeChange) {
        static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();
        let node = NodeKey::from(facts.name.as_str());
        let labels = facts.labels.as_ref().unwrap_or(&NO_LABELS);
        let no_agent = if facts.is_virtual {
            Some(NoAgent::Virtual)
        } else {
            agents.without_agent(&node, labels, &facts.taints)
        };
        facts.taints.retain(|taint| Some(taint.key.as_str()) != start_up_taint);
        let record = self.records.entry(node.clone()).or_default();
        let moved = record.no_agent != no_agent;
        self.without_agent += usize::from(no_agent.is_some());
        self.without_agent -= usize::from(record.no_agent.is_some());
        record.no_agent = no_agent;
        let before = record.facts.replace(facts);
        record.share_labels();
        let after = record.facts.as_ref();
        let taints = |facts: Option<&NodeFacts>| facts.map(|facts| facts.taints.clone());
        let change = if before.as_ref() == after {
            NodeChange::Nothing
        } else if moved || taints(before.as_ref()) != taints(after) || record.image.is_none() {
            NodeChange::Reselect
        } else {
            NodeChange::Seen
        };
        (node, change)
    }

    /// Takes in a NodeImage, from the watch or from a write, and gives back the one before it. None if the object is older
    /// than what is known.
    pub(super) fn observe_image(
        &mut self,
        node: &NodeKey,
        mut object: NodeImage,
        from_write: bool,
        now: Timestamp,
    ) -> Option<(CompressedNodeImage, NodeChange)> {
        forget_needless(&mut object.metadata);
        let uid = object.metadata.uid.as_ref();
        if uid.is_some_and(|uid| self.gone.contains(uid)) {
            if from_write {
                return None;
            }
            self.gone.retain(|gone| Some(gone) != uid);
        }
        let record = self.records.entry(node.clone()).or_default();
        // The watch may be behind a write, and a write's response behind the watch: what is older is no news. Between two
        // events of the watch the order counts, for an API server that was restored begins again with small numbers.
        if let Some(known) = record.image.metadata()
            && (record.ahead_of_watch || from_write)
            && known.uid == object.metadata.uid
            && revision(&object.metadata) < revision(known)
        {
            return None;
        }
        // Only a write of the spec raises the generation, and our own writes come back by themselves.
        if let Some(known) = record.image.metadata()
            && !from_write
            && (&known.uid, known.generation) == (&object.metadata.uid, object.metadata.generation)
            && known.resource_version != object.metadata.resource_version
        {
            record.status_writes = record.status_writes.wrapping_add(1);
        }
        let relabelled = record.image.metadata().map(|known| &known.labels) != Some(&object.metadata.labels);
        let leaving = object.metadata.deletion_timestamp.is_some();
        if relabelled {
            record.unshare_labels();
        }
        let before = record.image.replace(object);
        record.share_labels();
        record.ahead_of_watch = from_write;
        record.measure();
        if let Some(object) = record.image.as_ref() {
            record.hand_written_ends.observe(object, now);
        }
        let change = if relabelled || leaving || before.is_none() {
            NodeChange::Reselect
        } else {
            NodeChange::Seen
        };
        Some((before, change))
    }

    /// Drops what nothing is decided by of a NodeImage's results: texts that no status quotes, digests and ids.
    pub(super) fn forget_texts(&mut self, node: &NodeKey, is_quoted: impl Fn(&ObjectReference) -> bool) {
        if let Some(record) = self.records.get_mut(node) {
            record.image.change_status(|object| forget_texts(object, is_quoted));
        }
    }

    /// The Node is gone. False if it was not known.
    pub(super) fn node_gone(&mut self, node: &NodeKey) -> bool {
        let Some(record) = self.records.get_mut(node) else {
            return false;
        };
        self.without_agent -= usize::from(record.no_agent.take().is_some());
        record.facts.take().is_some()
    }

    /// The NodeImage is gone. Gives it back.
    pub(super) fn image_gone(&mut self, node: &NodeKey) -> Option<CompressedNodeImage> {
        let record = self.records.get_mut(node)?;
        record.unshare_labels();
        record.ahead_of_watch = false;
        let gone = std::mem::take(&mut record.image);
        record.hand_written_ends = HandWrittenEnds::default();
        self.gone
            .extend(gone.metadata().and_then(|metadata| metadata.uid.clone()));
        if GONE < self.gone.len() {
            self.gone.pop_front();
        }
        Some(gone)
    }

    /// Forgets a node that has neither a Node nor a NodeImage.
    pub(super) fn remove(&mut self, node: &NodeKey) {
        let removed = self.records.remove(node);
        self.without_agent -= usize::from(removed.is_some_and(|record| record.no_agent.is_some()));
    }

    /// A job does not run any more.
    pub(super) fn forget_job(&mut self, job: JobId) {
        for record in self.records.values_mut() {
            record.jobs.remove(&job);
        }
    }

    /// Forgets what was asked for and what is in flight.
    pub(super) fn restart(&mut self) {
        for record in self.records.values_mut() {
            record.orders.clear();
            record.jobs.clear();
            record.write = WriteState::default();
            record.ahead_of_watch = false;
            // After the clock was set back, these moments would be in the future. The next list shows the results again.
            record.hand_written_ends = HandWrittenEnds::default();
        }
    }

    /// A node was looked at: its NodeImage is compressed when enough others were looked at after it.
    pub(super) fn compress_later(&mut self, node: &NodeKey) {
        self.decompressed.push_back(node.clone());
        while DECOMPRESSED < self.decompressed.len()
            && let Some(oldest) = self.decompressed.pop_front()
        {
            self.compress(&oldest);
        }
    }

    /// Compresses a node's NodeImage.
    pub(super) fn compress(&mut self, node: &NodeKey) {
        if let Some(record) = self.records.get_mut(node) {
            record.image.compress();
        }
    }
}

impl Fleet for Nodes {
    fn nodes(&self) -> BTreeMap<NodeKey, Candidate<'_>> {
        let known = self.records.iter();
        known
            .filter_map(|(node, record)| Some((node.clone(), record.candidate()?)))
            .collect()
    }

    fn claimed_by(&self, uid: &str) -> Vec<(NodeKey, &NodeImage)> {
        let claimed = |node: NodeKey| {
            let object = self.get(&node)?.image.as_ref()?;
            let mut entries = object.spec.images.values().flat_map(|image| &image.tags);
            let claimed = entries.any(|entry| entry.claim_version(uid).is_some());
            claimed.then_some((node, object))
        };
        self.that_may_name(uid).into_iter().filter_map(claimed).collect()
    }
}
