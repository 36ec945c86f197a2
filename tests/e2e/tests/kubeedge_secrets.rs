//! Secrets of an ImagePrePullJob: the right one for each registry, and none that is not there or makes no sense.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_api::ImagePrePullJobStatus;
use larder_e2e::Cluster;
use larder_e2e::kubeedge::{phases, text};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry};
use serde_json::json;

const MIB: usize = 1 << 20;

#[tokio::test]
async fn one_secret_with_several_registries_and_one_per_image() {
    let (one_auth, two_auth) = (Auth::basic("one", "first"), Auth::basic("two", "second"));
    let one = Registry::start(one_auth.clone()).await.unwrap();
    let two = Registry::start(two_auth.clone()).await.unwrap();
    let from_one = one
        .push(&Recipe::random(66, 1, MIB).build(), "a/app", "1")
        .await
        .unwrap();
    let from_two = two
        .push(&Recipe::random(67, 1, MIB).build(), "b/app", "1")
        .await
        .unwrap();
    let cluster = Cluster::start_edge(&[json!({})]).await;
    // A Secret with both logins, as `docker login` in two places leaves it.
    let config = json!({ "auths": {
        one.host(): { "username": "one", "password": "first" },
        two.host(): { "username": "two", "password": "second" },
    } });
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": { "name": "both", "namespace": "default" },
            "stringData": { ".dockerconfigjson": config.to_string() },
        }))
        .await;
    let template = json!({
        "images": [from_one.reference, from_two.reference], "nodeNames": ["edge-0"], "imageSecrets": "default/both",
    });
    cluster.prepull("both", template).await;
    let status = cluster.prepull_finished("both").await;
    assert_eq!(text(status.phase.as_ref()), "Completed", "{status:?}");
    for image in [&from_one, &from_two] {
        assert!(
            cluster.nodes[0].has_image(&image.reference, &image.digest).await,
            "{}",
            image.reference
        );
    }

    // A Secret of an image goes before the job's, which knows nothing of that registry; and one that comes late is
    // waited for.
    let late = one
        .push(&Recipe::random(68, 1, MIB).build(), "c/app", "1")
        .await
        .unwrap();
    cluster.create_registry_secret("for-two", &two.host(), &two_auth).await;
    let template = json!({
        "images": [{ "registry": one.host(), "repo": "c/app", "tag": "1", "imageSecret": "default/for-one" }],
        "nodeNames": ["edge-0"], "imageSecrets": "default/for-two",
    });
    cluster.prepull("per-image", template).await;
    // One that cannot be read is no success, and no pull without a password either.
    let unread = one
        .push(&Recipe::random(69, 1, MIB).build(), "d/app", "1")
        .await
        .unwrap();
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "broken", "namespace": "default" },
            "stringData": { ".dockerconfigjson": "not JSON at all" },
        }))
        .await;
    let template = json!({ "images": [unread.reference], "nodeNames": ["edge-0"], "imageSecrets": "default/broken" });
    cluster.prepull("unread", template).await;
    let jobs = [
        ("per-image", "default/for-one", &late),
        ("unread", "closed to ImagePrePullJobs: default/broken", &unread),
    ];
    for (job, says, image) in jobs {
        let named = |status: &ImagePrePullJobStatus| {
            serde_json::to_string(&status.progress).is_ok_and(|text| text.contains(says))
        };
        let status = cluster.prepull_until(job, "the Secret to be named", named).await;
        assert_eq!(phases(&status), [("edge-0", "Pending")]);
        assert_eq!(cluster.nodes[0].containerd.pulls(&image.reference), 0);
    }
    cluster.kubectl(&["delete", "secret", "broken"]).await.unwrap();
    for secret in ["for-one", "broken"] {
        cluster.create_registry_secret(secret, &one.host(), &one_auth).await;
    }
    for (job, _, image) in jobs {
        let status = cluster.prepull_finished(job).await;
        assert_eq!(phases(&status), [("edge-0", "Successful")], "{status:?}");
        assert!(cluster.nodes[0].has_image(&image.reference, &image.digest).await);
    }
}
