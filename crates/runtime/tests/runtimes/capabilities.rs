//! Pins and aliases, or the sentence that says why there are none.

use larder_runtime::{RuntimeError, Support};
use larder_testkit::image::Recipe;
use larder_testkit::{ContainerdVersion, RuntimeKind};

use crate::node::{Node, image, open_registry};
use crate::result::record_support;

on_every_runtime!(pins, aliases);

/// Either the call works or it is refused with the reason that the capability gives.
fn agrees(support: &Support, result: &Result<(), RuntimeError>) {
    let refused = match result {
        Err(RuntimeError::Unsupported { why, .. }) => Some(why.as_str()),
        Ok(()) | Err(_) => None,
    };
    assert_eq!(refused, support.why_not(), "{result:?}");
    assert_eq!(result.is_ok(), support.is_yes(), "{result:?}");
}

async fn pins(kind: RuntimeKind) {
    let registry = open_registry().await;
    let built = Recipe::random(1, 1, 5000).build();
    let pushed = registry.push(&built, "app", "v1").await.unwrap();
    let app = image(&pushed.reference);
    let node = Node::start(kind).await;
    node.pull(&app).await.unwrap();
    let support = node.runtime.capabilities().await.unwrap().pin;
    let can = matches!(
        kind,
        RuntimeKind::Containerd(ContainerdVersion::V1_7 | ContainerdVersion::V2)
    );
    assert_eq!(support.is_yes(), can);

    agrees(&support, &node.runtime.pin(&app).await);
    let pinned = async || node.runtime.status(&app).await.unwrap().unwrap().pinned;
    assert_eq!(pinned().await, can);
    node.pull(&app).await.unwrap();
    assert_eq!(pinned().await, can, "a pin survives pulling again");
    node.runtime.unpin(&app).await.unwrap();
    assert_eq!(node.runtime.own_references().await.unwrap(), []);
    assert!(node.has(&app).await);
    record_support(&node, kind, "pins", &support).await;
}

async fn aliases(kind: RuntimeKind) {
    let registry = open_registry().await;
    let built = Recipe::random(1, 1, 5000).build();
    let pushed = registry.push(&built, "mirror/app", "v1").await.unwrap();
    let (app, alias) = (image(&pushed.reference), image("registry.example.com/team/app:v1"));
    let node = Node::start(kind).await;
    node.pull(&app).await.unwrap();
    let support = node.runtime.capabilities().await.unwrap().alias;
    assert_eq!(support.is_yes(), matches!(kind, RuntimeKind::Containerd(_)));

    agrees(&support, &node.runtime.alias(&app, &alias).await);
    assert_eq!(node.has(&alias).await, support.is_yes());
    let own = node.runtime.own_references().await.unwrap();
    assert_eq!(own.len(), usize::from(support.is_yes()));
    assert!(node.has(&app).await);
    record_support(&node, kind, "aliases", &support).await;
}
