//! Which blobs are on the node, and how large an image was that came too fast to be watched.

use std::sync::Arc;

use larder_model::{ByteSize, Digest};
use larder_runtime::{ImageRuntime, PullRequest};
use larder_testkit::image::{Blob, Format, Image, Index, Platform, Recipe};
use larder_testkit::{Auth, ContainerdVersion, Registry};
use rstest::rstest;

use super::layout::Folder;
use super::{Node, image};

fn digests(image: &Image) -> Vec<Digest> {
    let blobs = image.layers().iter().chain([image.config()]);
    blobs.map(|blob: &Blob| Digest::parse(blob.digest()).unwrap()).collect()
}

/// Pulls one image of two layers, and asks for those of another that has one of them too.
async fn of_a_neighbour(runtime: Arc<dyn ImageRuntime>, registry: &Registry) {
    let first = Recipe::random(1, 2, 20_000).build();
    let second = Recipe::random(2, 2, 20_000).build();
    let pushed = registry.push(&first, "app", "1").await.unwrap();
    let nothing = runtime.held_blobs(&digests(&second)).await.unwrap().unwrap();
    assert!(nothing.is_empty(), "{nothing:?}");
    runtime.pull(&PullRequest::new(image(&pushed.reference))).await.unwrap();
    let all = runtime.held_blobs(&digests(&first)).await.unwrap().unwrap();
    assert_eq!(all, digests(&first).into_iter().collect());
    let shared = runtime.held_blobs(&digests(&second)).await.unwrap().unwrap();
    let both = Digest::parse(first.layers()[1].digest()).unwrap();
    assert_eq!(shared, [both].into());
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn containerd_tells_which_layers_it_has(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let node = Node::start(version).await;
    of_a_neighbour(Arc::clone(&node.runtime), &registry).await;
}

#[tokio::test]
async fn a_folder_tells_which_layers_it_has() {
    let folder = Folder::start().await;
    let runtime: Arc<dyn ImageRuntime> = Arc::clone(&folder.runtime) as Arc<dyn ImageRuntime>;
    of_a_neighbour(runtime, &folder.registry).await;
}

#[rstest]
#[case::v1_6(ContainerdVersion::V1_6)]
#[case::v2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_pull_tells_the_compressed_size_however_short_it_was(#[case] version: ContainerdVersion) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let here = Recipe::random(1, 2, 1000).build();
    let elsewhere = Recipe::random(5, 1, 1000).platform(Platform::linux("riscv64")).build();
    let alone = registry.push(&here, "alone", "1").await.unwrap();
    let index = Index::new(Format::Oci, vec![elsewhere, here.clone()]);
    let among = registry.push_index(&index, "among", "1").await.unwrap();
    let node = Node::start(version).await;
    for reference in [alone.reference, alone.by_digest, among.reference] {
        let pulled = node.runtime.pull(&PullRequest::new(image(&reference))).await.unwrap();
        assert_eq!(pulled.download, Some(ByteSize(here.content_size())), "{reference}");
    }
}
