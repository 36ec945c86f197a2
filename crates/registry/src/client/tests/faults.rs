//! Everything that goes wrong on the way, and what it is called.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::TcpListener;

use super::*;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

#[tokio::test]
async fn a_blob_that_breaks_off_is_taken_up_again() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(10_000));
    registry.shelf().cut_after = Some(3_000);
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    assert_eq!(fetched(&repository, &blob).await.unwrap(), content(10_000));
    let log = registry.log();
    let ranges: Vec<_> = log
        .iter()
        .filter_map(|line| line.split_once("bytes="))
        .map(|(_, range)| range)
        .collect();
    assert_eq!(ranges, ["3000-", "6000-", "9000-"]);
}

#[tokio::test]
async fn a_registry_without_ranges_is_read_from_the_beginning_and_known_bytes_are_passed_over() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(10_000));
    registry.shelf().ignores_ranges = true;
    registry.shelf().cut_after = Some(9_000);
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let mut writer = BlobWriter::new(&blob, Vec::new());
    // It never comes further than 9000 bytes, and that is where the tries end.
    assert_eq!(
        repository.blob(&mut writer).await.unwrap_err().reason,
        Reason::Unreachable
    );
    assert_eq!(writer.progress().bytes(), 9_000);
    registry.shelf().cut_after = None;
    repository.blob(&mut writer).await.unwrap();
    assert_eq!(writer.into_inner(), content(10_000));
}

#[rstest]
#[case::other_bytes(b"CONTENT", "does not have its digest")]
#[case::too_many(b"content and more", "brought more bytes")]
#[case::too_few(b"cont", "broke off")]
#[tokio::test]
async fn content_that_is_not_what_was_promised_is_refused(#[case] served: &'static [u8], #[case] told: &str) {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob("content");
    registry.shelf().blobs.insert(blob.digest.to_string(), served.into());
    registry.shelf().ignores_ranges = true;
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = fetched(&repository, &blob).await.unwrap_err();
    assert!(error.message.contains(told), "{error}");
}

#[tokio::test]
async fn a_manifest_with_another_digest_is_refused() {
    let registry = FakeRegistry::start().await;
    let manifest = registry.add_image("v1", "amd64", b"layer");
    registry
        .shelf()
        .manifests
        .insert(manifest.digest.to_string(), (OCI_MANIFEST.to_owned(), "{}".into()));
    let image = registry.image(&format!("app@{}", manifest.digest));
    let error = client()
        .repository(&image, vec![])
        .unwrap()
        .image_for(&amd64())
        .await
        .unwrap_err();
    assert!(error.message.contains("does not have its digest"), "{error}");
}

#[rstest]
#[case::missing(404, vec![], Reason::NotFound, None, 1)]
#[case::rate_limit(429, vec![("retry-after", "17".to_owned())], Reason::RateLimited, Some(17), 1)]
#[case::rate_limit_with_a_date(429, vec![
    ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT".to_owned()),
    ("date", "Wed, 21 Oct 2026 07:27:00 GMT".to_owned()),
], Reason::RateLimited, Some(60), 1)]
#[case::forbidden(403, vec![], Reason::AuthDenied, None, 1)]
#[case::server_error(503, vec![], Reason::Unreachable, None, 3)]
#[case::server_error_that_asks_for_time(503, vec![("retry-after", "60".to_owned())], Reason::Unreachable, Some(60), 1)]
#[case::nonsense(418, vec![], Reason::Internal, None, 1)]
#[tokio::test]
async fn refusals_have_their_reasons(
    #[case] status: u16,
    #[case] headers: Vec<(&'static str, String)>,
    #[case] reason: Reason,
    #[case] wait: Option<u64>,
    #[case] requests: usize,
) {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().refusals = std::iter::repeat_n((status, headers), 10).collect();
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert_eq!(error.reason, reason);
    assert_eq!(error.retry_after, wait.map(Duration::from_secs));
    assert!(error.message.ends_with(": REFUSED notnow"), "{error}");
    assert_eq!(registry.log().len(), requests);
}

#[tokio::test]
async fn a_server_error_that_passes_is_not_noticed() {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    registry.shelf().refusals = [(502, vec![]), (500, vec![])].into();
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    repository.image_for(&amd64()).await.unwrap();
}

#[tokio::test]
async fn a_missing_tag_is_not_found() {
    let registry = FakeRegistry::start().await;
    let repository = client().repository(&registry.image("app:gone"), vec![]).unwrap();
    assert_eq!(repository.resolve().await.unwrap_err().reason, Reason::NotFound);
    assert_eq!(
        repository.image_for(&amd64()).await.unwrap_err().reason,
        Reason::NotFound
    );
}

#[tokio::test]
async fn a_blob_that_stands_still_is_stalled() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(1_000));
    registry.shelf().stall_after = Some(10);
    registry.shelf().ignores_ranges = true;
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    assert_eq!(fetched(&repository, &blob).await.unwrap_err().reason, Reason::Stalled);
}

#[tokio::test]
async fn a_registry_that_never_answers_is_a_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let image = ImageRef::parse(&format!("{}/app:v1", silent.local_addr().unwrap())).unwrap();
    let settings = Settings {
        request_timeout: Duration::from_millis(200),
        tries: 1,
        ..Settings::default()
    };
    let repository = RegistryClient::new(settings).repository(&image, vec![]).unwrap();
    assert_eq!(repository.resolve().await.unwrap_err().reason, Reason::Timeout);
}

#[tokio::test]
async fn nobody_at_home_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let image = ImageRef::parse(&format!("{address}/app:v1")).unwrap();
    let repository = client().repository(&image, vec![]).unwrap();
    assert_eq!(repository.resolve().await.unwrap_err().reason, Reason::Unreachable);
}

#[rstest]
#[case::looked_up("http")]
#[case::found_out_before("https")]
#[tokio::test]
async fn a_name_that_cannot_exist_is_a_dns_failure(#[case] scheme: &str) {
    // A label may have 63 characters, so the resolver refuses this one by itself, without asking anybody.
    let registry = format!("{}.example", "x".repeat(64));
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(&registry)).unwrap();
    let text = format!("server = \"{scheme}://{registry}\"");
    fs::write(dir.path().join(&registry).join("hosts.toml"), text).unwrap();
    let settings = Settings {
        hosts: Hosts::in_dir(dir.path()),
        tries: 1,
        ..Settings::default()
    };
    let image = ImageRef::parse(&format!("{registry}/app:v1")).unwrap();
    let repository = RegistryClient::new(settings).repository(&image, vec![]).unwrap();
    let error = repository.resolve().await.unwrap_err();
    assert_eq!(error.reason, Reason::Dns, "{error:?}");
}

/// A file on a disk without room.
struct FullDisk;

impl AsyncWrite for FullDisk {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::StorageFull.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_full_disk_is_told_as_such() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob("content");
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = repository
        .blob(&mut BlobWriter::new(&blob, FullDisk))
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::NoSpace);
    assert_eq!(registry.log().len(), 1);
}

#[tokio::test]
async fn a_manifest_without_end_is_cut_off() {
    let registry = FakeRegistry::start().await;
    registry
        .shelf()
        .manifests
        .insert("v1".into(), (OCI_MANIFEST.to_owned(), vec![b' '; 5 << 20].into()));
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert!(error.message.contains("brought more than"), "{error}");
    assert_eq!(error.reason, Reason::InvalidImage);
}

#[rstest]
#[case::page_of_a_proxy(b"<html>")]
#[case::nothing(b"")]
#[case::another_shape(b"[]")]
#[case::no_layers(b"{\"config\":{}}")]
#[case::nested_without_end(&b"[".repeat(100_000))]
#[case::layer_without_a_digest(br#"{"config":{"mediaType":"c","size":1,"digest":"x"},"layers":[]}"#)]
#[case::size_below_zero(br#"{"config":{"mediaType":"c","size":-1,"digest":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},"layers":[]}"#)]
#[tokio::test]
async fn a_manifest_that_cannot_be_read_is_no_image(#[case] manifest: &[u8]) {
    let registry = FakeRegistry::start().await;
    let manifest = bytes::Bytes::copy_from_slice(manifest);
    registry
        .shelf()
        .manifests
        .insert("v1".into(), (OCI_MANIFEST.to_owned(), manifest));
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert_eq!(error.reason, Reason::InvalidImage, "{error:?}");
}

#[tokio::test]
async fn a_manifest_with_thousands_of_layers_costs_one_request() {
    let registry = FakeRegistry::start().await;
    let layers: Vec<_> = (0..20_000)
        .map(|n| serde_json::json!({"mediaType": "l", "size": 1, "digest": format!("sha256:{n:064x}")}))
        .collect();
    let manifest = serde_json::json!({"schemaVersion": 2, "config": layers[0], "layers": layers});
    registry.add_document("v1", OCI_MANIFEST, &manifest);
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert_eq!(error.reason, Reason::InvalidImage, "{error:?}");
    assert!(causes(&error).contains("20000 layers"), "{error:?}");
    assert_eq!(registry.log().len(), 1, "{:?}", registry.log());
}
