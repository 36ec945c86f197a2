//! Layers that we fetch into containerd's content store before CRI pulls the image.

mod leftovers;
mod shared_layers;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use larder_model::{ByteSize, ImageRef, Reason};
use larder_registry::fetch::FetchSettings;
use larder_runtime::{FetchOwner, FetchPath, ImageRuntime, LeftToRuntime, PullRequest, PulledImage, RuntimeError};
use larder_testkit::{
    Auth, Containerd, ContainerdOptions, ContainerdVersion, Link, Registry, Throttle,
    image::{Blob, Compression, Image, Layer, Recipe},
    wait_for, wait_until,
};
use rstest::rstest;
use tokio::task::JoinHandle;

use super::{
    DEADLINE, MIB, Node, fetching_runtime, fetching_runtime_of, fetching_runtime_with,
    hostile::Promised,
    image,
    stub::{Sent, Stub, answer},
};

/// A registry behind a line that is slow for each connection.
struct Line {
    registry: Registry,
    line: Throttle,
}

impl Line {
    async fn start(bytes_per_second: usize) -> Self {
        let registry = Registry::start(Auth::Open).await.unwrap();
        let line = Throttle::start(registry.address()).await.unwrap();
        line.set(Link::bytes_per_second(bytes_per_second as u64));
        Self { registry, line }
    }

    async fn push(&self, built: &Image, name: &str) -> ImageRef {
        self.registry.push(built, name, "v1").await.unwrap();
        image(&format!("{}/{name}:v1", self.line.host()))
    }
}

fn start_pull(runtime: &Arc<dyn ImageRuntime>, image: &ImageRef) -> JoinHandle<Result<PulledImage, RuntimeError>> {
    let (runtime, request) = (Arc::clone(runtime), PullRequest::new(image.clone()));
    tokio::spawn(async move { runtime.pull(&request).await })
}

async fn wait_for_bytes(line: &Throttle, bytes: u64) {
    wait_for(DEADLINE, "bytes on the line", async || {
        let now = line.bytes();
        if bytes <= now { Ok(()) } else { Err(now) }
    })
    .await
    .unwrap();
}

async fn ctr(containerd: &Containerd, args: &[&str]) -> String {
    let output = containerd.ctr(args).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Labels of every blob, by digest.
async fn labels(containerd: &Containerd) -> BTreeMap<String, Vec<String>> {
    let table = ctr(containerd, &["content", "ls"]).await;
    let rows = table.lines().skip(1).filter_map(|line| {
        let mut columns = line.split_whitespace();
        let digest = columns.next()?.to_owned();
        let labels = columns.next_back().unwrap_or_default();
        let mut labels: Vec<String> = labels.split(',').map(str::to_owned).collect();
        labels.sort();
        Some((digest, labels))
    });
    rows.collect()
}

/// At most so many percent of the image's bytes crossed the line.
fn assert_over_the_line(line: &Throttle, image: &Image, percent: u64) {
    let (moved, size) = (line.bytes(), image.content_size());
    assert!(moved * 100 <= size * percent, "{moved} bytes for {size}");
}

/// Names of our leases, and of half-finished blobs.
async fn leftovers(containerd: &Containerd) -> (String, String) {
    let leases = ctr(containerd, &["leases", "ls", "-q"]).await;
    let active = ctr(containerd, &["content", "active"]).await;
    let active: Vec<&str> = active.lines().skip(1).collect();
    (leases.trim().to_owned(), active.join("\n"))
}

async fn wait_until_nothing_is_left(containerd: &Containerd) {
    wait_for(DEADLINE, "no lease and no half-finished blob", async || {
        let leftovers = leftovers(containerd).await;
        if leftovers == (String::new(), String::new()) {
            Ok(())
        } else {
            Err(format!("{leftovers:?}"))
        }
    })
    .await
    .unwrap();
}

fn is_fetched(pulled: &PulledImage) -> bool {
    matches!(&pulled.path, FetchPath::Fetcher(hosts) if !hosts.is_empty())
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_fetched_image_is_as_one_that_cri_pulled(#[case] version: ContainerdVersion) {
    let line = Line::start(8 * MIB).await;
    let built = Recipe::random(1, 3, 5 * MIB).build();
    let app = line.push(&built, "team/app").await;
    let (fetching, plain) = (
        Node::start_fetching(ContainerdOptions::new(version)).await,
        Node::start(version).await,
    );
    let before = line.line.bytes();
    let pulled = fetching.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    let moved = line.line.bytes() - before;
    assert!(is_fetched(&pulled), "{:?}", pulled.path);
    assert_eq!(pulled.fetched, Some(ByteSize(built.content_size())));
    assert!(
        moved * 100 <= built.content_size() * 105,
        "{moved} bytes crossed the line"
    );

    let by_cri = plain.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    assert_eq!((pulled.id, pulled.digest), (by_cri.id, by_cri.digest));
    assert_eq!(labels(&fetching.containerd).await, labels(&plain.containerd).await);
    let leases = ctr(&fetching.containerd, &["leases", "ls", "-q"]).await;
    assert_eq!(leases.trim(), "", "nothing of ours stays");
    ctr(&fetching.containerd, &["images", "check"]).await;

    // A second pull of the same image moves no layer.
    let again = fetching.runtime.pull(&PullRequest::new(app)).await.unwrap();
    assert_eq!(again.path, FetchPath::LeftToRuntime(LeftToRuntime::Small));
}

#[rstest]
#[tokio::test]
async fn an_agent_that_is_gone_in_mid_fetch_goes_on_at_the_byte(
    #[values(ContainerdVersion::V1_7, ContainerdVersion::V2)] version: ContainerdVersion,
    #[values(30, 60, 90)] percent: u64,
) {
    let line = Line::start(4 * MIB).await;
    let built = Recipe::random(1, 2, 32 * MIB).build();
    let app = line.push(&built, "app").await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let pull = start_pull(&node.runtime, &app);
    wait_for_bytes(&line.line, built.content_size() * percent / 100).await;
    pull.abort();
    pull.await.unwrap_err();
    // Another process knows nothing but what containerd keeps.
    let pulled = fetching_runtime(&node.containerd)
        .await
        .pull(&PullRequest::new(app))
        .await
        .unwrap();
    assert!(is_fetched(&pulled), "{:?}", pulled.path);
    let left = built.content_size() * (100 - percent + 5) / 100;
    assert!(pulled.fetched.is_some_and(|fetched| fetched.0 <= left), "{pulled:?}");
    assert_over_the_line(&line.line, &built, 105);
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_containerd_that_is_killed_in_mid_fetch_has_what_it_was_given(#[case] version: ContainerdVersion) {
    let line = Line::start(2 * MIB).await;
    let built = Recipe::random(1, 2, 8 * MIB).build();
    let app = line.push(&built, "app").await;
    let mut node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let pull = start_pull(&node.runtime, &app);
    wait_for_bytes(&line.line, built.content_size() * 6 / 10).await;
    node.containerd.kill().unwrap();
    let error = pull.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Reason::RuntimeDown, "{}", error.text());
    node.containerd.restart().await.unwrap();
    let pulled = node.runtime.pull(&PullRequest::new(app)).await.unwrap();
    assert!(
        pulled
            .fetched
            .is_some_and(|fetched| fetched.0 < built.content_size() * 8 / 10),
        "{pulled:?}"
    );
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn garbage_collection_during_a_fetch_loses_nothing(#[case] version: ContainerdVersion) {
    let line = Line::start(2 * MIB).await;
    let built = Recipe::random(1, 4, 4 * MIB).build();
    let app = line.push(&built, "app").await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let pull = start_pull(&node.runtime, &app);
    for share in [3, 5, 7] {
        wait_for_bytes(&line.line, built.content_size() * share / 10).await;
        ctr(&node.containerd, &["content", "prune", "references"]).await;
    }
    let pulled = pull.await.unwrap().unwrap();
    assert!(is_fetched(&pulled), "{:?}", pulled.path);
    assert_eq!(
        pulled.fetched,
        Some(ByteSize(built.content_size())),
        "each byte came once"
    );
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn layers_that_are_compressed_with_zstd_are_fetched(#[case] version: ContainerdVersion) {
    let line = Line::start(8 * MIB).await;
    let layers = (1..4).map(|seed| Layer::random(seed, 4 * MIB).compression(Compression::Zstd));
    let built = Recipe::new(layers).build();
    let app = line.push(&built, "app").await;
    let (fetching, plain) = (
        Node::start_fetching(ContainerdOptions::new(version)).await,
        Node::start(version).await,
    );
    let pulled = fetching.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    assert!(is_fetched(&pulled), "{:?}", pulled.path);
    let by_cri = plain.runtime.pull(&PullRequest::new(app)).await.unwrap();
    assert_eq!((pulled.id, pulled.digest), (by_cri.id, by_cri.digest));
    assert_eq!(labels(&fetching.containerd).await, labels(&plain.containerd).await);
    let checked = ctr(&fetching.containerd, &["images", "check"]).await;
    assert!(
        checked.contains("complete (4/4)") && checked.contains("true"),
        "{checked}"
    );
}

/// The kubelet's own pull, at the same time: it waits for our layers instead of fetching them again.
#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_pull_of_somebody_else_waits_for_our_layers(#[case] version: ContainerdVersion) {
    let line = Line::start(2 * MIB).await;
    let built = Recipe::random(1, 3, 4 * MIB).build();
    let app = line.push(&built, "app").await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let kubelet = larder_runtime::connect(
        &larder_runtime::RuntimeEndpoint::at(node.containerd.socket()),
        std::path::Path::new("/"),
    )
    .await
    .unwrap();
    let pull = start_pull(&node.runtime, &app);
    wait_for_bytes(&line.line, built.content_size() / 3).await;
    kubelet.pull(&PullRequest::new(app.clone())).await.unwrap();
    pull.await.unwrap().unwrap();
    let moved = line.line.bytes();
    assert!(
        moved * 100 <= built.content_size() * 110,
        "{moved} of {}",
        built.content_size()
    );
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn layers_that_were_unpacked_and_discarded_are_not_fetched_again(#[case] version: ContainerdVersion) {
    let line = Line::start(8 * MIB).await;
    // The second image has the first one's layers at its bottom.
    let (base, top) = (
        Recipe::random(1, 2, 5 * MIB).build(),
        Recipe::random(1, 3, 5 * MIB).build(),
    );
    let (base_name, top_name) = (line.push(&base, "base").await, line.push(&top, "top").await);
    let node = Node::start_fetching(ContainerdOptions {
        discard_unpacked_layers: true,
        ..ContainerdOptions::new(version)
    })
    .await;
    node.runtime.pull(&PullRequest::new(base_name)).await.unwrap();
    let digest = base.layers()[0].digest().to_owned();
    wait_for(DEADLINE, "the layers to be discarded", async || {
        ctr(&node.containerd, &["content", "prune", "references"]).await;
        let there = labels(&node.containerd).await;
        if there.contains_key(&digest) {
            Err("still there")
        } else {
            Ok(())
        }
    })
    .await
    .unwrap();
    let pulled = node.runtime.pull(&PullRequest::new(top_name)).await.unwrap();
    assert!(is_fetched(&pulled), "{:?}", pulled.path);
    let new = top.layers()[2].size() + top.config().size();
    assert_eq!(pulled.fetched, Some(ByteSize(new)));
}

#[rstest]
#[case::v1_7(ContainerdVersion::V1_7)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_fast_line_is_left_to_the_runtime_which_goes_on_at_the_byte(#[case] version: ContainerdVersion) {
    let line = Line::start(8 * MIB).await;
    let built = Recipe::random(1, 2, 32 * MIB).build();
    let app = line.push(&built, "app").await;
    let containerd = Containerd::start_with(ContainerdOptions::new(version)).await.unwrap();
    // Any line is fast enough, however slow the machine.
    let settings = FetchSettings {
        fast_line: 1,
        ..FetchSettings::default()
    };
    let runtime = fetching_runtime_with(&containerd, settings).await;
    let pulled = runtime.pull(&PullRequest::new(app)).await.unwrap();
    assert_eq!(pulled.path, FetchPath::LeftToRuntime(LeftToRuntime::FastLine));
    // What the first connections had in memory when the fetcher stopped came twice.
    assert_over_the_line(&line.line, &built, 110);
}

#[tokio::test]
async fn a_registry_that_fails_for_us_is_left_to_cri() {
    let line = Line::start(8 * MIB).await;
    let built = Recipe::random(1, 1, 5 * MIB).build();
    line.push(&built, "app").await;
    let node = Node::start_fetching(ContainerdOptions::new(ContainerdVersion::V2)).await;
    // containerd knows by its hosts.toml where this registry really is; we are not told.
    let broken = Stub::start("127.0.0.1", |_: &Sent| answer("500 Broken", &[], "")).await;
    let host = broken.address.to_string();
    let mirror = format!("[host.\"http://{}\"]", line.line.host());
    node.containerd.set_hosts(&host, &mirror).unwrap();
    let request = PullRequest::new(image(&format!("{host}/app:v1")));
    let pulled = node.runtime.pull(&request).await.unwrap();
    assert_eq!(pulled.path, FetchPath::LeftToRuntime(LeftToRuntime::Registry));
}

/// Neither by us nor by containerd, which would ask for each of its layers.
#[rstest]
#[tokio::test]
async fn nothing_is_fetched_of_an_image_with_more_layers_than_can_be_mounted(
    #[values(ContainerdVersion::V1_7, ContainerdVersion::V2)] version: ContainerdVersion,
) {
    let layers: Vec<_> = (0..20_000).map(|n| format!("sha256:{n:064x}")).collect();
    let registry = Promised::of_size(&layers, 10).serve(None).await;
    let node = Node::start_fetching(ContainerdOptions::new(version)).await;
    let host = registry.address.to_string();
    let hosts = format!("server = \"http://{host}\"\n");
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let request = PullRequest::new(image(&format!("{host}/app:v1")));
    let error = node.runtime.pull(&request).await.unwrap_err();
    assert_eq!(error.reason(), Reason::InvalidImage, "{}", error.text());
    assert!(error.text().contains("the image has 20000 layers"), "{}", error.text());
    let sent = registry.sent();
    let asked: Vec<_> = sent.iter().map(|sent| &sent.line).collect();
    assert!(!asked.iter().any(|line| line.contains("/blobs/")), "{asked:?}");
}

/// The registry answers nothing at the address in the image's name. containerd knows another by its `hosts.toml`, as it may
/// know a proxy; we are not told.
#[tokio::test]
async fn a_registry_that_only_containerd_can_reach_is_left_to_it_for_a_while() {
    let line = Line::start(8 * MIB).await;
    line.push(&Recipe::random(1, 1, 5 * MIB).build(), "app").await;
    line.push(&Recipe::random(4, 1, 5 * MIB).build(), "other").await;
    let node = Node::start_fetching(ContainerdOptions::new(ContainerdVersion::V2)).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let mirror = format!("[host.\"http://{}\"]", line.line.host());
    node.containerd.set_hosts(&address.to_string(), &mirror).unwrap();
    let pull = async |name: &str| {
        let request = PullRequest::new(image(&format!("{address}/{name}:v1")));
        node.runtime.pull(&request).await.unwrap().path
    };
    let left = FetchPath::LeftToRuntime(LeftToRuntime::Unconnected);
    assert_eq!(pull("app").await, left);
    // Whoever listens there now is not asked: neither by us nor by containerd, which has the mirror.
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    assert_eq!(pull("other").await, left);
    let asked = tokio::time::timeout(std::time::Duration::from_millis(1), listener.accept()).await;
    assert!(asked.is_err(), "{asked:?}");
}
