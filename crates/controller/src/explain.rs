//! What the controller thinks of one job, for somebody who asks from outside: the same index and the same planner, fed once
//! with listed objects. Reads nothing itself, decides nothing and writes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::Resource as _;
use larder_api::progress::JobProgress;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use larder_model::Reason;
use larder_planner::agent_nodes::AgentNodes;
use larder_planner::conditions::ProgressReason;
use larder_planner::dialect::Dialect;
use larder_planner::explain::names_fleet_limit;
pub use larder_planner::explain::{ExplainedState, Explanation};
use larder_planner::kruise::{PullJobs, list};
use larder_planner::kubeedge::PrePullJobs;
use larder_planner::kubeedge::explain::after_the_end as ended_prepull;
use larder_planner::node_gate::GateRules;
use larder_planner::secret::{SecretRef, UnusableSecrets};
use larder_planner::windows::{Closed, Windows};
use thiserror::Error;

use crate::core::read_secret;
use crate::engine::{Engine, FleetWaits, Limits, SecretRead, TypedJob, WatchEvent, WatchKind};
use crate::facts::{NodeFacts, PodFacts};
use crate::kinds::KindId;

/// The objects that a job's nodes are judged by.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// All Nodes.
    pub nodes: Vec<Node>,
    /// Which of them have an agent.
    pub agent_nodes: AgentNodes,
    /// Windows of the whole fleet, as far as they are known.
    pub fleet_windows: Windows,
    /// How new nodes wait for images, if they do: no job leaves out a node because of the start-up taint.
    pub node_gate: Option<GateRules>,
    /// All NodeImages.
    pub node_images: Vec<NodeImage>,
    /// The Pods of the job's namespace, where it has a podSelector.
    pub pods: Vec<Pod>,
    /// Pull secrets of the job that do not exist, as `namespace/name`.
    pub missing_secrets: Vec<String>,
    /// Those that exist and hold no docker configuration.
    pub unreadable_secrets: Vec<String>,
    /// Jobs with a higher priority that wait for the whole fleet's limit.
    pub jobs_before: usize,
}

/// Whether a Secret can be a pull secret, by the rule that the controller reads it by.
pub fn holds_docker_configuration(secret: &Secret) -> bool {
    !matches!(read_secret(secret), SecretRead::Unreadable)
}

/// The job is not served, and why.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the job is not served: {0}")]
pub struct NotServed(String);

/// Explains each node that has a NodeImage to an ImagePullJob; also those that the job does not select. The job need not
/// exist yet.
pub fn nodes(job: &ImagePullJob, objects: Objects, now: Timestamp) -> Result<Vec<(String, Explanation)>, NotServed> {
    let status = job.status.as_ref();
    let capped = is_capped(job);
    let withheld = status.is_some_and(|status| withholds(&status.progress));
    let mut running = job.clone();
    // Of a job that ended nothing is kept but its status; what the nodes say is seen as if it ran.
    if let Some(status) = &mut running.status {
        status.completion_time = None;
    }
    let outside = status.and_then(|status| outside_fleet_windows(&status.progress));
    let seen = SeenByController {
        capped,
        outside,
        withheld,
    };
    let mut found = explain::<PullJobs>(running, objects, seen, now)?;
    let Some(status) = status else {
        not_seen_yet(&mut found);
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

/// Explains each node of an ImagePrePullJob, in the job's order, and then all others. Of a job that is over nothing is left
/// but its status, which tells of its own nodes. The job need not exist yet.
pub fn prepull_nodes(
    job: &ImagePrePullJob,
    objects: Objects,
    now: Timestamp,
) -> Result<Vec<(String, Explanation)>, NotServed> {
    if let Some(status) = job.status.as_ref().filter(|_| PrePullJobs::finished(job).is_some()) {
        return Ok(ended_prepull(status));
    }
    let seen = SeenByController {
        capped: is_prepull_capped(job),
        withheld: job.status.as_ref().is_some_and(|status| withholds(&status.progress)),
        outside: job
            .status
            .as_ref()
            .and_then(|status| outside_fleet_windows(&status.progress)),
    };
    let mut found = explain::<PrePullJobs>(job.clone(), objects, seen, now)?;
    if job.status.is_none() {
        not_seen_yet(&mut found);
    }
    Ok(found)
}

/// What only the controller sees, as the job's status tells it.
struct SeenByController {
    /// The whole fleet's limit keeps nodes waiting.
    capped: bool,
    /// Windows of the whole fleet keep nodes waiting.
    outside: Option<Closed>,
    /// No logins are sent, because the node policy is not known to be enforced.
    withheld: bool,
}

/// Whether a job's status says that the whole fleet's limit keeps nodes waiting.
pub fn is_capped(job: &ImagePullJob) -> bool {
    let status = job.status.as_ref().filter(|status| status.completion_time.is_none());
    let message = status.and_then(|status| status.message.as_deref());
    message.is_some_and(names_fleet_limit)
}

/// The same of an ImagePrePullJob.
pub fn is_prepull_capped(job: &ImagePrePullJob) -> bool {
    let mut conditions = job.status.iter().flat_map(|status| &status.progress.conditions);
    conditions.any(|condition| names_fleet_limit(&condition.message))
}

fn withholds(progress: &JobProgress) -> bool {
    progress.reasons.contains_key(Reason::NodePolicyNotEnforced.as_str())
}

fn outside_fleet_windows(progress: &JobProgress) -> Option<Closed> {
    let (_, message) = ProgressReason::read(&progress.conditions)?;
    Closed::read_fleet(message)
}

/// What the engine says of a job of any kind.
fn explain<D: Dialect>(
    job: D::Object,
    objects: Objects,
    seen: SeenByController,
    now: Timestamp,
) -> Result<Vec<(String, Explanation)>, NotServed> {
    if job.meta().deletion_timestamp.is_some() {
        return Err(NotServed("it is being deleted".to_owned()));
    }
    let kind = KindId::of::<D>().ok_or_else(|| NotServed("the kind is not served".to_owned()))?;
    let namespace = job.meta().namespace.clone().unwrap_or_default();
    let parsed = |names: &[String]| names.iter().filter_map(|name| SecretRef::parse(name).ok()).collect();
    let unusable = UnusableSecrets {
        missing: parsed(&objects.missing_secrets),
        unreadable: parsed(&objects.unreadable_secrets),
    };
    let nodes = objects
        .nodes
        .into_iter()
        .map(|node| WatchEvent::Node(NodeFacts::of(node)));
    let images = objects.node_images.into_iter();
    let images = images.map(|object| WatchEvent::NodeImage(Box::new(object)));
    let pods = objects.pods.into_iter().map(|pod| WatchEvent::Pod(PodFacts::of(pod)));
    let mut engine = Engine::new(Limits {
        accept_unenforced_node_policy: !seen.withheld,
        agent_nodes: objects.agent_nodes,
        windows: Arc::new(objects.fleet_windows),
        node_gate: objects.node_gate,
        ..Limits::default()
    });
    let mut list = |kind: WatchKind, shown: Vec<WatchEvent>| {
        let all = [WatchEvent::ListBegins].into_iter().chain(shown);
        let all = all.chain([WatchEvent::ListComplete]);
        all.for_each(|event| engine.observe(&kind, event, now));
    };
    list(WatchKind::Node, nodes.collect());
    list(WatchKind::NodeImage, images.collect());
    list(
        WatchKind::Job(kind),
        vec![WatchEvent::Job(TypedJob::<D>::boxed(kind, job))],
    );
    list(WatchKind::Pods(namespace), pods.collect());
    let fleet = FleetWaits {
        capped: seen.capped,
        outside: seen.outside,
        jobs_before: objects.jobs_before,
    };
    let explained = engine.explain_job(&unusable, fleet, now).map_err(NotServed)?;
    Ok(explained
        .into_iter()
        .map(|(node, said)| (node.to_string(), said))
        .collect())
}

/// What a list job would make of itself: one job for each image.
pub fn children(list: &ImageListPullJob) -> Result<Vec<ImagePullJob>, NotServed> {
    let specs = list::children(list).map_err(NotServed)?;
    let child = |spec| list::child(list, spec);
    Ok(specs.into_values().map(child).collect())
}

/// A job without a status was seen by no controller: nobody is served, whatever the reason would be.
fn not_seen_yet(found: &mut [(String, Explanation)]) {
    for (_, explanation) in found
        .iter_mut()
        .filter(|(_, said)| said.state == ExplainedState::Waiting)
    {
        "No controller has looked at the job yet; see that larder-controller runs."
            .clone_into(&mut explanation.sentence);
    }
}

/// A job that ended waits for nothing, and its entries on the nodes may be gone.
fn after_the_end(explanation: &mut Explanation, failed: bool) {
    match explanation.state {
        ExplainedState::Succeeded | ExplainedState::Failed | ExplainedState::NoAgent | ExplainedState::NotSelected => {}
        _ if failed => {
            explanation.state = ExplainedState::Failed;
            "Failed before the job ended; what the node said of it has been cleaned up."
                .clone_into(&mut explanation.sentence);
        }
        _ => {
            explanation.state = ExplainedState::Succeeded;
            explanation.reason = None;
            "The job has ended, and this node is none of those that failed.".clone_into(&mut explanation.sentence);
        }
    }
}

#[cfg(test)]
mod tests;
