//! The client against a real registry (distribution), with and without password, over good lines and bad ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use larder_model::{ImageRef, Reason};
use larder_registry::manifest::PlatformImage;
use larder_registry::{BlobWriter, Credential, Platform, RegistryClient, RegistryError, Repository, Settings};
use larder_testkit::image::{Format, Image, Index, Platform as BuiltFor, Recipe};
use larder_testkit::{Auth, Link, Registry, Throttle};
use rstest::rstest;

const KIB: usize = 1024;

fn image(reference: &str) -> ImageRef {
    ImageRef::parse(reference).unwrap()
}

fn repository(reference: &str, credentials: Vec<Credential>) -> Repository {
    let settings = Settings {
        request_timeout: Duration::from_secs(3),
        stall_after: Duration::from_secs(2),
        ..Settings::default()
    };
    RegistryClient::new(settings)
        .repository(&image(reference), credentials)
        .unwrap()
}

fn amd64() -> Platform {
    Platform::new("linux", "amd64", None)
}

fn built_for(architecture: &str, seed: u64) -> Image {
    Recipe::random(seed, 2, 200 * KIB)
        .platform(BuiltFor::linux(architecture))
        .build()
}

/// Fetches everything and compares it, byte by byte, with what was pushed.
async fn fetch_all(repository: &Repository, pushed: &Image) -> Result<PlatformImage, RegistryError> {
    let found = repository.image_for(&amd64()).await?;
    assert_eq!(found.download_size().bytes(), pushed.content_size());
    for (blob, want) in found.blobs().zip([pushed.config()].into_iter().chain(pushed.layers())) {
        let mut writer = BlobWriter::new(blob, Vec::new());
        repository.blob(&mut writer).await?;
        assert_eq!(&writer.into_inner()[..], &want.bytes()[..]);
    }
    Ok(found)
}

#[rstest]
#[tokio::test]
async fn an_index_by_tag_and_by_digest(#[values(Format::Oci, Format::Docker)] format: Format) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let build = |architecture, seed| {
        Recipe::random(seed, 2, 50 * KIB)
            .platform(BuiltFor::linux(architecture))
            .format(format)
            .build()
    };
    let (arm, amd) = (build("arm64", 1), build("amd64", 5));
    let pushed = registry
        .push_index(&Index::new(format, vec![arm, amd.clone()]), "team/app", "v1")
        .await
        .unwrap();
    for reference in [&pushed.reference, &pushed.by_digest] {
        let repository = repository(reference, vec![]);
        assert_eq!(repository.resolve().await.unwrap().digest.to_string(), pushed.digest);
        let found = fetch_all(&repository, &amd).await.unwrap();
        assert_eq!(found.root().unwrap().digest.to_string(), pushed.digest);
        assert_eq!(found.documents[1].bytes, amd.manifest().bytes());
    }
    let error = repository(&pushed.reference, vec![])
        .image_for(&Platform::new("linux", "s390x", None))
        .await;
    assert_eq!(error.unwrap_err().reason, Reason::NoPlatform);
}

#[tokio::test]
async fn a_password_opens_and_a_wrong_one_does_not() {
    let registry = Registry::start(Auth::basic("ann", "s3cret")).await.unwrap();
    let built = built_for("amd64", 1);
    let pushed = registry.push(&built, "team/app", "v1").await.unwrap();
    let (right, wrong) = (Credential::basic("ann", "s3cret"), Credential::basic("ann", "wr0ng"));
    fetch_all(&repository(&pushed.reference, vec![right.clone()]), &built)
        .await
        .unwrap();
    fetch_all(&repository(&pushed.reference, vec![wrong.clone(), right]), &built)
        .await
        .unwrap();
    for credentials in [vec![], vec![wrong]] {
        let error = fetch_all(&repository(&pushed.reference, credentials), &built)
            .await
            .unwrap_err();
        assert_eq!(error.reason, Reason::AuthDenied, "{error}");
    }
}

#[rstest]
#[case::tag("team/app:gone")]
#[case::repository("team/gone:v1")]
#[case::digest("team/app@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")]
#[tokio::test]
async fn what_is_not_there_is_not_found(#[case] rest: &str) {
    let registry = Registry::start(Auth::Open).await.unwrap();
    registry.push(&built_for("amd64", 1), "team/app", "v1").await.unwrap();
    let repository = repository(&format!("{}/{rest}", registry.host()), vec![]);
    assert_eq!(repository.resolve().await.unwrap_err().reason, Reason::NotFound);
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert_eq!(error.reason, Reason::NotFound, "{error}");
    assert!(
        error.message.contains("unknown"),
        "the registry's own words are missing: {error}"
    );
}

#[tokio::test]
async fn a_line_that_breaks_off_costs_no_byte_twice() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let built = built_for("amd64", 1);
    registry.push(&built, "team/app", "v1").await.unwrap();
    let repository = repository(&format!("{}/team/app:v1", line.host()), vec![]);
    line.set(Link::CutAfter(64 * 1024));
    fetch_all(&repository, &built).await.unwrap();
    // Two layers of 200 KiB in pieces of at most 64 KiB, beside the heads of the answers.
    let content = built.content_size() + built.config().size() + built.manifest().size();
    let overhead = line.bytes().checked_sub(content).unwrap();
    assert!(overhead < 32 * 1024, "{overhead} bytes more than the content");
    assert!(7 <= line.connections(), "{} connections", line.connections());
}

#[tokio::test]
async fn a_line_that_stands_still_is_stalled_and_a_cut_one_unreachable() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let built = built_for("amd64", 1);
    registry.push(&built, "team/app", "v1").await.unwrap();
    let repository = repository(&format!("{}/team/app:v1", line.host()), vec![]);
    let found = repository.image_for(&amd64()).await.unwrap();
    let layer = &found.manifest.layers[0];

    line.set(Link::bytes_per_second(50_000));
    let mut writer = BlobWriter::new(layer, Vec::new());
    let progress = writer.progress();
    let stall = async {
        larder_testkit::wait_until(Duration::from_secs(30), "the first bytes", async || {
            0 < progress.bytes()
        })
        .await
        .unwrap();
        line.set(Link::Stalled);
    };
    let (error, ()) = tokio::join!(repository.blob(&mut writer), stall);
    // A new connection over the same line gets no answer either, which is a matter of time-outs.
    let error = error.unwrap_err();
    assert!(matches!(error.reason, Reason::Stalled | Reason::Timeout), "{error}");

    line.set(Link::Refused);
    assert_eq!(
        repository.blob(&mut writer).await.unwrap_err().reason,
        Reason::Unreachable
    );

    line.set(Link::Open);
    repository.blob(&mut writer).await.unwrap();
    assert_eq!(&writer.into_inner()[..], &built.layers()[0].bytes()[..]);
}

#[tokio::test]
async fn a_registry_that_is_killed_and_comes_back_is_read_on() {
    let mut registry = Registry::start(Auth::Open).await.unwrap();
    let built = built_for("amd64", 1);
    let pushed = registry.push(&built, "team/app", "v1").await.unwrap();
    let repository = repository(&pushed.reference, vec![]);
    let found = repository.image_for(&amd64()).await.unwrap();
    registry.kill().unwrap();
    let mut writer = BlobWriter::new(&found.manifest.layers[0], Vec::new());
    assert_eq!(
        repository.blob(&mut writer).await.unwrap_err().reason,
        Reason::Unreachable
    );
    registry.restart().await.unwrap();
    repository.blob(&mut writer).await.unwrap();
}
