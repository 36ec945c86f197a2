//! The image layout folder in the eyes of others, whatever form the image has in its registry.

use std::process::Command;

use larder_runtime::{ImageRuntime as _, PullRequest};
use larder_testkit::{
    Containerd, ContainerdVersion, Pushed, Registry,
    image::{Format, Image, Index, Platform, Recipe},
};
use rstest::rstest;

use super::{image, layout::Folder};

/// The forms in which registries have images.
#[derive(Clone, Copy)]
enum Shape {
    One(Format),
    Several(Format),
}

impl Shape {
    /// Pushes an image for this machine in this form, and returns it.
    async fn push(self, registry: &Registry, recipe: Recipe) -> (Image, Pushed) {
        match self {
            Self::One(format) => {
                let here = recipe.format(format).build();
                let pushed = registry.push(&here, "app", "v1").await.unwrap();
                (here, pushed)
            }
            Self::Several(format) => {
                let here = recipe.format(format).build();
                let elsewhere = Recipe::random(500, 1, 5000)
                    .platform(Platform::linux("riscv64"))
                    .format(format)
                    .build();
                let index = Index::new(format, vec![elsewhere, here.clone()]);
                (here, registry.push_index(&index, "app", "v1").await.unwrap())
            }
        }
    }
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// An image in Docker's form keeps its registry's digest, and leaves nothing behind either.
#[rstest]
#[case::one_platform(Shape::One(Format::Docker))]
#[case::several_platforms(Shape::Several(Format::Docker))]
#[tokio::test]
async fn the_form_that_readers_see_does_not_change_the_digest(#[case] shape: Shape) {
    let folder = Folder::start().await;
    let (here, pushed) = shape.push(&folder.registry, Recipe::random(1, 2, 20_000)).await;
    let pulled = folder
        .runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap();
    assert_eq!(pulled.digest.unwrap().to_string(), pushed.digest);
    assert_eq!(pulled.id, here.config().digest());
    assert!(
        folder
            .runtime
            .status(&image(&pushed.by_digest))
            .await
            .unwrap()
            .is_some()
    );
    folder
        .runtime
        .pull(&PullRequest::new(image(&pushed.by_digest)))
        .await
        .unwrap();
    folder.runtime.remove(&image(&pushed.by_digest)).await.unwrap();
    assert_eq!(folder.blobs(), 0);
}

#[rstest]
#[case::one_platform(Shape::One(Format::Oci))]
#[case::several_platforms(Shape::Several(Format::Oci))]
#[case::docker(Shape::One(Format::Docker))]
#[case::docker_several_platforms(Shape::Several(Format::Docker))]
#[tokio::test]
async fn skopeo_reads_the_folder(#[case] shape: Shape) {
    let folder = Folder::start().await;
    let (here, pushed) = shape.push(&folder.registry, Recipe::random(1, 2, 20_000)).await;
    folder
        .runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap();

    let copy = tempfile::tempdir().unwrap();
    let source = format!("oci:{}:{}", folder.place.path().display(), pushed.reference);
    run(
        "skopeo",
        &["copy", "--quiet", &source, &format!("dir:{}", copy.path().display())],
    );
    for blob in here.layers().iter().chain([here.config()]) {
        assert!(
            copy.path().join(blob.digest().replace("sha256:", "")).exists(),
            "{}",
            blob.digest()
        );
    }
}

#[rstest]
#[tokio::test]
async fn containerd_imports_the_folder(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[values(
        Shape::One(Format::Oci),
        Shape::Several(Format::Oci),
        Shape::One(Format::Docker),
        Shape::Several(Format::Docker)
    )]
    shape: Shape,
) {
    let folder = Folder::start().await;
    let (_, pushed) = shape.push(&folder.registry, Recipe::random(1, 2, 20_000)).await;
    folder
        .runtime
        .pull(&PullRequest::new(image(&pushed.reference)))
        .await
        .unwrap();

    let archive = tempfile::NamedTempFile::new().unwrap();
    let (archive, source) = (archive.path().to_str().unwrap(), folder.place.path().to_str().unwrap());
    run("tar", &["-cf", archive, "-C", source, "."]);
    let containerd = Containerd::start(version).await.unwrap();
    let imported = containerd.ctr(["images", "import", archive]).await.unwrap();
    assert!(
        imported.status.success(),
        "{}",
        String::from_utf8_lossy(&imported.stderr)
    );
    let listed = containerd.ctr(["images", "ls", "--quiet"]).await.unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    assert!(names.lines().any(|name| name == pushed.reference), "{names}");
}
