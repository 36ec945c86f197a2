//! The image layout folder: pulled by ourselves, read by others.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use larder_model::{ByteSize, ImageRef, Reason};
use larder_registry::{Platform as Machine, RegistryClient, Settings};
use larder_runtime::{Credential, ImageRuntime, Progress, PullRequest, Purpose, RuntimeError, layout::LayoutRuntime};
use larder_testkit::{
    Link, Registry, Throttle,
    image::{Image, Platform, Recipe},
    wait_for,
};
use tempfile::TempDir;

use super::{DEADLINE, MIB, image};

/// Impatient, so that a broken line is noticed soon.
fn client() -> RegistryClient {
    RegistryClient::new(Settings {
        stall_after: Duration::from_secs(5),
        ..Settings::default()
    })
}

fn open(folder: &Path) -> LayoutRuntime {
    LayoutRuntime::open(folder, client(), Machine::of_this_machine()).unwrap()
}

/// A folder, and a registry to fill it from.
pub(crate) struct Folder {
    pub(crate) place: TempDir,
    pub(crate) runtime: Arc<LayoutRuntime>,
    pub(crate) registry: Registry,
}

impl Folder {
    pub(crate) async fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        Self {
            runtime: Arc::new(open(place.path())),
            registry: Registry::start(larder_testkit::Auth::Open).await.unwrap(),
            place,
        }
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.place.path().join("blobs").join(digest.replace(':', "/"))
    }

    pub(crate) fn blobs(&self) -> usize {
        std::fs::read_dir(self.place.path().join("blobs/sha256"))
            .unwrap()
            .count()
    }

    fn has_all(&self, image: &Image) -> bool {
        let blobs = image.layers().iter().chain([image.config(), image.manifest()]);
        blobs.into_iter().all(|blob| self.blob(blob.digest()).exists())
    }
}

#[tokio::test]
async fn a_pulled_image_is_there_and_goes_again() {
    let folder = Folder::start().await;
    let built = Recipe::random(1, 3, 20_000).build();
    let pushed = folder.registry.push(&built, "team/app", "v1").await.unwrap();
    let (tag, digest) = (image(&pushed.reference), image(&pushed.by_digest));
    let runtime = &folder.runtime;
    assert_eq!(runtime.status(&tag).await.unwrap(), None);

    let pulled = runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    assert_eq!(pulled.digest.unwrap().to_string(), pushed.digest);
    assert_eq!(pulled.id, built.config().digest());
    assert_eq!(pulled.size, ByteSize(built.content_size()));
    for name in [&tag, &digest] {
        assert!(runtime.status(name).await.unwrap().is_some(), "{name}");
    }
    let fs = runtime.image_fs().await.unwrap();
    assert!(ByteSize(built.content_size()) <= fs.used_by_images.unwrap(), "{fs:?}");

    // Another process, or a later life of this one, finds the same.
    assert_eq!(
        open(folder.place.path()).list().await.unwrap(),
        runtime.list().await.unwrap()
    );

    runtime.remove(&digest).await.unwrap();
    assert_eq!(runtime.list().await.unwrap(), []);
    assert_eq!(folder.blobs(), 0);
}

/// Nothing lies: a layer that somebody deleted makes the image absent, and the next pull brings back that layer alone.
#[tokio::test]
async fn an_image_with_a_missing_layer_is_not_there() {
    let folder = Folder::start().await;
    let built = Recipe::random(1, 3, 20_000).build();
    let tag = image(&folder.registry.push(&built, "app", "v1").await.unwrap().reference);
    folder.runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    std::fs::remove_file(folder.blob(built.layers()[1].digest())).unwrap();
    assert_eq!(folder.runtime.status(&tag).await.unwrap(), None);
    folder.runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    assert!(folder.runtime.status(&tag).await.unwrap().is_some());
}

#[tokio::test]
async fn shared_layers_stay_while_somebody_needs_them() {
    let folder = Folder::start().await;
    let (first, second) = (
        Recipe::random(1, 3, 20_000).build(),
        Recipe::random(2, 3, 20_000).build(),
    );
    let one = image(&folder.registry.push(&first, "one", "v1").await.unwrap().reference);
    let two = image(&folder.registry.push(&second, "two", "v1").await.unwrap().reference);
    for name in [&one, &two] {
        folder.runtime.pull(&PullRequest::new(name.clone())).await.unwrap();
    }
    folder.runtime.remove(&one).await.unwrap();
    assert!(folder.has_all(&second));
    assert!(!folder.blob(first.layers()[0].digest()).exists());
    assert!(folder.runtime.status(&two).await.unwrap().is_some());
}

#[tokio::test]
async fn a_moved_tag_leaves_nothing_behind() {
    let folder = Folder::start().await;
    let (old, new) = (
        Recipe::random(1, 1, 20_000).build(),
        Recipe::random(9, 1, 20_000).build(),
    );
    let tag = image(&folder.registry.push(&old, "app", "latest").await.unwrap().reference);
    folder.runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    folder.runtime.pin(&tag).await.unwrap();
    folder.registry.push(&new, "app", "latest").await.unwrap();
    folder.runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    assert_eq!(folder.blobs(), 3);
    let there = folder.runtime.status(&tag).await.unwrap().unwrap();
    assert_eq!(there.id, new.config().digest());
    assert!(there.pinned, "the pin follows");
}

#[tokio::test]
async fn second_names_are_known_as_ours() {
    let folder = Folder::start().await;
    let tag = image(
        &folder
            .registry
            .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
            .await
            .unwrap()
            .reference,
    );
    let alias = image("registry.example.com/app:v1");
    folder.runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    folder.runtime.alias(&tag, &alias).await.unwrap();
    assert!(folder.runtime.status(&alias).await.unwrap().unwrap().answers_to(&tag));
    let own = folder.runtime.own_references().await.unwrap();
    assert_eq!(own[0].purpose, Purpose::Alias(alias.clone()));
}

#[tokio::test]
async fn failures_have_their_reasons() {
    let registry = Registry::start(larder_testkit::Auth::basic("robot", "right"))
        .await
        .unwrap();
    let host = registry.host();
    registry
        .push(&Recipe::random(1, 1, 5000).build(), "app", "v1")
        .await
        .unwrap();
    let foreign = Recipe::random(2, 1, 5000).platform(Platform::linux("riscv64")).build();
    registry.push(&foreign, "foreign", "v1").await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    line.set(Link::Refused);
    let folder = tempfile::tempdir().unwrap();
    let runtime = open(folder.path());

    let cases = [
        (format!("{host}/app:v1"), Some("wrong"), Reason::AuthDenied),
        (format!("{host}/app:v1"), None, Reason::AuthDenied),
        (format!("{host}/app:nosuch"), Some("right"), Reason::NotFound),
        (format!("{host}/foreign:v1"), Some("right"), Reason::NoPlatform),
        (format!("{}/app:v1", line.host()), Some("right"), Reason::Unreachable),
    ];
    for (name, password, expected) in cases {
        let request = PullRequest {
            auth: password.map(|password| Credential::basic("robot", password)),
            ..PullRequest::new(image(&name))
        };
        let error = runtime.pull(&request).await.unwrap_err();
        assert_eq!(error.reason(), expected, "{name}: {}", error.text());
        assert!(matches!(error, RuntimeError::Registry { .. }), "{error:?}");
    }
    let right = PullRequest {
        auth: Some(Credential::basic("robot", "right")),
        ..PullRequest::new(image(&format!("{host}/app:v1")))
    };
    runtime.pull(&right).await.unwrap();
}

async fn progress_where(runtime: &LayoutRuntime, image: &ImageRef, wanted: impl Fn(&Progress) -> bool) -> Progress {
    wait_for(DEADLINE, format!("progress of {image}"), async || {
        match runtime.progress(image).await {
            Ok(Some(progress)) if wanted(&progress) => Ok(progress),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn progress_grows_and_a_cancelled_pull_goes_on_where_it_was() {
    let folder = Folder::start().await;
    let built = Recipe::random(1, 1, 8 * MIB).build();
    folder.registry.push(&built, "app", "v1").await.unwrap();
    let line = Throttle::start(folder.registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(2 * MIB as u64));
    let app = image(&format!("{}/app:v1", line.host()));

    let pull = {
        let (runtime, request) = (Arc::clone(&folder.runtime), PullRequest::new(app.clone()));
        tokio::spawn(async move { runtime.pull(&request).await })
    };
    let first = progress_where(&folder.runtime, &app, |progress| ByteSize(MIB as u64) < progress.done).await;
    assert_eq!(first.total, ByteSize(built.content_size()));
    progress_where(&folder.runtime, &app, |progress| first.done < progress.done).await;
    pull.abort();
    assert!(pull.await.unwrap_err().is_cancelled());
    assert_eq!(folder.runtime.progress(&app).await.unwrap(), None);
    assert_eq!(folder.runtime.status(&app).await.unwrap(), None);

    line.set(Link::Open);
    let before = line.bytes();
    folder.runtime.pull(&PullRequest::new(app.clone())).await.unwrap();
    let fetched = line.bytes() - before;
    assert!(
        fetched < built.content_size() - MIB as u64,
        "{fetched} bytes were fetched again"
    );
}

/// Two pulls at once of images that share a layer, and a sweep in the middle: nobody loses anything, and the shared
/// layer goes over the line once.
#[tokio::test]
async fn pulls_at_once_share_layers_and_survive_a_sweep() {
    let folder = Folder::start().await;
    let (first, second) = (
        Recipe::random(1, 2, 2 * MIB).build(),
        Recipe::random(2, 2, 2 * MIB).build(),
    );
    folder.registry.push(&first, "one", "v1").await.unwrap();
    folder.registry.push(&second, "two", "v1").await.unwrap();
    let unrelated = folder
        .registry
        .push(&Recipe::random(9, 1, 5000).build(), "small", "v1")
        .await
        .unwrap();
    folder
        .runtime
        .pull(&PullRequest::new(image(&unrelated.reference)))
        .await
        .unwrap();
    let line = Throttle::start(folder.registry.address()).await.unwrap();
    line.set(Link::bytes_per_second(2 * MIB as u64));
    let [one, two] = ["one", "two"].map(|name| image(&format!("{}/{name}:v1", line.host())));

    let pulls = [&one, &two].map(|name| {
        let (runtime, request) = (Arc::clone(&folder.runtime), PullRequest::new(name.clone()));
        tokio::spawn(async move { runtime.pull(&request).await })
    });
    progress_where(&folder.runtime, &one, |progress| ByteSize(0) < progress.done).await;
    progress_where(&folder.runtime, &two, |progress| ByteSize(0) < progress.done).await;
    folder.runtime.remove(&image(&unrelated.reference)).await.unwrap();
    line.set(Link::Open);
    for pull in pulls {
        pull.await.unwrap().unwrap();
    }
    assert!(folder.has_all(&first) && folder.has_all(&second));
    let needed = (first.content_size() + second.content_size()) - first.layers()[1].size();
    assert!(
        line.bytes() < needed + MIB as u64,
        "{} bytes for {needed}",
        line.bytes()
    );
}

#[tokio::test]
async fn wrong_bytes_of_an_earlier_try_are_replaced() {
    let folder = Folder::start().await;
    let built = Recipe::random(1, 1, 50_000).build();
    let tag = image(&folder.registry.push(&built, "app", "v1").await.unwrap().reference);
    // An earlier try left bytes of the right number that are not the layer's.
    let digest = built.layers()[0].digest().replace(':', "-");
    let partial = folder.place.path().join(".larder/partial").join(digest);
    std::fs::write(&partial, vec![0; usize::try_from(built.layers()[0].size()).unwrap()]).unwrap();

    // They are thrown away, and the layer is fetched from its beginning.
    folder.runtime.pull(&PullRequest::new(tag.clone())).await.unwrap();
    assert!(folder.runtime.status(&tag).await.unwrap().is_some());
    assert!(!partial.exists(), "the wrong bytes would be in the way for ever");
    let blob = built.layers()[0].digest().replace(':', "/");
    let kept = std::fs::read(folder.place.path().join("blobs").join(blob)).unwrap();
    assert!(
        kept == *built.layers()[0].bytes(),
        "these are other bytes than the layer's"
    );
}

#[tokio::test]
async fn a_folder_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion":"9.0.0"}"#).unwrap();
    let Err(error) = LayoutRuntime::open(folder.path(), client(), Machine::of_this_machine()) else {
        panic!("version 9 is unknown");
    };
    assert!(error.text().contains("9.0.0"), "{}", error.text());
}
