//! `imagePullPolicy`, as the registry sees it.

use serde_json::json;

use crate::Guide;

pub(crate) async fn always_asks_the_registry_and_if_not_present_does_not(guide: &Guide) {
    let Guide { cluster, .. } = guide;
    let old = guide.publish(31, "nginx", "latest").await;
    cluster.submit("first", "nginx:latest", &json!({})).await;
    assert_eq!(cluster.finished("first").await.succeeded, 3);
    assert_eq!(guide.holders("nginx:latest", &old.digest).await, [0, 1, 2]);

    // The tag moves, and nobody who only wants it to be there asks.
    let new = guide.publish(32, "nginx", "latest").await;
    let tag = "/v2/library/nginx/manifests/latest";
    let asked = || {
        let served = guide.hub.served();
        let reads = served.iter().filter(|served| served.method != "PUT");
        reads.filter(|served| served.path == tag).count()
    };
    let before = asked();
    assert!(0 < before);
    cluster
        .submit("second", "nginx:latest", &json!({ "imagePullPolicy": "IfNotPresent" }))
        .await;
    assert_eq!(cluster.finished("second").await.succeeded, 3);
    assert_eq!(asked(), before, "IfNotPresent asked the registry");
    assert_eq!(guide.holders("nginx:latest", &old.digest).await, [0, 1, 2]);

    guide.apply("imagepulljob-refresh.yaml").await;
    let status = cluster.finished("job-with-refresh").await;
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 3, 0));
    assert!(before + 3 <= asked(), "Always did not ask the registry for every node");
    assert_eq!(guide.holders("nginx:latest", &new.digest).await, [0, 1, 2]);
    for node in &cluster.nodes {
        assert_eq!(node.containerd.pulls("nginx:latest"), 2, "pulls on {}", node.name);
    }
    // Who has its success keeps it, whatever came later.
    for job in ["first", "second"] {
        let status = cluster.status(job).await;
        assert_eq!((status.desired, status.succeeded, status.failed), (3, 3, 0), "{job}");
    }
}
