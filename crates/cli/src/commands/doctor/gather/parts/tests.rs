use super::*;
use rstest::rstest;
use serde_json::json;

fn seen(spec: &serde_json::Value, status: &serde_json::Value) -> Pod {
    let object = json!({ "metadata": { "name": "p" }, "spec": spec, "status": status });
    pod(&serde_json::from_value(object).unwrap())
}

fn container(args: &[&str], env: &serde_json::Value) -> serde_json::Value {
    json!({ "nodeName": "n", "containers": [{ "name": "c", "image": "registry.example:5000/larder-controller:0.1.0", "args": args, "env": env }] })
}

#[rstest]
#[case::usual(&["--leader-elect=true"], json!([]), false, false)]
#[case::off(&["--feature-gates=Other=true,ImagePullJobGate=false"], json!([]), true, false)]
#[case::two_words(&["--feature-gates", "ImagePullJobGate=false", "--pause"], json!([]), true, true)]
#[case::variable(&[], json!([{ "name": "LARDER_FEATURE_GATES", "value": "ImagePullJobGate=false" }]), true, false)]
#[case::the_flag_counts_more(&["--pause=false"], json!([{ "name": "LARDER_PAUSE", "value": "true" }]), false, false)]
fn what_a_controller_was_told(
    #[case] args: &[&str],
    #[case] env: serde_json::Value,
    #[case] gate_off: bool,
    #[case] paused: bool,
) {
    let pod = seen(&container(args, &env), &json!({}));
    assert_eq!((pod.gate_off, pod.paused), (gate_off, paused));
    assert_eq!(pod.version.as_deref(), Some("0.1.0"));
    assert_eq!(pod.node.as_deref(), Some("n"));
}

#[rstest]
#[case::usual(&["--leader-elect=true"], false)]
#[case::accepted(&["--accept-unenforced-node-policy=true"], true)]
#[case::turned_off(&["--accept-unenforced-node-policy=false"], false)]
fn whether_a_controller_was_told_to_accept_a_missing_policy(#[case] args: &[&str], #[case] accepts: bool) {
    let pod = seen(&container(args, &json!([])), &json!({}));
    assert_eq!(pod.accepts_no_policy, accepts);
}

#[rstest]
#[case::image(
    json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]}),
    "ImagePullBackOff: Back-off pulling image"
)]
#[case::crash(
    json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 2}}}]}),
    "CrashLoopBackOff; it ended with code 2"
)]
#[case::probe(
    json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}]}),
    "the container c runs and its readiness probe fails"
)]
#[case::nowhere(
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]}),
    "Unschedulable: 0/3 nodes are available"
)]
#[case::evicted(json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}), "Evicted: The node was low on memory.")]
fn why_a_pod_is_not_ready(#[case] status: serde_json::Value, #[case] says: &str) {
    let pod = seen(&container(&[], &json!([])), &status);
    assert!(!pod.ready);
    assert_eq!(pod.trouble.as_deref(), Some(says));
}

#[rstest]
#[case("larder-controller:0.1.0", Some("0.1.0"))]
#[case("registry.example:5000/larder-controller", None)]
#[case("registry.example:5000/a/larder:v1@sha256:abc", Some("v1"))]
fn tags(#[case] image: &str, #[case] want: Option<&str>) {
    assert_eq!(tag(image).as_deref(), want);
}
