//! The engine without an API server: what it is shown, and what it wants written.

mod events;
mod fleet_limit;
mod jobs;
mod node_gate;
mod node_policy;
mod nodes;
mod secrets;
mod turns;
mod windows;

use jiff::Timestamp;
use larder_api::NodeImage;
use larder_planner::dialect::Dialect;
use larder_planner::kruise::PullJobs;
use larder_planner::kubeedge::PrePullJobs;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::facts::NodeFacts;
use crate::kinds;

/// So many seconds after the beginning of the tests' time.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn serving() -> Limits {
    Limits {
        accept_unenforced_node_policy: true,
        ..Limits::default()
    }
}

fn parsed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A Node that is ready.
fn node(name: &str) -> WatchEvent {
    WatchEvent::Node(NodeFacts {
        name: name.to_owned(),
        ready: true,
        ..NodeFacts::default()
    })
}

/// A NodeImage with this spec and status.
fn node_image(name: &str, spec: &Value, status: &Value) -> NodeImage {
    parsed(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
        "metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec, "status": status,
    }))
}

fn shown(object: NodeImage) -> WatchEvent {
    WatchEvent::NodeImage(Box::new(object))
}

/// The NodeImage of a node whose agent has nothing to do.
fn idle(name: &str) -> WatchEvent {
    shown(node_image(name, &json!({}), &json!({"desired": 0})))
}

/// An ImagePullJob in the namespace `team`, whose uid is its name.
fn pull_job(name: &str, spec: &Value, status: &Value) -> WatchEvent {
    job::<PullJobs>(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec, "status": status,
    }))
}

/// An ImagePrePullJob, whose uid is its name.
fn prepull_job(name: &str, template: &Value) -> WatchEvent {
    job::<PrePullJobs>(json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": name, "uid": name}, "spec": {"imagePrePullTemplate": template},
    }))
}

fn job<D: Dialect>(object: Value) -> WatchEvent
where
    D::Object: DeserializeOwned,
{
    WatchEvent::Job(kinds::job::<D>(parsed(object)).unwrap())
}

impl WatchEvent {
    fn kind(&self) -> WatchKind {
        match self {
            WatchEvent::Node(_) => WatchKind::Node,
            WatchEvent::NodeImage(_) => WatchKind::NodeImage,
            WatchEvent::Job(job) => WatchKind::Job(job.kind()),
            _ => panic!("an event of no certain kind"),
        }
    }
}

impl Engine {
    /// Shows one object.
    fn show_event(&mut self, event: WatchEvent, now: Timestamp) {
        self.observe(&event.kind(), event, now);
    }

    /// Shows these objects as lists of everything there is.
    fn show_all(&mut self, events: Vec<WatchEvent>, now: Timestamp) {
        for kind in WatchKind::of_engine() {
            self.observe(&kind, WatchEvent::ListBegins, now);
        }
        for event in events {
            self.show_event(event, now);
        }
        for kind in WatchKind::of_engine() {
            self.observe(&kind, WatchEvent::ListComplete, now);
        }
    }

    /// The id of the job with this uid.
    fn id(&self, uid: &str) -> JobId {
        self.jobs.id_of_uid(uid).unwrap()
    }
}
