//! What the controller thinks of one job, for somebody who asks from outside: the same index and the same planner, fed once
//! with listed objects. Reads nothing itself, decides nothing and writes nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::core::ObjectMeta;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
pub use larder_planner::explain::Explanation;
use larder_planner::prepull::SecretRef;
use larder_planner::prepull::explain::after_the_end as ended_prepull;
use larder_planner::progress::Hold;
use larder_planner::status::names_fleet_limit;
use thiserror::Error;

use crate::core::read_secret;
use crate::facts::{NodeFacts, PodFacts};
use crate::index::{Index, Kind, Limits, SecretAnswer, Seen};
use crate::kinds::{image_list_pull_job, image_pre_pull_job};

/// The objects that a job's nodes are judged by.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// All Nodes.
    pub nodes: Vec<Node>,
    /// All NodeImages.
    pub node_images: Vec<NodeImage>,
    /// The Pods of the job's namespace, where it has a podSelector.
    pub pods: Vec<Pod>,
    /// Pull secrets of the job that do not exist, as `namespace/name`.
    pub missing_secrets: Vec<String>,
    /// Those that exist and hold no docker configuration.
    pub unreadable_secrets: Vec<String>,
}

/// Whether a Secret can be a pull secret, by the rule that the controller reads it by.
pub fn holds_docker_configuration(secret: &Secret) -> bool {
    !matches!(read_secret(secret), SecretAnswer::Unreadable)
}

/// The job is not served, and why.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the job is not served: {0}")]
pub struct NotServed(String);

/// What is to be said about each node that has a NodeImage; also about those that the job does not select. The job need not
/// exist yet.
pub fn nodes(job: &ImagePullJob, objects: Objects, now: Timestamp) -> Result<Vec<(String, Explanation)>, NotServed> {
    let all_good = objects.missing_secrets.is_empty() && objects.unreadable_secrets.is_empty();
    let hold = (!all_good).then(|| Hold::Secrets {
        missing: objects.missing_secrets.clone(),
        unreadable: objects.unreadable_secrets.clone(),
        forbidden: Vec::new(),
    });
    let status = job.status.as_ref();
    let message = status.and_then(|status| status.message.as_deref());
    let capped = message.is_some_and(names_fleet_limit);
    let mut index = look(job, objects, now)?;
    let mut found = index.explain_job(hold, capped, now).map_err(NotServed)?;
    let Some(status) = status else {
        unseen(&mut found);
        return Ok(found);
    };
    if status.completion_time.is_some() {
        let failed: BTreeSet<&str> = status.failed_nodes.iter().map(String::as_str).collect();
        for (node, explanation) in &mut found {
            after_the_end(explanation, failed.contains(node.as_str()));
        }
    }
    Ok(found)
}

/// What is to be said about each node of an ImagePrePullJob, in the job's order, and then about all others. Of a job that is
/// over nothing is left but its status, which tells of its own nodes. The job need not exist yet.
pub fn prepull_nodes(
    job: &ImagePrePullJob,
    objects: Objects,
    now: Timestamp,
) -> Result<Vec<(String, Explanation)>, NotServed> {
    if let Some(status) = job.status.as_ref().filter(|_| image_pre_pull_job::is_over(job)) {
        return Ok(ended_prepull(status));
    }
    let parsed = |names: &[String]| -> BTreeSet<SecretRef> {
        names.iter().filter_map(|name| SecretRef::parse(name).ok()).collect()
    };
    let missing = parsed(&objects.missing_secrets);
    let unreadable = parsed(&objects.unreadable_secrets);
    let mut conditions = job.status.iter().flat_map(|status| &status.progress.conditions);
    let capped = conditions.any(|condition| names_fleet_limit(&condition.message));
    let mut index = look_around(&job.metadata, objects, now)?;
    see(
        &mut index,
        &Kind::PrePull,
        vec![Seen::PrePull(Box::new(job.clone()))],
        now,
    );
    let mut found = index
        .explain_prepull(missing, unreadable, capped, now)
        .map_err(NotServed)?;
    if job.status.is_none() {
        unseen(&mut found);
    }
    Ok(found)
}

/// What a list job would make of itself: one job for each image.
pub fn children(list: &ImageListPullJob) -> Result<Vec<ImagePullJob>, NotServed> {
    let specs = image_list_pull_job::children(list).map_err(NotServed)?;
    let child = |spec| image_list_pull_job::child(list, spec);
    Ok(specs.into_values().map(child).collect())
}

/// An index that has seen this job and these objects.
fn look(job: &ImagePullJob, mut objects: Objects, now: Timestamp) -> Result<Index, NotServed> {
    let pods = std::mem::take(&mut objects.pods);
    let mut index = look_around(&job.metadata, objects, now)?;
    let mut job = job.clone();
    // Of a job that ended nothing is kept but its status; what the nodes say is seen as if it ran.
    if let Some(status) = &mut job.status {
        status.completion_time = None;
    }
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    see(&mut index, &Kind::Job, vec![Seen::Job(Box::new(job))], now);
    let pods = pods.into_iter().map(|pod| Seen::Pod(PodFacts::of(pod)));
    see(&mut index, &Kind::Pods(namespace), pods.collect(), now);
    Ok(index)
}

/// An index that has seen the nodes, if the job is not about to leave.
fn look_around(job: &ObjectMeta, objects: Objects, now: Timestamp) -> Result<Index, NotServed> {
    if job.deletion_timestamp.is_some() {
        return Err(NotServed("it is being deleted".to_owned()));
    }
    let mut index = Index::new(Limits {
        max_active_pulls: None,
        pause: false,
        serve_jobs: true,
    });
    let nodes = objects.nodes.into_iter().map(|node| Seen::Node(NodeFacts::of(node)));
    see(&mut index, &Kind::Node, nodes.collect(), now);
    let node_images = objects.node_images.into_iter();
    let node_images = node_images.map(|object| Seen::NodeImage(Box::new(object)));
    see(&mut index, &Kind::NodeImage, node_images.collect(), now);
    Ok(index)
}

fn see(index: &mut Index, kind: &Kind, seen: Vec<Seen>, now: Timestamp) {
    let all = [Seen::Begin].into_iter().chain(seen).chain([Seen::Complete]);
    all.for_each(|seen| index.observe(kind, seen, now));
}

/// A job without a status was seen by no controller: nobody is served, whatever the reason would be.
fn unseen(found: &mut [(String, Explanation)]) {
    for (_, explanation) in found.iter_mut().filter(|(_, said)| said.state == "Waiting") {
        "No controller has looked at the job yet; see that larder-controller runs."
            .clone_into(&mut explanation.sentence);
    }
}

/// A job that ended waits for nothing, and its entries on the nodes may be gone.
fn after_the_end(explanation: &mut Explanation, failed: bool) {
    match explanation.state {
        "Succeeded" | "Failed" | "NotSelected" => {}
        _ if failed => {
            explanation.state = "Failed";
            "Failed before the job ended; what the node said of it has been cleaned up."
                .clone_into(&mut explanation.sentence);
        }
        _ => {
            explanation.state = "Succeeded";
            explanation.reason = None;
            "The job has ended, and this node is none of those that failed.".clone_into(&mut explanation.sentence);
        }
    }
}

#[cfg(test)]
mod tests;
