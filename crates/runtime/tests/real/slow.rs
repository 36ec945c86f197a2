//! Pulls that take their time: bytes while they run, giving up, a registry that breaks off.

use std::{sync::Arc, time::Duration};

use larder_model::{ByteSize, Digest, ImageRef, Reason};
use larder_runtime::{ImageRuntime, Progress, PullRequest, PulledImage, RuntimeError};
use larder_testkit::{ContainerdVersion, Link, Registry, Throttle, image::Recipe, wait_for, wait_until};
use rstest::rstest;
use tokio::task::JoinHandle;

use super::{DEADLINE, MIB, Node, image};

/// A registry behind a slow line, with an image of some megabytes in it.
struct SlowRegistry {
    registry: Registry,
    line: Throttle,
}

impl SlowRegistry {
    async fn start(bytes_per_second: u64) -> Self {
        let registry = Registry::start(larder_testkit::Auth::Open).await.unwrap();
        let line = Throttle::start(registry.address()).await.unwrap();
        line.set(Link::bytes_per_second(bytes_per_second));
        Self { registry, line }
    }

    /// Pushes past the slow line; the name leads through it.
    async fn push(&self, recipe: &Recipe, name: &str, tag: &str) -> (ImageRef, u64, Digest) {
        let built = recipe.build();
        let pushed = self.registry.push(&built, name, tag).await.unwrap();
        let reference = image(&format!("{}/{name}:{tag}", self.line.host()));
        (reference, built.content_size(), Digest::parse(&pushed.digest).unwrap())
    }
}

fn start_pull(runtime: &Arc<dyn ImageRuntime>, request: PullRequest) -> JoinHandle<Result<PulledImage, RuntimeError>> {
    let runtime = Arc::clone(runtime);
    tokio::spawn(async move { runtime.pull(&request).await })
}

async fn progress_where(
    runtime: &Arc<dyn ImageRuntime>,
    image: &ImageRef,
    wanted: impl Fn(&Progress) -> bool,
) -> Progress {
    wait_for(DEADLINE, format!("progress of {image}"), async || {
        match runtime.progress(image).await {
            Ok(Some(progress)) if wanted(&progress) => Ok(progress),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap()
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn progress_grows_to_the_size_of_the_image(#[case] version: ContainerdVersion) {
    let slow = SlowRegistry::start(2 * MIB as u64).await;
    let (app, size, _) = slow.push(&Recipe::random(1, 2, 4 * MIB), "team/app", "v1").await;
    let node = Node::start(version).await;

    assert_eq!(node.runtime.progress(&app).await.unwrap(), None);
    let pull = start_pull(&node.runtime, PullRequest::new(app.clone()));
    let first = progress_where(&node.runtime, &app, |progress| ByteSize(0) < progress.done).await;
    assert_eq!(first.total, ByteSize(size));
    let second = progress_where(&node.runtime, &app, |progress| first.done < progress.done).await;
    assert_eq!(second.total, ByteSize(size));
    assert!(second.done < second.total, "{second:?}");

    slow.line.set(Link::Open);
    pull.await.unwrap().unwrap();
    assert_eq!(
        node.runtime.progress(&app).await.unwrap(),
        None,
        "nothing runs any more"
    );
}

/// Each pull shows its own total. Images of one repository are told apart by their digests; of tags nobody knows which
/// manifest is whose, and nothing is better than a guess.
#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn pulls_at_once_are_told_apart(#[case] version: ContainerdVersion) {
    let slow = SlowRegistry::start(MIB as u64).await;
    let (one, one_size, _) = slow.push(&Recipe::random(1, 1, 3 * MIB), "one", "v1").await;
    let (two, two_size, two_digest) = slow.push(&Recipe::random(5, 1, 4 * MIB), "two", "v1").await;
    let (sibling, sibling_size, sibling_digest) = slow.push(&Recipe::random(9, 1, 5 * MIB), "two", "v2").await;
    let by_digest = |image: &ImageRef, digest: &Digest| ImageRef::parse(&format!("{}@{digest}", image.name())).unwrap();
    let (two, sibling) = (by_digest(&two, &two_digest), by_digest(&sibling, &sibling_digest));
    let node = Node::start(version).await;

    let pulls = [
        start_pull(&node.runtime, PullRequest::new(one.clone())),
        start_pull(&node.runtime, PullRequest::new(two.clone())),
        start_pull(&node.runtime, PullRequest::new(sibling.clone())),
    ];
    for (name, size) in [(&one, one_size), (&two, two_size), (&sibling, sibling_size)] {
        let progress = progress_where(&node.runtime, name, |progress| ByteSize(0) < progress.done).await;
        assert_eq!(progress.total, ByteSize(size), "{name}");
    }
    slow.line.set(Link::Open);
    for pull in pulls {
        pull.await.unwrap().unwrap();
    }
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn tags_of_a_shared_repository_show_the_right_total_or_none(#[case] version: ContainerdVersion) {
    let slow = SlowRegistry::start(MIB as u64).await;
    let (first, first_size, _) = slow.push(&Recipe::random(1, 1, 3 * MIB), "app", "v1").await;
    let (second, second_size, _) = slow.push(&Recipe::random(5, 1, 4 * MIB), "app", "v2").await;
    let node = Node::start(version).await;

    let one = start_pull(&node.runtime, PullRequest::new(first.clone()));
    let two = start_pull(&node.runtime, PullRequest::new(second.clone()));
    let mut looked = 0;
    wait_until(DEADLINE, "twenty looks at both", async || {
        for (name, size) in [(&first, first_size), (&second, second_size)] {
            if let Some(progress) = node.runtime.progress(name).await.unwrap() {
                assert_eq!(progress.total, ByteSize(size), "{name}");
            }
        }
        looked += 1;
        looked == 20
    })
    .await
    .unwrap();
    slow.line.set(Link::Open);
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_dropped_pull_stops_in_the_runtime_too_and_can_be_repeated(#[case] version: ContainerdVersion) {
    let slow = SlowRegistry::start(MIB as u64).await;
    let (app, size, _) = slow.push(&Recipe::random(1, 1, 8 * MIB), "app", "v1").await;
    let node = Node::start(version).await;
    let request = PullRequest::new(app.clone());

    let timed_out = tokio::time::timeout(Duration::from_secs(1), node.runtime.pull(&request)).await;
    assert!(timed_out.is_err(), "8 MiB at 1 MiB a second take longer than a second");
    assert_eq!(node.runtime.progress(&app).await.unwrap(), None);
    // The runtime hears of it: the line falls silent.
    let mut before = slow.line.bytes();
    let mut quiet = 0;
    wait_until(DEADLINE, "the line to fall silent", async || {
        let now = slow.line.bytes();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        quiet == 5
    })
    .await
    .unwrap();
    assert!(before < size, "the whole image went over the line after all");
    assert_eq!(node.runtime.status(&app).await.unwrap(), None);

    let pull = start_pull(&node.runtime, request);
    let again = progress_where(&node.runtime, &app, |progress| ByteSize(0) < progress.done).await;
    assert_eq!(again.total, ByteSize(size));
    slow.line.set(Link::Open);
    pull.await.unwrap().unwrap();
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_registry_that_breaks_off_in_mid_pull_is_unreachable(#[case] version: ContainerdVersion) {
    let slow = SlowRegistry::start(2 * MIB as u64).await;
    let (app, _, _) = slow.push(&Recipe::random(1, 1, 8 * MIB), "app", "v1").await;
    let node = Node::start(version).await;
    let pull = start_pull(&node.runtime, PullRequest::new(app.clone()));
    progress_where(&node.runtime, &app, |progress| ByteSize(0) < progress.done).await;
    slow.line.set(Link::Refused);
    let error = pull.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Reason::Unreachable, "{}", error.text());
    slow.line.set(Link::Open);
    wait_for(DEADLINE, "the line to be back", async || {
        node.runtime.pull(&PullRequest::new(app.clone())).await
    })
    .await
    .unwrap();
}
