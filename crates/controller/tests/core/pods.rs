//! podSelector: nodes on which matching pods of the job's namespace run.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::fleet::{Fleet, QUICK};
use crate::stage::Stage;

async fn pod(stage: &Stage, namespace: &str, name: &str, node: &str, app: &str) {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "busybox"}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Api::<Pod>::namespaced(stage.client.clone(), namespace)
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_job_follows_the_pods_of_its_own_namespace() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 4]).await;
    pod(&stage, &stage.namespace, "one", "node-0", "web").await;
    pod(&stage, &stage.namespace, "other-app", "node-1", "db").await;
    pod(&stage, "default", "other-namespace", "node-2", "web").await;
    let spec = json!({
        "image": "nginx:1", "completionPolicy": {"type": "Never"}, "podSelector": {"matchLabels": {"app": "web"}},
    });
    stage.submit("job", spec).await;
    let counts = |job: &larder_api::ImagePullJob| {
        let status = job.status.clone().unwrap_or_default();
        (status.desired, status.succeeded)
    };
    stage
        .job_becomes("job", "done on one node", |job| counts(job) == (1, 1))
        .await;
    assert_eq!((fleet.pulls("node-0"), fleet.all_pulls()), (1, 1));
    pod(&stage, &stage.namespace, "two", "node-3", "web").await;
    stage
        .job_becomes("job", "done on two nodes", |job| counts(job) == (2, 2))
        .await;
    let pods = Api::<Pod>::namespaced(stage.client.clone(), &stage.namespace);
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    pods.delete("one", &now).await.unwrap();
    stage
        .job_becomes("job", "down to one node", |job| counts(job) == (1, 1))
        .await;
    stage
        .node_becomes("node-0", "left alone", |object| object.spec.images.is_empty())
        .await;
}
