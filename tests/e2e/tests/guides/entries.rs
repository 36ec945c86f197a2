//! NodeImages by hand: they mirror their Node, and what somebody writes into one is done and taken away after its time.

use larder_e2e::SOON;
use larder_testkit::{kubectl_edit, wait_for};
use serde_json::{Value, json};

use crate::Guide;

pub(crate) async fn begin_empty_with_the_labels_of_the_node(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    cluster.create_node("node-empty").await;
    wait_for(SOON, "the NodeImage of a new Node", async || {
        let object = cluster
            .kubectl(&["get", "nodeimage", "node-empty", "-o", "json"])
            .await?;
        let object: Value = serde_json::from_str(&object).map_err(|error| error.to_string())?;
        let labels = &object["metadata"]["labels"];
        if labels["kubernetes.io/os"] == "linux" && object["spec"] == json!({}) {
            Ok(())
        } else {
            Err(object.to_string())
        }
    })
    .await
    .unwrap();
    cluster.kubectl(&["delete", "node", "node-empty"]).await.unwrap();
    wait_for(SOON, "the NodeImage to go with its Node", async || {
        match cluster.kubectl(&["get", "nodeimage", "node-empty"]).await {
            Err(error) if error.contains("not found") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
}

pub(crate) async fn by_patch_and_by_edit(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    let image = guide.publish(61, "ubuntu", "latest").await;
    let without = r#"{"spec":{"images":{"ubuntu":{"tags":[{"tag":"latest","pullPolicy":{}}]}}}}"#;
    let patch = ["patch", "nodeimage", "node-0", "--type=merge", "-p"];
    let refused = cluster.kubectl(&[&patch[..], &[without]].concat()).await.unwrap_err();
    assert!(refused.contains("ttlSecondsAfterFinished"), "{refused}");

    let entry =
        r#"{"spec":{"images":{"ubuntu":{"tags":[{"tag":"latest","pullPolicy":{"ttlSecondsAfterFinished":4}}]}}}}"#;
    cluster.kubectl(&[&patch[..], &[entry]].concat()).await.unwrap();
    succeeded_and_gone(guide, "node-0", "latest").await;
    assert_eq!(
        guide.holders("ubuntu:latest", &image.digest).await,
        [0],
        "the image itself stays, and only there"
    );

    // An editor that types the guide's lines, into an empty spec or beside what is there.
    let image = guide.publish(62, "ubuntu", "24.04").await;
    let lines = json!({ "tags": [{ "tag": "24.04", "pullPolicy": {
        "ttlSecondsAfterFinished": 4, "timeoutSeconds": 600, "backoffLimit": 3, "activeDeadlineSeconds": 1200,
    } }] });
    let editor =
        format!(r"sed -i -e 's|^spec: {{}}$|spec:\n  images:|' -e 's|^  images:$|  images:\n    ubuntu: {lines}|'");
    let arguments = ["nodeimage", "node-1"];
    let output = kubectl_edit(cluster.plane.kubeconfig(), &editor, arguments)
        .await
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("edited"), "{said}");
    succeeded_and_gone(guide, "node-1", "24.04").await;
    assert_eq!(guide.holders("ubuntu:24.04", &image.digest).await, [1]);
}

/// The entry is answered, and after its time it leaves spec and status.
async fn succeeded_and_gone(guide: &Guide, node: &str, tag: &str) {
    let seen = async |answered: bool| {
        let object = guide.cluster.node_image(node).await;
        let entry = object.entry("ubuntu", tag).is_some();
        let result = object.result("ubuntu", tag).cloned();
        let done = result.as_ref().is_some_and(|result| result.last_succeeded.is_some());
        let gone = !entry && result.is_none();
        if (answered && done && entry) || (!answered && gone) {
            Ok(())
        } else {
            Err(format!("entry {entry}, result {result:?}\n{}", guide.cluster.logs()))
        }
    };
    wait_for(SOON, "the entry to be answered", async || seen(true).await)
        .await
        .unwrap();
    wait_for(SOON, "the entry to go", async || seen(false).await)
        .await
        .unwrap();
}
