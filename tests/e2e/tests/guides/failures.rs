//! The guide's questions and answers: a job failed, where, and why.

use larder_e2e::SOON;
use larder_testkit::wait_for;
use serde_json::{Value, json};

use crate::Guide;

pub(crate) async fn are_found_as_the_guide_says(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    let fields = json!({ "pullPolicy": { "backoffLimit": 1 } });
    cluster.submit("not-there", "missing:1.9.1", &fields).await;
    let status = cluster.finished("not-there").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 0, 3));
    assert_eq!(status.progress.reasons, [("NotFound".to_owned(), 3)].into());

    let table = cluster.kubectl(&["get", "imagepulljob", "not-there"]).await.unwrap();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["not-there", "3", "0", "0", "3"], "{table}");
    assert!(table.trim_end().ends_with("job has completed"), "{table}");

    let object = cluster
        .kubectl(&["get", "imagepulljob", "not-there", "-o", "json"])
        .await
        .unwrap();
    let object: Value = serde_json::from_str(&object).unwrap();
    assert_eq!(object["status"]["failedNodes"], json!(["node-0", "node-1", "node-2"]));
    assert_eq!(object["status"]["message"], "job has completed");
    assert!(object["status"]["completionTime"].is_string() && object["status"]["startTime"].is_string());

    let node = cluster
        .kubectl(&["get", "nodeimage", "node-1", "-o", "json"])
        .await
        .unwrap();
    let node: Value = serde_json::from_str(&node).unwrap();
    let tag = &node["status"]["imageStatuses"]["missing"]["tags"][0];
    assert_eq!((&tag["tag"], &tag["phase"]), (&json!("1.9.1"), &json!("Failed")));
    let message = tag["message"].as_str().unwrap();
    let start = r#"Failed to pull image reference "missing:1.9.1": "#;
    let cause = message.strip_prefix(start).unwrap_or_else(|| panic!("{message}"));
    assert!(
        cause.contains("docker.io/library/missing:1.9.1") && cause.contains("not found"),
        "the runtime's own words are missing: {message}"
    );
    assert!(
        tag["completionTime"].is_string() && tag["startTime"].is_string(),
        "{tag}"
    );
    // Not found is final: a second try would find no more.
    assert_eq!(tag["attempts"], 1);

    for object in ["imagepulljob/not-there", "nodeimage/node-1"] {
        wait_for(SOON, format!("an Event on {object}"), async || {
            let events = cluster.kubectl(&["events", "--for", object, "-A"]).await?;
            if events.contains("Warning") && events.contains("PullImageFailed") && events.contains("missing:1.9.1") {
                Ok(())
            } else {
                Err(events)
            }
        })
        .await
        .unwrap();
    }
}

/// The guide's sample shows both and says that only one of them can be set.
pub(crate) async fn names_and_labels_exclude_each_other(guide: &Guide) {
    let selector = json!({ "names": ["node-1", "node-2"], "matchLabels": { "node-type": "xxx" } });
    let job = json!({
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "ImagePullJob",
        "metadata": { "name": "both", "namespace": "default" },
        "spec": { "image": "nginx:1.9.1", "parallelism": 10, "selector": selector },
    });
    let refusal = guide.cluster.try_apply(&job).await.unwrap_err();
    assert!(
        refusal.contains("both names and a label selector; set only one of them"),
        "{refusal}"
    );
}
