//! Real pulls by real containerds from a real registry.

use larder_api::node_image::ImageTagStatus;
use larder_model::{Phase, Reason};
use larder_testkit::image::{Format, Index, Platform, Recipe};
use larder_testkit::{Auth, Containerd, ContainerdVersion, CriProxy, Link, Registry, Throttle, wait_until};
use rstest::rstest;

use super::scene::{Change, EntryName, Node, SOON, if_not_present, says, tag};

pub(crate) const MIB: usize = 1 << 20;

fn other_architecture() -> Platform {
    let other = if Platform::here().architecture == "amd64" {
        "arm64"
    } else {
        "amd64"
    };
    Platform::linux(other)
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_public_image_by_tag_and_by_digest(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let image = Recipe::random(1, 2, MIB).build();
    let first = registry.push(&image, "app", "1").await.unwrap();
    let second = registry
        .push(&Recipe::random(2, 1, MIB).build(), "other", "2")
        .await
        .unwrap();
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let agent = node.containerd(&containerd, Change::default());

    let wanted = node.pull(&first.reference, |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.digest.as_deref()),
        (Phase::Succeeded, Some(first.digest.as_str())),
        "{status:?}"
    );
    assert_eq!(status.attempts, Some(1));
    let size = i64::try_from(image.content_size()).unwrap();
    assert_eq!(
        (status.bytes_done, status.bytes_total),
        (Some(size), Some(size)),
        "however short the pull was"
    );

    let wanted = node.pull(&second.by_digest, |_| {}).await;
    assert_eq!(wanted.tag, second.digest);
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.digest.as_deref()),
        (Phase::Succeeded, Some(second.digest.as_str())),
        "{status:?}"
    );

    let wanted = node
        .pull(&second.by_digest, |entry| {
            entry.version = 1;
            if_not_present(entry);
        })
        .await;
    let status = node
        .until(&wanted, "the second answer", |status| status.version == Some(1))
        .await;
    assert_eq!(
        (status.phase(), status.attempts),
        (Phase::Succeeded, Some(0)),
        "a digest that is there is not pulled"
    );

    let listed = containerd.ctr(["images", "ls", "-q"]).await.unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains(&first.reference) && listed.contains(&second.by_digest),
        "{listed}"
    );
    let runtime = node.get().await.status.unwrap().agent.unwrap().runtime.unwrap();
    assert!(runtime.starts_with("containerd "), "{runtime}");
    agent.stop().await;
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn an_index_gives_the_image_of_this_platform(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let here = Recipe::random(1, 1, MIB).build();
    let there = Recipe::random(2, 1, MIB).platform(other_architecture()).build();
    let index = Index::new(Format::Oci, vec![there.clone(), here]);
    let both = registry.push_index(&index, "multi", "1").await.unwrap();
    let foreign = registry
        .push_index(&Index::new(Format::Oci, vec![there]), "foreign", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());

    let wanted = node.pull(&both.reference, |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!((status.phase(), status.digest), (Phase::Succeeded, Some(both.digest)));

    let wanted = node.pull(&foreign.reference, |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::NoPlatform)),
        "{status:?}"
    );
    assert!(status.message.unwrap().ends_with(Reason::NoPlatform.advice()));
}

/// Runtimes take a lone image of another architecture as it is; no container would ever start from it. What is on the node
/// already is not judged: somebody has put it there.
#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_lone_image_of_another_platform_is_not_pulled_with_success_but_counts_as_present(
    #[case] version: ContainerdVersion,
) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let there = Recipe::random(2, 1, MIB).platform(other_architecture()).build();
    let foreign = registry.push(&there, "lone", "1").await.unwrap();
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());

    // The second finds on the node what the first has pulled.
    for (policy, version, want) in [
        ("Always", 0, (Phase::Failed, Some(Reason::NoPlatform))),
        ("IfNotPresent", 1, (Phase::Succeeded, None)),
    ] {
        let wanted = node
            .pull(&foreign.reference, |entry| {
                entry.image_pull_policy = Some(policy.into());
                entry.version = version;
            })
            .await;
        let done = |status: &ImageTagStatus| status.version() == version && status.phase().is_final();
        let status = node.until(&wanted, "an answer", done).await;
        assert_eq!((status.phase(), status.reason()), want, "{policy}: {status:?}");
        let told = status.message.unwrap_or_default().contains("is built for linux/");
        assert_eq!(told, want.1.is_some(), "{policy}");
    }
}

#[tokio::test]
async fn a_node_that_emulates_may_be_told_to_take_images_of_another_platform() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let there = Recipe::random(2, 1, MIB).platform(other_architecture()).build();
    let foreign = registry.push(&there, "lone", "1").await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let change = Change {
        accept_foreign_images: true,
        ..Change::default()
    };
    let _agent = node.containerd(&containerd, change);
    let wanted = node.pull(&foreign.reference, |_| {}).await;
    let done = |status: &ImageTagStatus| status.phase().is_final();
    let status = node.until(&wanted, "an answer", done).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Succeeded, None),
        "{status:?}"
    );
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_tag_that_is_not_there_fails_after_one_try(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&format!("{}/app:missing", registry.host()), |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::NotFound)),
        "{status:?}"
    );
    assert_eq!(status.attempts, Some(1));
    let message = status.message.unwrap();
    let begin = format!("Failed to pull image reference \"{}/app:missing\": ", registry.host());
    assert!(
        message.starts_with(&begin) && message.ends_with(Reason::NotFound.advice()),
        "{message}"
    );
}

#[tokio::test]
async fn the_runtime_sees_labels_annotations_and_the_mark_of_a_warm_up() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let proxy = CriProxy::start(&containerd.socket()).unwrap();
    let node = Node::new().await;
    let place = larder_agent::RuntimePlace {
        endpoint: Some(larder_runtime::RuntimeEndpoint::at(proxy.socket())),
        ..larder_agent::RuntimePlace::default()
    };
    let _agent = node.start(larder_agent::RuntimeSource::Found(place), Change::default());
    let wanted = node.pull(&pushed.reference, |_| {}).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
    let config = serde_json::json!({"labels": {"team": "blue"}, "annotations": {"note": "hello"}});
    let path = format!("/spec/images/{}/sandboxConfig", wanted.name.replace('/', "~1"));
    let version = format!("/spec/images/{}/tags/0/version", wanted.name.replace('/', "~1"));
    node.patch(serde_json::json!([
        {"op": "add", "path": path, "value": config},
        {"op": "add", "path": version, "value": 1},
    ]))
    .await;
    node.until(&wanted, "the second pull", |status| {
        status.version == Some(1) && status.phase().is_final()
    })
    .await;
    let calls = proxy.calls_of("PullImage");
    assert_eq!(calls.len(), 2);
    let text = String::from_utf8_lossy(&calls[1].request).into_owned();
    for word in [
        "team",
        "blue",
        "note",
        "hello",
        "apps.kruise.io/pulling-image-by",
        "kruise-daemon",
    ] {
        assert!(text.contains(word), "{word} is not in the request");
    }
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_slow_registry_shows_growing_bytes_and_a_withdrawn_order_stops_it(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let image = Recipe::random(1, 2, 4 * MIB).build();
    registry.push(&image, "big", "1").await.unwrap();
    line.set(Link::bytes_per_second(500_000));
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&format!("{}/big:1", line.host()), |_| {}).await;
    let first = node
        .until(&wanted, "the first bytes", |status| status.bytes_done > Some(0))
        .await;
    assert_eq!(first.phase(), Phase::Pulling);
    let later = node
        .until(&wanted, "more bytes", |status| status.bytes_done > first.bytes_done)
        .await;
    assert_eq!(later.bytes_total, Some(i64::try_from(image.content_size()).unwrap()));
    assert!(later.progress.unwrap() < 100);

    node.order(&[]).await;
    let quiet = async || {
        let before = line.bytes();
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        line.bytes() == before
    };
    wait_until(SOON, "the line to fall silent", quiet).await.unwrap();
    assert!(line.bytes() < image.content_size(), "the rest was not fetched");
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_slow_registry_runs_into_the_timeout_and_the_next_try_goes_on(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, MIB).build(), "app", "1")
        .await
        .unwrap();
    line.set(Link::Stalled);
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{}/app:1", line.host()), |entry| {
            entry.pull_policy.timeout_seconds = 2;
            entry.pull_policy.backoff_limit = 5;
        })
        .await;
    let status = node
        .until(&wanted, "a timeout", |status| status.reason() == Some(Reason::Timeout))
        .await;
    assert_eq!(status.phase(), Phase::Pulling, "another try follows");
    line.set(Link::Open);
    let status = node.until_done(&wanted).await;
    assert_eq!((status.phase(), status.reason()), (Phase::Succeeded, None));
    assert!(status.attempts > Some(1));
}

#[tokio::test]
async fn a_timeout_that_is_the_last_try_fails_with_its_reason() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, MIB).build(), "app", "1")
        .await
        .unwrap();
    line.set(Link::Stalled);
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{}/app:1", line.host()), |entry| {
            entry.pull_policy.timeout_seconds = 1;
            entry.pull_policy.backoff_limit = 0;
        })
        .await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason(), status.attempts),
        (Phase::Failed, Some(Reason::Timeout), Some(1))
    );
    assert!(status.message.unwrap().ends_with(Reason::Timeout.advice()));
}

#[tokio::test]
async fn with_the_limit_at_one_the_runtime_gets_one_pull_at_a_time() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    for (seed, name) in [(1, "a"), (2, "b")] {
        registry
            .push(&Recipe::random(seed, 1, MIB).build(), name, "1")
            .await
            .unwrap();
    }
    line.set(Link::bytes_per_second(500_000));
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let change = Change {
        max_pulls: Some(1),
        ..Change::default()
    };
    let _agent = node.containerd(&containerd, change);
    let names = [format!("{}/a", line.host()), format!("{}/b", line.host())];
    node.order(&[(&names[0], tag("1")), (&names[1], tag("1"))]).await;
    let (first, second) = (EntryName::new(&names[0], "1"), EntryName::new(&names[1], "1"));
    node.until_phase(&first, Phase::Pulling).await;
    assert_eq!(
        node.get().await.result(&second.name, "1").unwrap().phase(),
        Phase::Waiting
    );
    node.until_phase(&second, Phase::Pulling).await;
    assert_eq!(
        node.get().await.result(&first.name, "1").unwrap().phase(),
        Phase::Succeeded
    );
    node.until_phase(&second, Phase::Succeeded).await;
}

pub(crate) async fn connected(containerd: &Containerd) -> std::sync::Arc<dyn larder_runtime::ImageRuntime> {
    let endpoint = larder_runtime::RuntimeEndpoint::at(containerd.socket());
    larder_runtime::connect(&endpoint, std::path::Path::new("/"))
        .await
        .unwrap()
}

/// Whether CRI reports a pinned image.
async fn pinned(containerd: &Containerd) -> bool {
    let images = connected(containerd).await.list().await.unwrap();
    images.iter().any(|image| image.pinned)
}

#[tokio::test]
async fn a_pinned_image_survives_a_second_pull_and_cri_says_pinned() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&pushed.reference, |entry| entry.pin = true).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
    wait_until(SOON, "the pin", async || pinned(&containerd).await)
        .await
        .unwrap();
    node.pull(&pushed.reference, |entry| {
        entry.pin = true;
        entry.version = 1;
    })
    .await;
    node.until(&wanted, "the second pull", |status| {
        status.version == Some(1) && status.phase().is_final()
    })
    .await;
    assert!(pinned(&containerd).await, "the second pull took the pin away");
    node.order(&[]).await;
    wait_until(SOON, "the end of the pin", async || !pinned(&containerd).await)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_runtime_without_pins_says_so_and_the_image_is_there() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V1_6).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node.pull(&pushed.reference, |entry| entry.pin = true).await;
    let status = node
        .until(&wanted, "a word about the pin", |status| says(status, "not pinned"))
        .await;
    assert_eq!(status.phase(), Phase::Succeeded);
}

#[tokio::test]
async fn an_alias_takes_no_name_that_somebody_else_gave() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let ours = registry
        .push(&Recipe::random(1, 1, 1000).build(), "ours", "1")
        .await
        .unwrap();
    let theirs = registry
        .push(&Recipe::random(2, 1, 1000).build(), "theirs", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let runtime = connected(&containerd).await;
    let image = |text: &str| larder_model::ImageRef::parse(text).unwrap();
    let request = larder_runtime::PullRequest::new(image(&theirs.reference));
    let before = runtime.pull(&request).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&ours.reference, |entry| entry.alias = Some(theirs.reference.clone()))
        .await;
    let status = node
        .until(&wanted, "a word about the name", |status| {
            says(status, "not under the name")
        })
        .await;
    assert_eq!(status.phase(), Phase::Succeeded, "the image itself is there");
    let message = status.message.unwrap();
    assert!(message.contains("not ours"), "{message}");
    let after = runtime.status(&image(&theirs.reference)).await.unwrap().unwrap();
    assert_eq!(after.id, before.id, "it is still theirs");
}
