//! One node's task: the images that a campaign asks of the node, in order, handed out together and judged together.
//!
//! A campaign counts nodes, not images. The claims of a task go into a NodeImage in one write ([`NodeTask::claim`]), and
//! what the node reports about all of them ([`NodeTask::report`]) becomes one [`ClaimView`](crate::ClaimView).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use larder_api::NodeImage;
use larder_api::contract::Answer;
use larder_api::node_image::NodeImageSpec;
use larder_model::ImageRef;

use crate::claim;
use crate::progress::Progress;
use crate::report::{ImageReport, NodeReport};
use crate::secret::SecretRef;
use crate::view::NodeKey;

/// One image of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskImage {
    /// The reference as the job writes it.
    pub written: String,
    /// The same reference, parsed.
    pub original: ImageRef,
    /// The reference that the node pulls. It differs from `original` where the job rewrites images per node.
    pub image: ImageRef,
    /// The Secrets whose credentials may be used for the pull; none means anonymously.
    pub secrets: Vec<SecretRef>,
}

/// What one node is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTask {
    images: Vec<TaskImage>,
    variant: Vec<usize>,
}

/// The tasks of a campaign's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tasks {
    shared: Option<Arc<NodeTask>>,
    own: BTreeMap<NodeKey, Arc<NodeTask>>,
}

impl TaskImage {
    /// An image that is pulled under the name that the job gives it.
    pub fn new(image: ImageRef, secrets: Vec<SecretRef>) -> Self {
        Self {
            written: image.familiar(),
            original: image.clone(),
            image,
            secrets,
        }
    }

    /// Whether the node pulls the image under another name than the job gives it.
    pub fn is_rewritten(&self) -> bool {
        self.image != self.original
    }

    /// The second name that a rewritten image gets on the node, so that pods find it: the one in the job.
    pub fn alias(&self) -> Option<String> {
        self.is_rewritten().then(|| self.original.canonical())
    }
}

impl Tasks {
    /// The same task for every node.
    pub fn shared(task: NodeTask) -> Self {
        Self {
            shared: Some(Arc::new(task)),
            own: BTreeMap::new(),
        }
    }

    /// The task of a node; None for a node that has none.
    pub fn of(&self, node: &str) -> Option<&Arc<NodeTask>> {
        self.own.get(node).or(self.shared.as_ref())
    }

    /// Every distinct task at least once; nodes may share one.
    pub fn iter(&self) -> impl Iterator<Item = &NodeTask> {
        self.shared.iter().chain(self.own.values()).map(|task| &**task)
    }

    /// The nodes with a task of their own, and the tasks.
    pub fn by_node(&self) -> impl Iterator<Item = (&NodeKey, &Arc<NodeTask>)> {
        self.own.iter()
    }

    /// Keeps the tasks of nodes that have an order and are not asked for anything any more: an order is accounted for until
    /// it is gone.
    pub fn keep_ordered(&mut self, before: &Progress) {
        for (node, task) in before.campaign().tasks.by_node() {
            if self.of(node).is_none() && before.has_order(node) {
                self.own.insert(node.clone(), Arc::clone(task));
            }
        }
    }

    /// Gives a node a task of its own.
    pub fn insert(&mut self, node: NodeKey, task: Arc<NodeTask>) {
        self.own.insert(node, task);
    }

    /// Takes a node's own task away.
    pub fn remove(&mut self, node: &str) {
        self.own.remove(node);
    }
}

impl FromIterator<(NodeKey, Arc<NodeTask>)> for Tasks {
    fn from_iter<T: IntoIterator<Item = (NodeKey, Arc<NodeTask>)>>(tasks: T) -> Self {
        Self {
            shared: None,
            own: tasks.into_iter().collect(),
        }
    }
}

impl NodeTask {
    /// A task for these images. `variant` names the rules of the job that made the images what they are; it is empty for
    /// a job that asks the same of every node.
    pub fn new(images: Vec<TaskImage>, variant: Vec<usize>) -> Self {
        Self { images, variant }
    }

    /// The rules of the job that made the images what they are.
    pub fn variant(&self) -> &[usize] {
        &self.variant
    }

    /// The images, in the job's order.
    pub fn images(&self) -> &[TaskImage] {
        &self.images
    }

    /// The references that are pulled, each once.
    pub fn references(&self) -> BTreeSet<&ImageRef> {
        self.images.iter().map(|image| &image.image).collect()
    }

    /// The image of this entry of a NodeImage, if the task asks for it.
    pub fn image(&self, name: &str, tag: &str) -> Option<&TaskImage> {
        let same = |image: &&TaskImage| image.image.name() == name && image.image.tag_text() == tag;
        self.images.iter().find(same)
    }

    /// The Secrets whose credentials may be used for an image.
    pub fn secrets_for(&self, reference: &ImageRef) -> Vec<SecretRef> {
        let of_image = self.images.iter().filter(|image| image.image == *reference);
        let mut secrets: Vec<SecretRef> = Vec::new();
        for secret in of_image.flat_map(|image| &image.secrets) {
            if !secrets.contains(secret) {
                secrets.push(secret.clone());
            }
        }
        secrets
    }

    /// All Secrets that the node needs.
    pub fn secrets(&self) -> BTreeSet<&SecretRef> {
        self.images.iter().flat_map(|image| &image.secrets).collect()
    }

    /// Claims what is missing or failed; an image that the node has, or works on, is not asked for again. A task of which
    /// nothing is missing and nothing failed is handed out because the node did not take it up, or because it is to be
    /// refreshed: then every image that the node does not have is claimed anew, or all of them if it has all.
    pub fn claim(&self, spec: &mut NodeImageSpec, old: &NodeImage, owner: &ObjectReference, now: Timestamp) {
        let uid = owner.uid.as_deref().unwrap_or_default();
        let answer = |reference: &ImageRef| claim::claim_view(old, reference, uid).map(|view| view.answer);
        let needed = |answer: Option<Answer>| matches!(answer, None | Some(Answer::Failed(_)));
        let any = |is: &dyn Fn(Option<Answer>) -> bool| self.images.iter().any(|image| is(answer(&image.image)));
        let any_needed = any(&needed);
        let all_there = !any(&|answer| answer != Some(Answer::Succeeded));
        for reference in self.references() {
            let answer = answer(reference);
            let again = !any_needed && (all_there || answer != Some(Answer::Succeeded));
            if needed(answer) || again {
                claim::claim(spec, old, reference, owner, now);
                self.set_position(spec, reference);
            }
        }
    }

    /// Tells the node which of the job's images comes first. Where there is only one there is nothing to tell.
    fn set_position(&self, spec: &mut NodeImageSpec, reference: &ImageRef) {
        let position = self.images.iter().position(|image| image.image == *reference);
        let tags = spec.images.get_mut(reference.name()).map(|image| &mut image.tags);
        let entry = tags.and_then(|tags| tags.iter_mut().find(|entry| entry.tag == reference.tag_text()));
        if let Some(entry) = entry {
            let position = position.filter(|_| 1 < self.images.len());
            entry.position = position.and_then(|position| i32::try_from(position).ok());
        }
    }

    /// Takes a job off all its images.
    pub fn release(&self, spec: &mut NodeImageSpec, uid: &str) {
        for reference in self.references() {
            claim::release(spec, reference, uid);
        }
    }

    /// What the node reports. None while one of the images is not claimed, and the task has to be handed out.
    pub fn report(&self, object: &NodeImage, uid: &str) -> Option<NodeReport> {
        let mut handed_out = Timestamp::MIN;
        let mut images = Vec::with_capacity(self.images.len());
        for image in &self.images {
            let view = claim::claim_view(object, &image.image, uid)?;
            handed_out = handed_out.max(view.handed_out);
            let status = object.result(image.image.name(), &image.image.tag_text());
            images.push(ImageReport::of(view, status));
        }
        Some(NodeReport { handed_out, images })
    }
}

#[cfg(test)]
mod tests;
