//! A runtime that dies in the middle of a pull, and a disk that runs full.

use std::sync::Arc;

use larder_model::{ByteSize, Reason};
use larder_runtime::PullRequest;
use larder_testkit::{
    Containerd, ContainerdOptions, ContainerdVersion, Link, Registry, Throttle, image::Recipe, wait_for,
};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};

use super::{DEADLINE, MIB, Node, image};

/// How a containerd ends: by accident, or because somebody upgrades it.
#[derive(Clone, Copy)]
enum End {
    Kill,
    Stop,
}

impl End {
    fn of(self, containerd: &mut Containerd) {
        match self {
            Self::Kill => containerd.kill().unwrap(),
            Self::Stop => {
                let pid = Pid::from_raw(containerd.pid().unwrap().cast_signed()).unwrap();
                kill_process(pid, Signal::TERM).unwrap();
            }
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_runtime_that_ends_in_mid_pull_is_down_and_then_back(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[values(End::Kill, End::Stop)] end: End,
) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, 8 * MIB).build(), "app", "v1")
        .await
        .unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(2 * MIB as u64));
    let request = PullRequest::new(image(&format!("{}/app:v1", line.host())));
    let mut node = Node::start(version).await;

    let pull = {
        let (runtime, request) = (Arc::clone(&node.runtime), request.clone());
        tokio::spawn(async move { runtime.pull(&request).await })
    };
    wait_for(DEADLINE, "the first bytes", async || {
        match node.runtime.progress(&request.image).await {
            Ok(Some(progress)) if ByteSize(0) < progress.done => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    end.of(&mut node.containerd);
    let broken = pull.await.unwrap().unwrap_err();
    assert_eq!(broken.reason(), Reason::RuntimeDown, "{}", broken.text());
    // It is gone for good only now: one that is stopped takes its time.
    node.containerd.kill().unwrap();
    let away = node.runtime.list().await.unwrap_err();
    assert_eq!(away.reason(), Reason::RuntimeDown, "{}", away.text());
    let away = node.runtime.pull(&request).await.unwrap_err();
    assert_eq!(away.reason(), Reason::RuntimeDown, "{}", away.text());

    // The same object, without being told, finds it again.
    node.containerd.restart().await.unwrap();
    line.set(Link::Open);
    node.runtime.pull(&request).await.unwrap();
    assert!(node.runtime.status(&request.image).await.unwrap().is_some());
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_full_disk_is_no_space(#[case] version: ContainerdVersion) {
    let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
    let large = registry
        .push(&Recipe::random(1, 1, 24 * MIB).build(), "large", "v1")
        .await
        .unwrap();
    let small = registry
        .push(&Recipe::random(5, 1, 5000).build(), "small", "v1")
        .await
        .unwrap();
    let node = Node::start_with(ContainerdOptions {
        disk_size: Some(16 << 20),
        ..ContainerdOptions::new(version)
    })
    .await;

    let error = node
        .runtime
        .pull(&PullRequest::new(image(&large.reference)))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), Reason::NoSpace, "{}", error.text());
    // Room comes back when containerd has cleaned up what was not finished.
    wait_for(DEADLINE, "room for a small image", async || {
        node.runtime.pull(&PullRequest::new(image(&small.reference))).await
    })
    .await
    .unwrap();
}
