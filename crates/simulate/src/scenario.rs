//! Who and what there is in a run: nodes, jobs of every kind, pods, Secrets; and what people ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use larder_api::names::{EDGE_NODE_LABEL, KRUISE_FINALIZER, NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE, WARMING_TAINT};
use larder_planner::node_gate::GateRules;
use serde_json::{Map, Value, json};

use crate::api::{Call, Kind};
use crate::queue::Millis;
use crate::random::Random;
use crate::windows;

/// The taint of nodes that are to wait for images.
pub(crate) const TAINT: &str = WARMING_TAINT;

/// How long a node waits at most.
pub(crate) const MAX_WAIT: Millis = 300_000;

/// Where namespaced jobs, pods and Secrets are.
pub(crate) const NAMESPACE: &str = "team";

const IMAGES: [&str; 8] = [
    "nginx:1",
    "redis:7",
    "nginx:2",
    "registry.example/team/app:v1",
    "registry.example/team/app:v2",
    "private.example/team/app:1",
    "private.example/team/app:2",
    "nowhere.example/missing:1",
];

const ZONES: [&str; 3] = ["a", "b", "c"];

/// How much of everything there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) nodes: u64,
    pub(crate) jobs: u64,
    pub(crate) acts: u64,
}

impl Sizes {
    /// Most runs are small, some have hundreds of nodes.
    pub(crate) fn draw(random: &mut Random, largest: u64) -> Self {
        let roll = random.between(0..=999);
        let (nodes, jobs, acts) = match roll {
            0..700 => (random.between(2..=8), random.between(1..=5), random.between(0..=25)),
            700..970 => (random.between(8..=25), random.between(1..=6), random.between(0..=40)),
            970..995 => (random.between(25..=60), random.between(1..=5), random.between(0..=40)),
            _ => (random.between(100..=300), random.between(1..=2), random.between(0..=30)),
        };
        Self {
            nodes: nodes.min(largest),
            jobs,
            acts,
        }
    }
}

/// A Node of this number.
pub(crate) fn node(random: &mut Random, number: u64) -> Value {
    let mut labels = Map::new();
    labels.insert("zone".to_owned(), json!(zone(random)));
    if random.permille(600) {
        labels.insert(EDGE_NODE_LABEL.to_owned(), json!(""));
    }
    if random.permille(30) {
        labels.insert(NODE_TYPE_LABEL.to_owned(), json!(VIRTUAL_KUBELET_VALUE));
    }
    json!({"metadata": {"name": node_name(number), "labels": labels}, "spec": {}, "status": ready(true)})
}

pub(crate) fn node_name(number: u64) -> String {
    format!("node-{number:03}")
}

pub(crate) fn zone(random: &mut Random) -> &'static str {
    random.pick(&ZONES).copied().unwrap_or("a")
}

/// The status of a Node that is ready or not.
pub(crate) fn ready(is_ready: bool) -> Value {
    json!({"conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]})
}

/// How new nodes wait for images, where they do.
pub(crate) fn gate_rules() -> GateRules {
    GateRules {
        taint: TAINT.to_owned(),
        max_wait: SignedDuration::from_millis(i64::try_from(MAX_WAIT).unwrap_or(i64::MAX)),
    }
}

/// The spec of a Node that registers with the start-up taint.
pub(crate) fn tainted() -> Value {
    json!({"taints": [{"key": "other", "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoSchedule"}]})
}

/// Makes new nodes wait for a job, if it is of a kind that can ask for that.
pub(crate) fn gating(call: Call) -> Call {
    match call {
        Call::Create(kind @ (Kind::PullJob | Kind::ListJob), mut job) => {
            let spec = &mut job["spec"];
            spec["completionPolicy"] = json!({"type": "Never"});
            spec["nodeGate"] = json!(true);
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("podSelector");
            }
            Call::Create(kind, job)
        }
        other => other,
    }
}

/// A docker-registry Secret.
pub(crate) fn secret(name: &str) -> Value {
    let login = STANDARD.encode("user:password");
    let config = json!({"auths": {"private.example": {"auth": login}}}).to_string();
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode(config)},
    })
}

/// A pod of one of two applications on some node.
pub(crate) fn pod(random: &mut Random, number: u64, nodes: u64) -> Value {
    let app = if random.coin() { "web" } else { "db" };
    let node = node_name(random.between(0..=nodes.saturating_sub(1)));
    json!({
        "metadata": {"name": format!("pod-{number}"), "namespace": NAMESPACE, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"},
    })
}

/// A job of any kind: the call that creates it.
pub(crate) fn job(random: &mut Random, number: u64, nodes: u64) -> Call {
    match random.between(0..=9) {
        0..=5 => Call::Create(Kind::PullJob, pull_job(random, number, nodes)),
        6 => Call::Create(Kind::ListJob, list_job(random, number, nodes)),
        _ => Call::Create(Kind::PrePullJob, pre_pull_job(random, number, nodes)),
    }
}

pub(crate) fn image(random: &mut Random) -> &'static str {
    random.pick(&IMAGES).copied().unwrap_or(IMAGES[0])
}

fn pull_job(random: &mut Random, number: u64, nodes: u64) -> Value {
    let image = image(random);
    let mut spec = template(random, nodes);
    spec["image"] = json!(image);
    let policy = if random.permille(300) { "Always" } else { "IfNotPresent" };
    spec["imagePullPolicy"] = json!(policy);
    if image.starts_with("private") {
        spec["pullSecrets"] = json!(["login"]);
    }
    let finalizers: Vec<&str> = random.permille(100).then_some(KRUISE_FINALIZER).into_iter().collect();
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": format!("job-{number}"), "namespace": NAMESPACE, "finalizers": finalizers}, "spec": spec,
    })
}

fn list_job(random: &mut Random, number: u64, nodes: u64) -> Value {
    let mut spec = template(random, nodes);
    spec["images"] = json!(images(random));
    spec["pullSecrets"] = json!(["login"]);
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
        "metadata": {"name": format!("list-{number}"), "namespace": NAMESPACE}, "spec": spec,
    })
}

fn images(random: &mut Random) -> Vec<&'static str> {
    let mut images: Vec<&str> = (0..random.between(1..=3)).map(|_| image(random)).collect();
    images.sort_unstable();
    images.dedup();
    images
}

/// What both of OpenKruise's kinds have.
fn template(random: &mut Random, nodes: u64) -> Value {
    let mut spec = json!({
        "parallelism": random.between(1..=5),
        "pullPolicy": {"timeoutSeconds": random.between(2..=60), "backoffLimit": random.between(0..=3)},
        "completionPolicy": completion(random),
    });
    match random.between(0..=9) {
        0..=4 => {}
        5 => spec["selector"] = json!({"names": names(random, nodes)}),
        6 | 7 => spec["selector"] = json!({"matchLabels": {"zone": zone(random)}}),
        _ => spec["podSelector"] = json!({"matchLabels": {"app": "web"}}),
    }
    if random.permille(100) {
        spec["pin"] = json!(true);
    }
    if random.permille(200) {
        spec["windows"] = windows::draw(random);
        if random.permille(300) {
            spec["windowEnd"] = json!("Stop");
        }
    }
    if spec["completionPolicy"]["type"] == "Never" && random.coin() {
        spec["refreshSchedule"] = json!(windows::schedule(random));
    }
    if random.permille(400) {
        spec["priority"] = json!(priority(random));
    }
    if random.permille(100) {
        spec["failurePolicy"] = json!({"maxFailures": random.between(0..=3)});
    }
    spec
}

/// Few, so that jobs also have equal ones.
pub(crate) fn priority(random: &mut Random) -> i32 {
    [-1, 1, 100][random.index(3)]
}

/// At once, or within minutes.
fn ttl(random: &mut Random) -> u64 {
    if random.coin() { 0 } else { random.between(1..=600) }
}

fn completion(random: &mut Random) -> Value {
    if random.permille(150) {
        return json!({"type": "Never"});
    }
    let mut policy = json!({"type": "Always"});
    if random.permille(200) {
        policy["activeDeadlineSeconds"] = json!(random.between(20..=600));
    }
    if random.permille(300) {
        policy["ttlSecondsAfterFinished"] = json!(ttl(random));
    }
    policy
}

pub(crate) fn names(random: &mut Random, nodes: u64) -> Vec<String> {
    let mut names: Vec<String> = (0..nodes).filter(|_| random.coin()).map(node_name).collect();
    if names.is_empty() {
        names.push(node_name(0));
    }
    names
}

fn pre_pull_job(random: &mut Random, number: u64, nodes: u64) -> Value {
    let tolerate = ["0", "0.1", "0.5", "1"][random.index(4)];
    let mut template = json!({
        "images": images(random), "concurrency": random.between(0..=4), "retryTimes": random.between(0..=2),
        "timeoutSeconds": random.between(10..=300), "failureTolerate": tolerate,
        "imageSecrets": format!("{NAMESPACE}/login"), "checkItems": [],
    });
    if random.coin() {
        template["labelSelector"] = json!({});
    } else {
        template["nodeNames"] = json!(names(random, nodes));
    }
    if random.permille(400) {
        template["priority"] = json!(priority(random));
    }
    if random.permille(200) {
        template["activeDeadlineSeconds"] = json!(random.between(20..=600));
    }
    if random.permille(300) {
        template["ttlSecondsAfterFinished"] = json!(ttl(random));
    }
    if random.permille(150) {
        template["windows"] = windows::draw(random);
        if random.permille(300) {
            template["windowEnd"] = json!("Stop");
        }
    }
    json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob",
        "metadata": {"name": format!("pre-{number}")}, "spec": {"imagePrePullTemplate": template},
    })
}
