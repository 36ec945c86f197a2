//! Which nodes: by name, by label, by pods; lists; jobs that stay.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_e2e::SOON;
use larder_testkit::{wait_for, wait_until};
use serde_json::json;

use crate::Guide;

pub(crate) async fn by_name_by_label_and_by_pods(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    let image = guide.publish(1, "nginx", "1.9.1").await;

    guide.apply("imagepulljob-by-name.yaml").await;
    let status = cluster.finished("job-with-always").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (2, 2, 0));
    assert_eq!(status.message.as_deref(), Some("job has completed"));
    assert_eq!(guide.holders("nginx:1.9.1", &image.digest).await, [1, 2]);
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Complete",
            "imagepulljob/job-with-always",
            "--timeout=10s",
        ])
        .await
        .unwrap();
    let table = cluster
        .kubectl(&["get", "imagepulljob", "job-with-always"])
        .await
        .unwrap();
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        words[0],
        ["NAME", "TOTAL", "ACTIVE", "SUCCEED", "FAILED", "AGE", "MESSAGE"]
    );
    assert_eq!(words[1][..5], ["job-with-always", "2", "0", "2", "0"], "{table}");
    assert!(table.trim_end().ends_with("job has completed"), "{table}");

    wait_until(SOON, "the one Event of the end", async || {
        let events = cluster
            .kubectl(&["events", "--for", "imagepulljob/job-with-always", "--no-headers"])
            .await
            .unwrap();
        events.lines().count() == 1 && events.contains("PullImageSucceed")
    })
    .await
    .unwrap();

    cluster
        .kubectl(&["label", "node", "node-2", "node-type=xxx"])
        .await
        .unwrap();
    wait_until(SOON, "the label to be mirrored", async || {
        let labels = cluster.node_image("node-2").await.metadata.labels.unwrap_or_default();
        labels.get("node-type").is_some_and(|value| value == "xxx")
    })
    .await
    .unwrap();
    guide.apply("imagepulljob-by-label.yaml").await;
    let status = cluster.finished("job-by-label").await;
    assert_eq!((status.desired, status.succeeded), (1, 1));
    let pulls: Vec<usize> = pulls(guide, "nginx:1.9.1");
    assert_eq!(pulls, [0, 1, 1], "what is there is not pulled again");

    assert_eq!(watches_of_pods(guide).await, 0, "before anybody needs them");
    let pod = json!({
        "metadata": { "name": "web", "labels": { "pod-label": "xxx" } },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "web", "image": "web" }] },
    });
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    guide.apply("imagepulljob-by-pods.yaml").await;
    let status = cluster.finished("job-by-pods").await;
    assert_eq!((status.desired, status.succeeded), (1, 1));
    assert_eq!(guide.holders("nginx:1.9.1", &image.digest).await, [1, 2]);
    wait_until(SOON, "the watch of pods to end with the job", async || {
        watches_of_pods(guide).await == 0
    })
    .await
    .unwrap();

    // The same for a job that stays, so that its watch can be seen.
    let patch =
        json!({ "podSelector": { "matchLabels": { "pod-label": "xxx" } }, "completionPolicy": { "type": "Never" } });
    cluster.submit("stays", "nginx:1.9.1", &patch).await;
    wait_until(SOON, "a watch of pods", async || watches_of_pods(guide).await == 1)
        .await
        .unwrap();
    cluster.kubectl(&["delete", "imagepulljob", "stays"]).await.unwrap();
}

/// How often each node's runtime was asked to pull an image of docker.io.
fn pulls(guide: &Guide, image: &str) -> Vec<usize> {
    let nodes = guide.cluster.nodes.iter();
    nodes.map(|node| node.containerd.pulls(image)).collect()
}

/// Watches of the pods of a single namespace, as the API server counts them; only the controller has such.
async fn watches_of_pods(guide: &Guide) -> usize {
    let metrics = guide.cluster.kubectl(&["get", "--raw", "/metrics"]).await.unwrap();
    let counted = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_longrunning_requests{"))
        .filter(|line| line.contains(r#"resource="pods""#) && line.contains(r#"scope="namespace""#));
    counted
        .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
        .sum()
}

/// Two images onto two named nodes; one of them is there already.
pub(crate) async fn a_list(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    let image = guide.publish(2, "busybox", "1.29.2").await;
    guide.apply("imagelistpulljob.yaml").await;
    let lists = Api::<ImageListPullJob>::namespaced(cluster.client(), "default");
    let status = wait_for(SOON, "the list job to end", async || {
        let status = lists.get("job-with-always").await.unwrap().status.unwrap_or_default();
        if status.completion_time.is_some() {
            Ok(status)
        } else {
            Err(format!("{status:?}\n{}", cluster.logs()))
        }
    })
    .await
    .unwrap();
    assert_eq!((status.desired, status.succeeded, status.completed), (2, 2, 2));
    assert_eq!(guide.holders("busybox:1.29.2", &image.digest).await, [1, 2]);
    let children = Api::<ImagePullJob>::namespaced(cluster.client(), "default");
    let children = children.list(&ListParams::default()).await.unwrap().items;
    let owned = |child: &ImagePullJob| {
        let owners = child.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| {
            owner.kind == "ImageListPullJob" && owner.name == "job-with-always" && owner.controller == Some(true)
        })
    };
    let images: Vec<String> = children
        .iter()
        .filter(|child| owned(child))
        .map(|child| child.spec.image.clone())
        .collect();
    assert_eq!(images.len(), 2, "{images:?}");
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Complete",
            "imagelistpulljob/job-with-always",
            "--timeout=10s",
        ])
        .await
        .unwrap();

    // A base image that every node shall have: the third one follows.
    guide.apply("imagepulljob-never.yaml").await;
    wait_until(SOON, "every node to have it", async || {
        cluster.status("job-with-never").await.succeeded == 3
    })
    .await
    .unwrap();
    assert_eq!(guide.holders("busybox:1.29.2", &image.digest).await, [0, 1, 2]);
    assert_eq!(cluster.status("job-with-never").await.completion_time, None);
}
