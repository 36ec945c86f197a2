//! New nodes that wait for images: what is written on their Nodes, and when.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use larder_planner::NodeKey;
use larder_planner::node_gate::{GateReason, GateRules, GateStep};
use rstest::rstest;

use super::*;
use crate::facts::GateFacts;

const TAINT: &str = "larder.dev/warming";

fn gated() -> Limits {
    let rules = GateRules {
        taint: TAINT.to_owned(),
        max_wait: SignedDuration::from_mins(15),
    };
    Limits {
        node_gate: Some(rules),
        ..serving()
    }
}

/// A Node that is ready, with these taints and conditions.
fn a_node(revision: u64, taints: &[&str], conditions: &[Value]) -> Node {
    let ready = json!({"type": "Ready", "status": "True"});
    let conditions: Vec<&Value> = [&ready].into_iter().chain(conditions).collect();
    let taints: Vec<Value> = taints
        .iter()
        .map(|key| json!({"key": key, "effect": "NoSchedule"}))
        .collect();
    parsed(json!({
        "metadata": {"name": "a", "uid": "uid-a", "resourceVersion": revision.to_string()},
        "spec": {"taints": taints}, "status": {"conditions": conditions},
    }))
}

fn new_node() -> Node {
    a_node(1, &["other", TAINT], &[])
}

fn shown_node(node: Node) -> WatchEvent {
    WatchEvent::Node(NodeFacts::of_gated(node))
}

fn gating_job() -> WatchEvent {
    let spec = json!({"image": "nginx:1", "nodeGate": true, "completionPolicy": {"type": "Never"}});
    pull_job("job", &spec, &Value::Null)
}

/// The NodeImage of the node, which says this of the job's image.
fn reports(phase: &str, reason: Option<&str>) -> WatchEvent {
    let spec = json!({"images": {"nginx": {"tags": [{
        "tag": "1", "version": 1, "createdAt": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "ImagePullJob", "apiVersion": "apps.kruise.io/v1beta1", "name": "job", "uid": "job"}],
        "claims": [{"uid": "job", "version": 1}],
        "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 86400},
    }]}}});
    let result = json!({"tag": "1", "version": 1, "phase": phase, "reason": reason});
    let status = json!({"desired": 1, "imageStatuses": {"nginx": {"tags": [result]}}});
    shown(node_image("a", &spec, &status))
}

impl Engine {
    /// The next write, after all decisions.
    fn gate_write(&mut self, now: Timestamp) -> Option<GateWrite> {
        while {
            self.decide(now);
            self.is_undecided()
        } {}
        self.next_gate_write(true, now).map(|(_, write)| write)
    }

    /// A write that was carried out: the API server answers with this Node.
    fn gate_done(&mut self, write: &GateWrite, node: &Node, now: Timestamp) -> Option<GateReason> {
        self.gate_written(&NodeKey::from("a"), write.clone(), Ok(GateFacts::of(node)), now)
    }
}

fn condition(write: &GateWrite) -> Value {
    write.patch["status"]["conditions"][0].clone()
}

/// The Node after its condition was written.
fn written(revision: u64, write: &GateWrite) -> Node {
    a_node(revision, &["other", TAINT], &[condition(write)])
}

#[test]
fn a_new_node_is_told_to_wait_and_released_when_the_image_is_there() {
    let mut engine = Engine::new(gated());
    let pulls = reports("Pulling", None);
    engine.show_all(vec![shown_node(new_node()), pulls, gating_job()], at(0));
    let told = engine.gate_write(at(0)).unwrap();
    assert_eq!(condition(&told)["status"], "False");
    assert_eq!(condition(&told)["reason"], "WaitingForImages");
    assert_eq!(engine.gate_write(at(0)), None, "one write at a time");
    engine.show_event(reports("Succeeded", None), at(5));
    assert_eq!(engine.gate_write(at(5)), None, "one write at a time");
    let waits = written(2, &told);
    assert_eq!(engine.gate_done(&told, &waits, at(5)), None);
    assert_eq!(engine.sizes().gated_nodes, 1);

    let released = engine.gate_write(at(5)).unwrap();
    assert_eq!(condition(&released)["status"], "True");
    let reason = engine.gate_done(&released, &written(3, &released), at(6));
    assert_eq!(reason, Some(GateReason::ImagesReady));
    let untainted = engine.gate_write(at(6)).unwrap();
    let remove = json!([
        {"op": "test", "path": "/metadata/uid", "value": "uid-a"},
        {"op": "test", "path": "/spec/taints/1/key", "value": TAINT},
        {"op": "remove", "path": "/spec/taints/1"},
    ]);
    assert_eq!(
        (&untainted.what, untainted.patch.clone()),
        (&GateStep::RemoveTaint, remove)
    );
    let open = a_node(4, &["other"], &[condition(&released)]);
    assert_eq!(engine.gate_done(&untainted, &open, at(6)), None);
    assert_eq!(engine.gate_write(at(6)), None);
    assert_eq!(engine.sizes().gated_nodes, 0);
    assert_eq!(engine.events().pop(), None);

    // The watch is behind, and then shows it; the image is lost later.
    engine.show_event(shown_node(waits), at(6));
    engine.show_event(shown_node(open.clone()), at(6));
    engine.show_event(reports("Failed", Some("NotFound")), at(7));
    assert_eq!(engine.gate_write(at(7)), None);
    // Another controller finds it so.
    engine.restart();
    engine.show_all(vec![shown_node(open), idle("a"), gating_job()], at(60));
    assert_eq!(engine.gate_write(at(4_000)), None);
}

#[test]
fn a_controller_that_was_killed_between_both_writes_takes_the_taint_off() {
    let mut engine = Engine::new(gated());
    let released = json!({"type": "larder.dev/ImagesReady", "status": "True", "reason": "ImagesReady"});
    let node = a_node(7, &[TAINT], &[released]);
    engine.show_all(vec![shown_node(node), idle("a"), gating_job()], at(0));
    let write = engine.gate_write(at(0)).unwrap();
    assert_eq!(write.what, GateStep::RemoveTaint);
}

#[rstest]
#[case::an_image_that_does_not_exist(Some("NotFound"), "True")]
#[case::a_registry_that_does_not_answer(Some("Unreachable"), "False")]
fn failures(#[case] reason: Option<&str>, #[case] status: &str) {
    let mut engine = Engine::new(gated());
    engine.show_all(
        vec![shown_node(new_node()), reports("Failed", reason), gating_job()],
        at(0),
    );
    assert_eq!(condition(&engine.gate_write(at(0)).unwrap())["status"], status);
}

#[test]
fn the_limit_releases_a_node_with_an_event() {
    let mut engine = Engine::new(gated());
    engine.show_all(vec![shown_node(new_node()), idle("a"), gating_job()], at(0));
    let told = engine.gate_write(at(0)).unwrap();
    engine.gate_done(&told, &written(2, &told), at(0));
    // A new leader, in the middle.
    engine.restart();
    engine.show_all(vec![shown_node(written(2, &told)), idle("a"), gating_job()], at(600));
    assert_eq!(engine.gate_write(at(601)), None, "nothing has changed");
    assert!(engine.next_gate_look().is_some_and(|moment| moment <= at(900)));
    let released = engine.gate_write(at(900)).unwrap();
    assert_eq!(condition(&released)["reason"], "WaitLimitReached");
    // The watch shows the release before the response is here, and that somebody has taken the taint off.
    engine.show_event(shown_node(a_node(4, &[], &[condition(&released)])), at(900));
    let reason = engine.gate_done(&released, &written(3, &released), at(900));
    assert_eq!(reason, Some(GateReason::WaitLimitReached));
    let event = engine.events().pop().unwrap();
    assert_eq!(
        (event.subject.kind.as_deref(), event.reason),
        (Some("Node"), "WaitLimitReached")
    );
    assert!(event.warning && event.text.contains("nginx:1 (team/job)"), "{event:?}");
}

#[test]
fn nothing_is_decided_before_everything_was_listed() {
    let mut engine = Engine::new(gated());
    for kind in WatchKind::of_engine().filter(|kind| !matches!(kind, WatchKind::Job(_))) {
        engine.observe(&kind, WatchEvent::ListBegins, at(0));
    }
    engine.show_event(shown_node(new_node()), at(0));
    engine.show_event(idle("a"), at(0));
    for kind in WatchKind::of_engine().filter(|kind| !matches!(kind, WatchKind::Job(_))) {
        engine.observe(&kind, WatchEvent::ListComplete, at(0));
    }
    engine.decide(at(0));
    assert_eq!(engine.next_gate_write(true, at(4_000)), None, "no job was listed");
}

#[test]
fn a_list_that_has_not_made_its_jobs_is_waited_for() {
    let mut engine = Engine::new(gated());
    engine.show_all(vec![shown_node(new_node()), idle("a")], at(0));
    engine.decide(at(0));
    let (node, told) = engine.next_gate_write(false, at(0)).unwrap();
    assert_eq!(condition(&told)["status"], "False");
    engine.gate_done(&told, &written(2, &told), at(0));
    assert_eq!(&*node, "a");
    let released = engine.gate_write(at(5)).unwrap();
    assert_eq!(condition(&released)["reason"], "NoGatingJobs");
}

#[test]
fn labels_that_the_node_image_does_not_have_yet_may_select_it() {
    let mut engine = Engine::new(gated());
    let mut node = new_node();
    node.metadata.labels = Some([("pool".to_owned(), "web".to_owned())].into());
    engine.show_all(vec![shown_node(node), idle("a")], at(0));
    assert_eq!(condition(&engine.gate_write(at(0)).unwrap())["status"], "False");
}

/// A job that tolerates nothing leaves out tainted nodes, and is for a new one all the same.
#[rstest]
#[case::the_start_up_taint(&[TAINT], "WaitingForImages")]
#[case::another_taint(&[TAINT, "gpu"], "NoGatingJobs")]
fn the_start_up_taint_keeps_no_job_away(#[case] taints: &[&str], #[case] reason: &str) {
    let mut engine = Engine::new(gated());
    let spec = json!({
        "image": "nginx:1", "nodeGate": true, "completionPolicy": {"type": "Never"},
        "tolerations": [{"key": "something", "operator": "Exists"}],
    });
    let job = pull_job("job", &spec, &Value::Null);
    engine.show_all(vec![shown_node(a_node(1, taints, &[])), idle("a"), job], at(0));
    assert_eq!(condition(&engine.gate_write(at(0)).unwrap())["reason"], reason);
}

#[test]
fn a_write_that_fails_is_tried_again_later() {
    let mut engine = Engine::new(gated());
    engine.show_all(vec![shown_node(new_node()), idle("a")], at(0));
    let write = engine.gate_write(at(0)).unwrap();
    let failed = Err("no answer".to_owned());
    engine.gate_written(&NodeKey::from("a"), write, failed, at(0));
    assert_eq!(engine.gate_write(at(0)), None);
    assert!(engine.gate_write(at(2)).is_some());
}

/// The release may have arrived although its response did not.
#[test]
fn a_job_that_comes_after_a_release_was_sent_does_not_close_the_node_again() {
    let mut engine = Engine::new(gated());
    let pulls = reports("Pulling", None);
    engine.show_all(vec![shown_node(new_node()), pulls], at(0));
    let released = engine.gate_write(at(0)).unwrap();
    assert_eq!(condition(&released)["reason"], "NoGatingJobs");
    engine.show_event(gating_job(), at(1));
    let failed = Err("the response is lost".to_owned());
    engine.gate_written(&NodeKey::from("a"), released.clone(), failed, at(1));
    let again = engine.gate_write(at(60)).unwrap();
    assert_eq!(again.what, released.what);
}

#[test]
fn without_the_gate_no_node_is_written() {
    let mut engine = Engine::new(serving());
    engine.show_all(vec![shown_node(new_node()), idle("a"), gating_job()], at(0));
    assert_eq!(engine.gate_write(at(4_000)), None);
    assert_eq!(engine.next_gate_look(), None);
}
