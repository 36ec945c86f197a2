use super::*;
use serde_json::json;

fn node(name: &str, status: &serde_json::Value) -> NodeImage {
    serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": name},
        "spec": {"images": {"nginx": {"tags": [{
            "tag": "1.9.1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 1},
            "ownerReferences": [{"uid": "u"}], "claims": [{"uid": "u", "version": 1}]
        }]}}},
        "status": {"imageStatuses": {"nginx": {"tags": [status]}}},
    }))
    .unwrap()
}

fn rows() -> Vec<NodeRow> {
    let mut job = ImagePullJob::new(
        "web",
        larder_api::ImagePullJobSpec {
            image: "nginx:1.9.1".into(),
            ..Default::default()
        },
    );
    job.metadata.uid = Some("u".into());
    let message = format!(
        "Failed to pull image reference \"nginx:1.9.1\": the registry has no such tag. {}",
        Reason::NotFound.advice()
    );
    let nodes = [
        node(
            "node-1",
            &json!({"tag": "1.9.1", "version": 1, "phase": "Succeeded", "bytesTotal": 2048, "bytesDone": 2048, "attempts": 1}),
        ),
        node(
            "node-2",
            &json!({"tag": "1.9.1", "version": 1, "phase": "Failed", "reason": "NotFound", "message": message, "attempts": 1}),
        ),
        node(
            "node-3",
            &json!({"tag": "1.9.1", "version": 0, "phase": "Succeeded", "attempts": 1}),
        ),
    ];
    pull_nodes(&job, &nodes)
}

#[test]
fn a_jobs_nodes_with_the_failed_ones_first() {
    insta::assert_snapshot!(Parts::Nodes(rows()).table(None), @r"

    NODE     PHASE       BYTES     TRIES   REASON     MESSAGE
    node-2   Failed      -         1       NotFound   the registry has no such tag
    node-3   Ordered     -         -
    node-1   Succeeded   2.0 KiB   1
    ");
}

#[test]
fn a_narrow_terminal_sees_what_matters() {
    insta::assert_snapshot!(Parts::Nodes(rows()).table(Some(60)), @r"

    NODE     PHASE       REASON     MESSAGE
    node-2   Failed      NotFound   the registry has no such tag
    node-3   Ordered
    node-1   Succeeded
    ");
}

#[test]
fn the_json_is_what_scripts_rely_on() {
    let json = serde_json::to_value(Parts::Nodes(rows())).unwrap();
    assert_eq!(
        json["nodes"][2],
        json!({"node": "node-1", "phase": "Succeeded", "bytesTotal": 2048, "bytesDone": 2048, "attempts": 1, "reason": null, "message": null})
    );
    let list = Parts::Images(vec![ImageRow {
        image: "nginx:1".into(),
        job: "web-x1".into(),
        phase: "Complete",
        desired: 1,
        succeeded: 1,
        failed: 0,
        reasons: String::new(),
    }]);
    assert_eq!(
        serde_json::to_value(list).unwrap(),
        json!({"images": [{"image": "nginx:1", "job": "web-x1", "phase": "Complete", "desired": 1, "succeeded": 1, "failed": 0}]})
    );
}

#[test]
fn the_nodes_of_a_pre_pull_job_say_what_was_renamed_and_what_failed() {
    let job: ImagePrePullJob = serde_json::from_value(json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob", "metadata": {"name": "edge"},
        "spec": {"imagePrePullTemplate": {"images": ["a/b:1"], "nodeNames": ["n1"]}},
        "status": {"phase": "Failure", "nodeStatus": [
            {"nodeName": "n1", "phase": "Successful", "imageStatus": [{"image": "a/b:1", "status": "True", "resolvedImage": "c/b:1"}]},
            {"nodeName": "n2", "phase": "Failure", "cause": "NotFound", "reason": "no such image"},
            {"nodeName": "n3", "phase": "Failure", "cause": "Dns"},
        ], "omittedNodes": [{"phase": "Pending", "count": 2, "nodes": ["n5", "n4"]}]},
    }))
    .unwrap();
    insta::assert_snapshot!(Parts::Nodes(pre_pull_nodes(&job)).table(None), @r"

    NODE   PHASE        MESSAGE
    n2     Failure      no such image
    n3     Failure      Dns
    n4     Pending
    n5     Pending
    n1     Successful   a/b:1 pulled as c/b:1
    ");
}
