//! Images that have layers in common.

use super::*;

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn layers_that_two_images_share_are_fetched_once(#[case] version: ContainerdVersion) {
    let line = Line::start(4 * MIB).await;
    // Neighbouring seeds: two of three layers are the same.
    let (one, two) = (
        Recipe::random(1, 3, 5 * MIB).build(),
        Recipe::random(2, 3, 5 * MIB).build(),
    );
    let (first, second) = (line.push(&one, "one").await, line.push(&two, "two").await);
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let pulls = [start_pull(&node.runtime, &first), start_pull(&node.runtime, &second)];
    for pull in pulls {
        let pulled = pull.await.unwrap().unwrap();
        assert!(matches!(pulled.path, FetchPath::Fetcher(_)), "{:?}", pulled.path);
    }
    let moved = line.line.bytes();
    let once = one.content_size() * 4 / 3;
    assert!(moved * 100 <= once * 105, "{moved} bytes for {once}");
}

/// Small enough for one request each: the registry's own log tells how often they were asked for.
#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn each_layer_of_images_that_are_pulled_together_is_asked_for_once(#[case] version: ContainerdVersion) {
    let line = Line::start(MIB / 2).await;
    let images = [1, 2, 3].map(|seed| Recipe::random(seed, 20, 250_000).build());
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let settings = FetchSettings {
        connections: 1,
        ..FetchSettings::default()
    };
    let runtime = fetching_runtime_with(&node.containerd, settings).await;
    let mut names = Vec::new();
    for (number, built) in images.iter().enumerate() {
        names.push(line.push(built, &format!("app-{number}")).await);
    }
    let pulls: Vec<_> = names.iter().map(|name| start_pull(&runtime, name)).collect();
    let mut paths = Vec::new();
    for pull in pulls {
        paths.push(pull.await.unwrap().unwrap().path);
    }
    assert!(matches!(paths[0], FetchPath::Fetcher(_)), "{paths:?}");
    let served = line.registry.served();
    let layers: BTreeSet<&str> = images.iter().flat_map(Image::layers).map(Blob::digest).collect();
    assert_eq!(layers.len(), 22, "most are shared");
    for layer in layers {
        let asked = served
            .iter()
            .filter(|request| request.method == "GET" && request.path.ends_with(layer));
        assert_eq!(asked.count(), 1, "{layer}");
    }
}

/// The pull that brought a shared layer is given up, and what it left goes.
#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_layer_that_another_pull_brought_outlives_that_pull(#[case] version: ContainerdVersion) {
    let line = Line::start(2 * MIB).await;
    let with_base = |own: u64| Recipe::new([Layer::random(1, 2 * MIB), Layer::random(own, 48 * MIB)]).build();
    let (one, two) = (with_base(2), with_base(3));
    let (first, second) = (line.push(&one, "one").await, line.push(&two, "two").await);
    let base = one.layers()[0].digest();
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let has_base = async || labels(&node.containerd).await.contains_key(base);
    let pull = start_pull(&node.runtime, &first);
    wait_until(DEADLINE, "the shared layer", has_base).await.unwrap();
    pull.abort();
    pull.await.unwrap_err();

    let pull = start_pull(&node.runtime, &second);
    wait_for_bytes(&line.line, line.line.bytes() + 4 * MIB as u64).await;
    node.runtime.drop_unfinished(&[second.clone()].into()).await.unwrap();
    assert!(has_base().await, "the second pull needs it");
    let pulled = pull.await.unwrap().unwrap();
    let new = two.layers()[1].size() + two.config().size();
    assert_eq!(pulled.fetched, Some(ByteSize(new)));
}
