//! Images that disappear behind our back.

use futures::StreamExt as _;
use larder_runtime::{ImageEvent, PullRequest};
use larder_testkit::{ContainerdVersion, Registry, image::Recipe};
use rstest::rstest;

use super::{DEADLINE, Node, image};

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_deleted_image_is_told(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let app = image(&pushed.reference);
    let node = Node::start(version).await;

    let mut events = node.runtime.events().await.unwrap();
    // Listening begins some time after the stream is polled, so the image is deleted until somebody hears it.
    let delete = async {
        loop {
            node.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
            node.runtime.remove(&app).await.unwrap();
        }
    };
    let hear = async {
        loop {
            match events.next().await {
                Some(ImageEvent::Deleted(name)) if name == app => break,
                Some(_) => {}
                None => panic!("the stream ended although the runtime is there"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, async {
        tokio::select! {
            () = hear => {}
            () = delete => {}
        }
    })
    .await
    .unwrap();
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn the_stream_ends_with_the_runtime(#[case] version: ContainerdVersion) {
    let mut node = Node::start(version).await;
    let mut events = node.runtime.events().await.unwrap();
    node.containerd.kill().unwrap();
    let ended = tokio::time::timeout(DEADLINE, events.next()).await.unwrap();
    assert_eq!(ended, None);
    assert!(node.runtime.events().await.is_err());
    node.containerd.restart().await.unwrap();
    assert!(node.runtime.events().await.is_ok());
}
