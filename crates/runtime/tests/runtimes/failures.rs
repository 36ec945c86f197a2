//! Pulls that fail, and the reasons that they get.

use larder_model::Reason;
use larder_runtime::{Credential, PullRequest};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, RuntimeKind, RuntimeOptions, wait_for};

use crate::node::{DEADLINE, MIB, Node, image, open_registry};
use crate::result::record;

on_every_runtime!(missing_tag, wrong_password, disk_full);

async fn missing_tag(kind: RuntimeKind) {
    let registry = open_registry().await;
    let built = Recipe::random(1, 1, 5000).build();
    registry.push(&built, "app", "v1").await.unwrap();
    let node = Node::start(kind).await;
    let host = registry.host();
    let absent = format!("{host}/app@sha256:{}", "a".repeat(64));
    for name in [format!("{host}/app:absent"), format!("{host}/absent:v1"), absent] {
        let error = node.pull(&image(&name)).await.unwrap_err();
        assert_eq!(error.reason(), Reason::NotFound, "{}", error.text());
        assert!(!node.has(&image(&name)).await);
    }
    node.pull(&image(&format!("{host}/app:v1"))).await.unwrap();
    record(kind, "missing-tag", &Reason::NotFound.to_string());
}

async fn wrong_password(kind: RuntimeKind) {
    let registry = Registry::start(Auth::basic("robot", "right")).await.unwrap();
    let built = Recipe::random(1, 1, 5000).build();
    let pushed = registry.push(&built, "private", "v1").await.unwrap();
    let node = Node::start(kind).await;
    for auth in [None, Some(Credential::basic("robot", "mistyped"))] {
        let request = PullRequest {
            auth,
            ..PullRequest::new(image(&pushed.reference))
        };
        let error = node.runtime.pull(&request).await.unwrap_err();
        assert_eq!(error.reason(), Reason::AuthDenied, "{}", error.text());
        assert!(!error.text().contains("mistyped"), "{}", error.text());
    }
    record(kind, "wrong-password", &Reason::AuthDenied.to_string());
}

async fn disk_full(kind: RuntimeKind) {
    let registry = open_registry().await;
    let large = Recipe::random(1, 1, 48 * MIB).build();
    let large = registry.push(&large, "large", "v1").await.unwrap();
    let small = Recipe::random(5, 1, 5000).build();
    let small = registry.push(&small, "small", "v1").await.unwrap();
    let node = Node::start_with(&RuntimeOptions {
        disk_size: Some(32 << 20),
        ..RuntimeOptions::new(kind)
    })
    .await;
    let fs = node.runtime.image_fs().await.unwrap();
    assert_eq!(fs.capacity.0, 32 << 20, "{fs:?}");

    let error = node.pull(&image(&large.reference)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::NoSpace, "{}", error.text());
    // Room comes back when the runtime has cleaned up what was not finished.
    wait_for(DEADLINE, "room for a small image", async || {
        node.pull(&image(&small.reference)).await
    })
    .await
    .unwrap();
    record(kind, "disk-full", &Reason::NoSpace.to_string());
}
