//! Keeps a status within its size, whatever the number of nodes. What is needed least goes first: details of images, the
//! v1alpha1 list, entries of nodes that are done, texts of reasons, the other entries. The names of nodes without an entry
//! stay, because they are the job's choice of nodes, which the next controller has to know; only where there is no room for
//! names alone, some go.

use std::collections::BTreeMap;
use std::io;

use larder_api::image_pre_pull_job::{ImagePrePullJobStatus, LegacyNodeStatus, NodeTaskStatus, OmittedNodes};
use serde::Serialize;

use super::recorded;
use super::texts::NodePhase;
use crate::dialect::status_number;

/// Bytes of a status as JSON. etcd takes 1.5 MB for the whole object, and every watcher is sent all of it with each change.
pub const BUDGET: usize = 800_000;

/// Room for what is said later: the conditions.
const RESERVED: usize = 4_096;

/// An image in both shapes takes at least this much: `{"image":"a","status":"True"},{"image":"a","state":"Failed"},`.
const IMAGE_BYTES_MIN: usize = 60;

const IMAGES: &str = "details of images";
const IMAGES_OF_DONE_NODES: &str = "details of images on nodes that are done";

/// Of which nodes details of images may fit at all. Others need not be gathered: of a large fleet they would be tens of
/// megabytes, made to be thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Details {
    pub(super) of_done_nodes: bool,
    pub(super) of_others: bool,
}

impl Details {
    /// For so many nodes that are done, others that have something to tell, and images on each.
    pub(super) fn that_may_fit(done: usize, others: usize, images: usize) -> Self {
        let fits = |nodes: usize| nodes.saturating_mul(images).saturating_mul(IMAGE_BYTES_MIN) <= BUDGET;
        Self {
            of_done_nodes: fits(done.saturating_add(others)),
            of_others: fits(others),
        }
    }

    fn left_out(self) -> Option<&'static str> {
        match (self.of_done_nodes, self.of_others) {
            (true, true) => None,
            (false, true) => Some(IMAGES_OF_DONE_NODES),
            (_, false) => Some(IMAGES),
        }
    }
}

/// What is left out, and how.
type Cut = (&'static str, fn(&mut ImagePrePullJobStatus));

/// Makes a status fit and says in a sentence what was left out; none if all of it fits.
pub(super) fn fit(status: &mut ImagePrePullJobStatus, gathered: Details, budget: usize) -> Option<String> {
    let room = budget.saturating_sub(RESERVED);
    let steps: [Cut; 7] = [
        (IMAGES_OF_DONE_NODES, images_of_done_nodes),
        (IMAGES, images),
        ("the v1alpha1 list of nodes", legacy),
        ("entries of nodes that are done", done_nodes),
        ("texts of reasons", texts),
        ("entries of nodes that are not done", unfinished_nodes),
        ("entries of nodes that failed", failed_nodes),
    ];
    let mut left_out: Vec<String> = gathered.left_out().into_iter().map(str::to_owned).collect();
    for (what, truncate_status) in steps {
        if fits(status, room) {
            break;
        }
        truncate_status(status);
        if what == IMAGES {
            // That says it all.
            left_out.clear();
        }
        if !left_out.iter().any(|said| said == what) {
            left_out.push(what.to_owned());
        }
    }
    let unnamed = cut_names(status, room);
    left_out.extend((0 < unnamed).then(|| format!("names of {unnamed} nodes")));
    (!left_out.is_empty()).then(|| format!("left out to keep this status small: {}", left_out.join(", ")))
}

fn phase(node: &NodeTaskStatus) -> Option<NodePhase> {
    recorded::phase(node.phase.as_deref())
}

fn is_done(node: &NodeTaskStatus) -> bool {
    phase(node) == Some(NodePhase::Successful)
}

fn is_failed(node: &NodeTaskStatus) -> bool {
    phase(node).is_some_and(NodePhase::is_failed)
}

fn images_of_done_nodes(status: &mut ImagePrePullJobStatus) {
    let nodes = status.node_status.iter_mut().filter(|node| is_done(node));
    nodes.for_each(|node| node.image_status.clear());
    for node in &mut status.status {
        let state = node.node_status.as_ref().and_then(|node| node.state.as_deref());
        if state == Some("Successful") {
            node.image_status.clear();
        }
    }
}

fn images(status: &mut ImagePrePullJobStatus) {
    status.node_status.iter_mut().for_each(|node| node.image_status.clear());
    status.status.iter_mut().for_each(|node| node.image_status.clear());
}

fn legacy(status: &mut ImagePrePullJobStatus) {
    status.status.clear();
}

/// Without its text an action says nothing that the node's phase does not.
fn texts(status: &mut ImagePrePullJobStatus) {
    for node in &mut status.node_status {
        node.reason = None;
        node.action_flow.clear();
    }
}

fn done_nodes(status: &mut ImagePrePullJobStatus) {
    omit(status, is_done);
}

fn unfinished_nodes(status: &mut ImagePrePullJobStatus) {
    omit(status, |node| !is_done(node) && !is_failed(node));
}

fn failed_nodes(status: &mut ImagePrePullJobStatus) {
    omit(status, is_failed);
}

/// Leaves of some nodes the name alone, with those of the same phase and cause.
fn omit(status: &mut ImagePrePullJobStatus, which: fn(&NodeTaskStatus) -> bool) {
    let mut groups: BTreeMap<(Option<String>, Option<String>), Vec<String>> = BTreeMap::new();
    for node in status.node_status.extract_if(.., |node| which(node)) {
        groups
            .entry((node.phase, node.cause))
            .or_default()
            .extend(node.node_name);
    }
    let group = |((phase, cause), nodes): ((_, _), Vec<String>)| OmittedNodes {
        phase,
        cause,
        count: status_number(nodes.len()),
        nodes,
    };
    status.omitted_nodes.extend(groups.into_iter().map(group));
}

/// Cuts the names where even they do not fit: twenty thousand names of 253 characters are five megabytes. Nodes that are
/// done go first, because they hold the job's claims, which tell of them; nodes that failed go last. Gives back how many
/// were cut.
fn cut_names(status: &mut ImagePrePullJobStatus, room: usize) -> usize {
    status
        .omitted_nodes
        .sort_by_key(|group| match recorded::phase(group.phase.as_deref()) {
            Some(NodePhase::Successful) => 0,
            Some(NodePhase::Pending | NodePhase::InProgress) | None => 1,
            Some(NodePhase::Failure | NodePhase::Unknown) => 2,
        });
    let mut cut = 0;
    for index in 0..status.omitted_nodes.len() {
        let mut over = size(status).saturating_sub(room);
        let names = status.omitted_nodes.get_mut(index).map(|group| &mut group.nodes);
        let Some(names) = names.filter(|_| 0 < over) else {
            break;
        };
        while 0 < over
            && let Some(name) = names.pop()
        {
            // With its quotes and the comma.
            over = over.saturating_sub(name.len() + 3);
            cut += 1;
        }
    }
    cut
}

/// Whether a status fits. One that is far too large is not measured to the last byte.
fn fits(status: &ImagePrePullJobStatus, room: usize) -> bool {
    at_least(status) <= room && size(status) <= room
}

/// Bytes of the longest texts in a status; as JSON it is larger than that.
fn at_least(status: &ImagePrePullJobStatus) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let node = |node: &NodeTaskStatus| {
        let images = node
            .image_status
            .iter()
            .map(|image| length(&image.image) + length(&image.reason));
        let actions = node.action_flow.iter().map(|action| length(&action.reason));
        length(&node.node_name) + length(&node.reason) + images.chain(actions).sum::<usize>()
    };
    let legacy = |node: &LegacyNodeStatus| {
        let images = node
            .image_status
            .iter()
            .map(|image| length(&image.image) + length(&image.reason));
        let reason = node.node_status.as_ref().map_or(0, |node| length(&node.reason));
        reason + images.sum::<usize>()
    };
    status.node_status.iter().map(node).sum::<usize>() + status.status.iter().map(legacy).sum::<usize>()
}

/// Bytes of a value as JSON.
fn size<T: Serialize>(value: &T) -> usize {
    struct Counter(usize);

    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // Our own types always serialise; if one ever did not, the status is taken for too large and shortened.
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX, |()| counter.0)
}

#[cfg(test)]
mod tests;
