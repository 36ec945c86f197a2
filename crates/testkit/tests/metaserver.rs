//! The stand-in for MetaServer has the habits that agents must cope with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use std::pin::pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use larder_testkit::{Access, ControlPlane, Identity, MetaServer, Uplink, unique_name, wait_for};
use serde_json::json;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);
const A_WHILE: Duration = Duration::from_millis(500);

struct Scene {
    meta_server: MetaServer,
    /// By way of the API server.
    cloud: Api<ConfigMap>,
    /// By way of MetaServer.
    edge: Api<ConfigMap>,
}

impl Scene {
    async fn start() -> Self {
        let access: Access = ControlPlane::shared(&[]).await.unwrap();
        let client = access.client().unwrap();
        let name = unique_name("edge");
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        let binding = serde_json::from_value(json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("system:node:{name}") }],
        }))
        .unwrap();
        Api::<ClusterRoleBinding>::all(client.clone())
            .create(&PostParams::default(), &binding)
            .await
            .unwrap();
        let meta_server = MetaServer::start(&access, &name, Identity::Node).await.unwrap();
        let mut config = kube::Config::new(meta_server.url().parse().unwrap());
        config.default_retry = false;
        let edge = kube::Client::try_from(config).unwrap();
        let scene = Self {
            meta_server,
            cloud: Api::namespaced(client, &name),
            edge: Api::namespaced(edge, &name),
        };
        // Permissions take a moment to count.
        wait_for(SOON, "permission to list", async || {
            scene.edge.list(&ListParams::default()).await
        })
        .await
        .unwrap();
        scene
    }

    async fn create(&self, name: &str) {
        let object = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        self.cloud.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn names_at_the_edge(&self) -> Vec<String> {
        let list = self.edge.list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|item| item.metadata.name.unwrap()).collect()
    }
}

type Events<'a> = std::pin::Pin<&'a mut (dyn futures::Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Send)>;

/// Waits until a watch shows this name.
async fn until_shown(events: &mut Events<'_>, name: &str) {
    use futures::StreamExt as _;
    let shown = async {
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event.unwrap()
                && object.metadata.name.as_deref() == Some(name)
            {
                return;
            }
        }
        panic!("the watch ended before it showed {name}");
    };
    timeout(SOON, shown).await.unwrap();
}

/// Whether a watch says nothing for a while.
async fn is_silent(events: &mut Events<'_>) -> bool {
    use futures::StreamExt as _;
    timeout(A_WHILE, events.next()).await.is_err()
}

#[tokio::test]
async fn without_the_cloud_only_watched_and_read_objects_are_there_and_writes_fail() {
    let scene = Scene::start().await;
    scene.create("listed").await;
    let online = scene.edge.list(&ListParams::default()).await.unwrap();
    assert!(online.metadata.resource_version.is_some());
    scene.create("read").await;
    scene.edge.get("read").await.unwrap();

    scene.meta_server.set(Uplink::Down);
    assert_eq!(scene.names_at_the_edge().await, ["read"], "lists are not kept");
    let offline = scene.edge.list(&ListParams::default()).await.unwrap();
    assert_eq!(offline.metadata.resource_version, None);
    assert!(scene.edge.get("listed").await.is_err());
    let patch = Patch::Merge(json!({ "data": { "a": "b" } }));
    let refused = scene
        .edge
        .patch("read", &PatchParams::default(), &patch)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("connection lost"), "{refused}");

    scene.meta_server.set(Uplink::Up);
    scene.edge.patch("read", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(scene.cloud.get("read").await.unwrap().data.unwrap()["a"], "b");
}

#[tokio::test]
async fn a_watch_repeats_everything_and_delivers_late_what_it_could_not_deliver() {
    let scene = Scene::start().await;
    scene.create("before").await;
    let now = scene.edge.list(&ListParams::default()).await.unwrap();
    let version = now.metadata.resource_version.unwrap();
    let mut stream = pin!(scene.edge.watch(&WatchParams::default(), &version).await.unwrap());
    let mut events: Events<'_> = stream.as_mut();
    until_shown(&mut events, "before").await;
    scene.create("after").await;
    until_shown(&mut events, "after").await;

    scene.meta_server.set(Uplink::Down);
    scene.create("meanwhile").await;
    assert!(is_silent(&mut events).await);
    assert_eq!(
        scene.names_at_the_edge().await,
        ["after", "before"],
        "watched objects are kept"
    );
    scene.meta_server.set(Uplink::Up);
    until_shown(&mut events, "meanwhile").await;
}

#[tokio::test]
async fn watches_that_the_cloud_does_not_know_are_silent() {
    let scene = Scene::start().await;
    scene.edge.get_opt("nothing").await.unwrap();
    scene.meta_server.set(Uplink::Down);
    let mut stream = pin!(scene.edge.watch(&WatchParams::default(), "0").await.unwrap());
    let mut opened_offline: Events<'_> = stream.as_mut();
    scene.meta_server.set(Uplink::Up);
    scene.create("first").await;
    assert!(is_silent(&mut opened_offline).await, "opened while the cloud was away");

    let mut stream = pin!(scene.edge.watch(&WatchParams::default(), "0").await.unwrap());
    let mut forgotten: Events<'_> = stream.as_mut();
    until_shown(&mut forgotten, "first").await;
    scene.meta_server.forget_watches();
    scene.create("second").await;
    while !is_silent(&mut forgotten).await {}
    let mut stream = pin!(scene.edge.watch(&WatchParams::default(), "0").await.unwrap());
    let mut new: Events<'_> = stream.as_mut();
    until_shown(&mut new, "second").await;
    assert_eq!(scene.meta_server.watches(), 3);
}
