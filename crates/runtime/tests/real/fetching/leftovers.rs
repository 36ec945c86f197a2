//! What stays in the store of pulls that failed, and when it leaves.

use super::*;

/// What was fetched of an image that cannot be had does not stay on the disk.
#[rstest]
#[case::layer_is_gone(None, Reason::NotFound)]
#[case::layer_has_other_bytes(Some("x"), Reason::InvalidImage)]
#[tokio::test]
async fn nothing_stays_of_an_image_that_cannot_be_had(
    #[values(ContainerdVersion::V1_7, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] sent: Option<&'static str>,
    #[case] reason: Reason,
) {
    let layers: Vec<_> = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64))).into();
    let promised = Promised::of_size(&layers, 5 * MIB);
    let registry = promised.serve(sent.map(|byte| byte.repeat(5 * MIB))).await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let host = registry.address.to_string();
    let hosts = format!("server = \"http://{host}\"\n");
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let request = PullRequest::new(image(&format!("{host}/app:v1")));
    let error = node.runtime.pull(&request).await.unwrap_err();
    assert_eq!(error.reason(), reason, "{}", error.text());
    wait_until_nothing_is_left(&node.containerd).await;
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_full_disk_gets_back_what_was_fetched(#[case] version: ContainerdVersion) {
    let line = Line::start(8 * MIB).await;
    let large = line.push(&Recipe::random(1, 2, 12 * MIB).build(), "large").await;
    let node = Node::start_fetching(ContainerdOptions {
        disk_size: Some(16 << 20),
        ..ContainerdOptions::new(version)
    })
    .await;
    let error = node.runtime.pull(&PullRequest::new(large)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::NoSpace, "{}", error.text());
    wait_until_nothing_is_left(&node.containerd).await;
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn what_was_fetched_for_an_image_that_nothing_orders_any_more_goes(#[case] version: ContainerdVersion) {
    let line = Line::start(MIB).await;
    let built = Recipe::random(1, 2, 8 * MIB).build();
    let app = line.push(&built, "app").await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let pull = start_pull(&node.runtime, &app);
    wait_for_bytes(&line.line, built.content_size() / 2).await;
    node.runtime.drop_unfinished(&BTreeSet::new()).await.unwrap();
    assert_ne!(
        leftovers(&node.containerd).await.0,
        "",
        "a pull that runs keeps its lease"
    );
    pull.abort();
    pull.await.unwrap_err();

    // An agent that starts finds what was left behind.
    let runtime = fetching_runtime(&node.containerd).await;
    runtime.drop_unfinished(&[app].into()).await.unwrap();
    assert_ne!(leftovers(&node.containerd).await.0, "", "the image is still ordered");
    runtime.drop_unfinished(&BTreeSet::new()).await.unwrap();
    wait_until_nothing_is_left(&node.containerd).await;
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn the_agent_leaves_alone_what_a_command_on_the_same_node_fetches(#[case] version: ContainerdVersion) {
    let line = Line::start(2 * MIB).await;
    let built = Recipe::random(1, 4, 4 * MIB).build();
    let app = line.push(&built, "app").await;
    let agent = Node::start_fetching(ContainerdOptions::new(version)).await;
    let command = fetching_runtime_of(FetchOwner::Command, &agent.containerd, FetchSettings::default()).await;
    let pull = start_pull(&command, &app);
    for share in [4, 6, 8] {
        wait_for_bytes(&line.line, built.content_size() * share / 10).await;
        agent.runtime.drop_unfinished(&BTreeSet::new()).await.unwrap();
        ctr(&agent.containerd, &["content", "prune", "references"]).await;
        assert_ne!(leftovers(&agent.containerd).await.0, "", "the command keeps its lease");
    }
    let pulled = pull.await.unwrap().unwrap();
    assert!(is_fetched(&pulled), "{:?}", pulled.path);
    assert_eq!(
        pulled.fetched,
        Some(ByteSize(built.content_size())),
        "each byte came once"
    );
    assert_over_the_line(&line.line, &built, 105);
    wait_until_nothing_is_left(&agent.containerd).await;
}
