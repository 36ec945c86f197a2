//! Pulls that take their time: given up, cut off by the end of the runtime, watched.

use larder_model::{ByteSize, Reason};
use larder_testkit::{Link, RuntimeKind, wait_for, wait_until};

use crate::node::{DEADLINE, Node, SlowImage};
use crate::result::{record, record_support};

on_every_runtime!(cancellation, killed_during_a_pull, byte_progress);

/// Runtimes whose CRI gives the pull no way to end with the call.
fn pulls_on_after_cancellation(kind: RuntimeKind) -> bool {
    matches!(kind, RuntimeKind::Docker)
}

async fn cancellation(kind: RuntimeKind) {
    let slow = SlowImage::start().await;
    let node = Node::start(kind).await;
    let pull = node.start_pull(&slow.name);
    slow.wait_for_bytes().await;
    pull.abort();
    assert!(pull.await.unwrap_err().is_cancelled());
    assert_eq!(node.runtime.progress(&slow.name).await.unwrap(), None);

    let mut before = slow.line.bytes();
    let mut quiet = 0;
    wait_until(DEADLINE, "the line to fall silent", async || {
        let now = slow.line.bytes();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        quiet == 8
    })
    .await
    .unwrap();
    let pulled_on = slow.built.content_size() <= before;
    assert_eq!(pulled_on, pulls_on_after_cancellation(kind), "{before} bytes");

    slow.line.set(Link::Open);
    node.pull(&slow.name).await.unwrap();
    let saw = if pulled_on {
        "no: the runtime finishes a pull whose caller has gone"
    } else {
        "yes"
    };
    record(kind, "cancellation", saw);
}

async fn killed_during_a_pull(kind: RuntimeKind) {
    let slow = SlowImage::start().await;
    let mut node = Node::start(kind).await;
    let pull = node.start_pull(&slow.name);
    slow.wait_for_bytes().await;
    node.server.kill().unwrap();
    let cut_off = pull.await.unwrap().unwrap_err();
    // cri-dockerd goes on and says that a connection broke, but not that it was the one to the engine.
    let expected = match kind {
        RuntimeKind::Docker => Reason::Unreachable,
        RuntimeKind::Containerd(_) | RuntimeKind::CriO => Reason::RuntimeDown,
    };
    assert_eq!(cut_off.reason(), expected, "{}", cut_off.text());
    let away = node.pull(&slow.name).await.unwrap_err();
    assert_eq!(away.reason(), Reason::RuntimeDown, "{}", away.text());

    // The same object, without being told, finds it again.
    node.server.restart().await.unwrap();
    slow.line.set(Link::Open);
    node.pull(&slow.name).await.unwrap();
    assert!(node.has(&slow.name).await);
    record(kind, "killed", &expected.to_string());
}

async fn byte_progress(kind: RuntimeKind) {
    let slow = SlowImage::start().await;
    let node = Node::start(kind).await;
    let support = node.runtime.capabilities().await.unwrap().progress;
    assert_eq!(support.is_yes(), matches!(kind, RuntimeKind::Containerd(_)));
    let pull = node.start_pull(&slow.name);
    slow.wait_for_bytes().await;
    if support.is_yes() {
        let progress = wait_for(DEADLINE, "bytes of the pull", async || {
            match node.runtime.progress(&slow.name).await {
                Ok(Some(progress)) if ByteSize(0) < progress.done => Ok(progress),
                other => Err(format!("{other:?}")),
            }
        });
        let progress = progress.await.unwrap();
        assert_eq!(progress.total, ByteSize(slow.built.content_size()));
        assert!(progress.done < progress.total, "{progress:?}");
    } else {
        assert_eq!(node.runtime.progress(&slow.name).await.unwrap(), None);
    }
    slow.line.set(Link::Open);
    pull.await.unwrap().unwrap();
    record_support(&node, kind, "progress", &support).await;
}
