//! Pulls that succeed.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use larder_model::Digest;
use larder_runtime::{Credential, ImageEvent, MARKER_ANNOTATION, PullRequest, Sandbox};
use larder_runtime_proto::runtime::v1 as proto;
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, CriProxy, Registry, RuntimeKind, RuntimeOptions};
use prost::Message as _;

use crate::node::{DEADLINE, Node, connected, image, open_registry};
use crate::result::{record, short};

on_every_runtime!(
    tag_and_digest,
    an_image_that_is_there,
    an_image_that_is_removed,
    private_registry,
    mirror,
    sandbox_config
);

async fn tag_and_digest(kind: RuntimeKind) {
    let registry = open_registry().await;
    let first = Recipe::random(1, 3, 20_000).build();
    let first = registry.push(&first, "team/app", "v1").await.unwrap();
    let second = Recipe::random(5, 3, 20_000).build();
    let second = registry.push(&second, "team/app", "v2").await.unwrap();
    let node = Node::start(kind).await;
    record(kind, "version", &short(&node.runtime.version().await.unwrap()));

    let (tag, digest) = (image(&first.reference), image(&first.by_digest));
    assert!(!node.has(&tag).await);
    let pulled = node.pull(&tag).await.unwrap();
    assert_eq!(pulled.digest, Some(Digest::parse(&first.digest).unwrap()));
    for name in [&tag, &digest] {
        let there = node.runtime.status(name).await.unwrap().unwrap();
        assert!(there.answers_to(name) && there.id == pulled.id, "{there:?}");
    }
    record(kind, "tag", "yes");

    let (tag, digest) = (image(&second.reference), image(&second.by_digest));
    let pulled = node.pull(&digest).await.unwrap();
    assert_eq!(pulled.digest, Some(Digest::parse(&second.digest).unwrap()));
    assert!(node.has(&digest).await);
    assert!(!node.has(&tag).await, "the tag was not pulled");
    record(kind, "digest", "yes");
}

/// Removed through CRI, as the kubelet and `crictl` do: the runtime says so, or what it lists does, and it can be pulled again.
async fn an_image_that_is_removed(kind: RuntimeKind) {
    let registry = open_registry().await;
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let app = image(&pushed.reference);
    let node = Node::start(kind).await;
    let has_events = node.runtime.capabilities().await.unwrap().events.is_yes();
    if has_events {
        let mut events = node.runtime.events().await.unwrap();
        let deleted = async {
            let is_it = |event: &ImageEvent| std::future::ready(*event == ImageEvent::Deleted(app.clone()));
            let heard = events.by_ref().filter(is_it).next().await;
            assert!(heard.is_some(), "the stream ended although the runtime is there");
        };
        // Listening begins some time after the stream is polled, so the image is removed until somebody hears it.
        let remove = async {
            loop {
                node.pull(&app).await.unwrap();
                node.runtime.remove(&app).await.unwrap();
            }
        };
        let heard = async {
            tokio::select! {
                () = deleted => {}
                () = remove => {}
            }
        };
        tokio::time::timeout(DEADLINE, heard).await.unwrap();
    }
    node.pull(&app).await.unwrap();
    node.runtime.remove(&app).await.unwrap();
    assert_eq!(
        node.runtime.status(&app).await.unwrap(),
        None,
        "{:?}",
        node.runtime.list().await
    );
    assert_eq!(node.runtime.list().await.unwrap(), []);
    node.pull(&app).await.unwrap();
    assert!(node.has(&app).await);
    record(
        kind,
        "removal",
        if has_events { "at once" } else { "within 10 minutes" },
    );
}

/// It is recognised by tag and digest, and pulling it again fetches no layer.
async fn an_image_that_is_there(kind: RuntimeKind) {
    let registry = open_registry().await;
    let built = Recipe::random(1, 2, 20_000).build();
    let pushed = registry.push(&built, "app", "v1").await.unwrap();
    let (tag, digest) = (image(&pushed.reference), image(&pushed.by_digest));
    let node = Node::start(kind).await;
    node.pull(&tag).await.unwrap();
    let listed = node.runtime.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(
        listed[0].answers_to(&tag) && listed[0].answers_to(&digest),
        "{listed:?}"
    );
    let other = image(&format!("{}@sha256:{}", tag.name(), "a".repeat(64)));
    assert!(!node.has(&other).await);

    let layers_fetched = || {
        let layer = |path: &str| built.layers().iter().any(|layer| path.ends_with(layer.digest()));
        let served = registry.served();
        let fetched = served
            .iter()
            .filter(|served| served.method == "GET" && layer(&served.path));
        fetched.count()
    };
    let before = layers_fetched();
    assert!(before > 1);
    node.pull(&tag).await.unwrap();
    assert_eq!(layers_fetched(), before);
    record(kind, "present", "yes");
}

async fn private_registry(kind: RuntimeKind) {
    let registry = Registry::start(Auth::basic("robot", "right")).await.unwrap();
    let built = Recipe::random(1, 1, 5000).build();
    let pushed = registry.push(&built, "private", "v1").await.unwrap();
    let node = Node::start(kind).await;
    let request = PullRequest {
        auth: Some(Credential::basic("robot", "right")),
        ..PullRequest::new(image(&pushed.reference))
    };
    node.runtime.pull(&request).await.unwrap();
    assert!(node.has(&request.image).await);
    record(kind, "private", "yes");
}

/// As the runtime itself is configured; Larder has no part in it and must not stand in its way.
async fn mirror(kind: RuntimeKind) {
    let registry = open_registry().await;
    let built = Recipe::random(1, 1, 5000).build();
    registry.push(&built, "library/app", "v1").await.unwrap();
    let node = Node::start_with(&RuntimeOptions {
        docker_hub_mirror: Some(registry.host()),
        ..RuntimeOptions::new(kind)
    })
    .await;
    let name = image("docker.io/library/app:v1");
    node.pull(&name).await.unwrap();
    assert!(node.has(&name).await);
    let layer = format!("/v2/library/app/blobs/{}", built.layers()[0].digest());
    assert!(registry.served().iter().any(|served| served.path == layer));
    record(kind, "mirror", "yes");
}

/// The labels and annotations reach the runtime's socket, and the runtime takes them.
async fn sandbox_config(kind: RuntimeKind) {
    let registry = open_registry().await;
    let built = Recipe::random(1, 1, 5000).build();
    let pushed = registry.push(&built, "app", "v1").await.unwrap();
    let node = Node::start(kind).await;
    let proxy = CriProxy::start(&node.server.socket()).unwrap();
    let runtime = connected(proxy.socket()).await;
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let request = PullRequest {
        sandbox: Sandbox {
            labels: map("team", "shop"),
            annotations: map("io.kubernetes.cri.cgroup", "low"),
        },
        ..PullRequest::new(image(&pushed.reference))
    };
    runtime.pull(&request).await.unwrap();

    let message = proxy.calls_of("PullImage")[0].messages().remove(0);
    let sent = proto::PullImageRequest::decode(message)
        .unwrap()
        .sandbox_config
        .unwrap();
    assert_eq!(sent.labels["team"], "shop");
    assert_eq!(sent.annotations["io.kubernetes.cri.cgroup"], "low");
    assert_eq!(sent.annotations[MARKER_ANNOTATION.0], MARKER_ANNOTATION.1);
    record(kind, "sandbox-config", "yes");
}
