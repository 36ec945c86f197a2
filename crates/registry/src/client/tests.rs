pub(crate) mod fake;
mod faults;
mod logins;
mod other_hosts;
mod tls;
mod tls_listener;

use std::fs;
use std::time::Duration;

use fake::{Auth, FakeRegistry};
use larder_model::{ImageRef, Reason};
use rstest::rstest;

use super::*;
use crate::Platform;
use crate::docker_config::Entry;
use crate::hosts::Hosts;
use crate::keyring::ImagePattern;
use crate::manifest::{Descriptor, OCI_INDEX, OCI_MANIFEST};

fn client() -> RegistryClient {
    RegistryClient::new(Settings {
        stall_after: Duration::from_millis(400),
        ..Settings::default()
    })
}

fn amd64() -> Platform {
    Platform::new("linux", "amd64", None)
}

/// The error and everything behind it, as one text.
fn causes(error: &RegistryError) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.join(": ")
}

async fn fetched(repository: &Repository, blob: &Descriptor) -> Result<Vec<u8>, RegistryError> {
    let mut writer = BlobWriter::new(blob, Vec::new());
    let progress = writer.progress();
    repository.blob(&mut writer).await?;
    assert_eq!(progress.bytes(), blob.size);
    Ok(writer.into_inner())
}

#[tokio::test]
async fn a_whole_image_by_tag_and_by_digest() {
    let registry = FakeRegistry::start().await;
    let manifest = registry.add_image("v1", "amd64", b"layer");
    for reference in ["app:v1".to_owned(), format!("app@{}", manifest.digest)] {
        let repository = client().repository(&registry.image(&reference), vec![]).unwrap();
        assert_eq!(repository.resolve().await.unwrap(), manifest);
        let image = repository.image_for(&amd64()).await.unwrap();
        assert_eq!(image.root(), Some(&manifest));
        assert_eq!(fetched(&repository, &image.manifest.layers[0]).await.unwrap(), b"layer");
        assert_eq!(
            image.download_size().bytes(),
            image.blobs().map(|blob| blob.size).sum::<u64>()
        );
    }
}

#[tokio::test]
async fn what_is_known_is_asked_for_with_head_alone() {
    struct Known(Vec<(Descriptor, bytes::Bytes)>);
    impl KnownContent for Known {
        async fn get(&self, content: &Descriptor) -> Option<bytes::Bytes> {
            let known = self.0.iter().find(|(known, _)| known.digest == content.digest);
            known.map(|(_, bytes)| bytes.clone())
        }
    }
    let registry = FakeRegistry::start().await;
    registry.add_index("v1", &["arm64", "amd64"]);
    registry.add_image("lone", "amd64", b"layer");
    for reference in ["app:v1", "app:lone"] {
        let repository = client().repository(&registry.image(reference), vec![]).unwrap();
        let fetched = repository.image_for(&amd64()).await.unwrap();
        let documents = fetched.documents.iter();
        let mut known: Vec<_> = documents.map(|d| (d.descriptor.clone(), d.bytes.clone())).collect();
        known.extend(
            fetched
                .config
                .clone()
                .map(|bytes| (fetched.manifest.config.clone(), bytes)),
        );
        registry.shelf().log.clear();
        let again = repository.image_for_with(&amd64(), &Known(known)).await.unwrap();
        assert_eq!(again.manifest, fetched.manifest);
        let log = registry.log();
        assert_eq!(log.len(), 1, "{log:?}");
        assert!(log[0].starts_with("HEAD"), "{log:?}");

        registry.shelf().log.clear();
        let none = repository.image_for_with(&amd64(), &Known(vec![])).await.unwrap();
        assert_eq!(none.manifest, fetched.manifest);
        let gets = registry.log().iter().filter(|line| line.starts_with("GET")).count();
        assert_eq!(gets, 2, "index and manifest, or manifest and configuration");
    }
}

#[rstest]
#[case::as_usual(true, 3)]
#[case::something_else_can_do_it(false, 1)]
#[tokio::test]
async fn a_host_that_cannot_be_connected_to_is_given_up(#[case] patient: bool, #[case] connections: usize) {
    // A host that closes every connection before TLS: no connection is ever made.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&made);
    let server = tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            drop(connection);
        }
    });
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a.example")).unwrap();
    let text = format!("server = \"https://{address}\"");
    fs::write(dir.path().join("a.example/hosts.toml"), text).unwrap();
    let client = RegistryClient::new(Settings {
        hosts: Hosts::in_dir(dir.path()),
        ..Settings::default()
    });
    let client = if patient {
        client
    } else {
        client.giving_up_unconnected(Duration::from_secs(5))
    };
    let image = ImageRef::parse("a.example/app:v1").unwrap();
    let error = client.repository(&image, vec![]).unwrap().resolve().await.unwrap_err();
    assert_eq!((error.reason, error.is_unconnected), (Reason::Unreachable, true));
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), connections);
    server.abort();
}

#[tokio::test]
async fn work_can_be_handed_to_another_task() {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let fetch = tokio::spawn(async move {
        repository.resolve().await?;
        let image = repository.image_for(&amd64()).await?;
        fetched(&repository, &image.manifest.layers[0]).await
    });
    assert_eq!(fetch.await.unwrap().unwrap(), b"layer");
}

#[tokio::test]
async fn the_build_for_the_machine_is_chosen() {
    let registry = FakeRegistry::start().await;
    let index = registry.add_index("v1", &["arm64", "amd64", "s390x"]);
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let image = repository.image_for(&amd64()).await.unwrap();
    assert_eq!(image.documents.len(), 2);
    assert_eq!(image.root(), Some(&index));
    assert_eq!(image.documents[0].descriptor.media_type, OCI_INDEX);
    assert_eq!(image.documents[1].descriptor.media_type, OCI_MANIFEST);
    assert_eq!(fetched(&repository, &image.manifest.layers[0]).await.unwrap(), b"amd64");
}

#[rstest]
#[case::index(true)]
#[case::lone_image(false)]
#[tokio::test]
async fn a_missing_platform_is_told_with_the_ones_there_are(#[case] index: bool) {
    let registry = FakeRegistry::start().await;
    if index {
        registry.add_index("v1", &["arm64"]);
    } else {
        registry.add_image("v1", "arm64", b"");
    }
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = repository.image_for(&amd64()).await.unwrap_err();
    assert_eq!(error.reason, Reason::NoPlatform);
    assert!(
        error
            .message
            .ends_with("is not built for linux/amd64, only for linux/arm64"),
        "{error}"
    );
}

#[tokio::test]
async fn an_index_that_points_to_itself_ends() {
    let registry = FakeRegistry::start().await;
    let inner = registry.add_index("inner", &["amd64"]);
    let entry = |of: &Descriptor| {
        serde_json::json!({"schemaVersion": 2, "manifests": [{
            "mediaType": OCI_INDEX, "digest": of.digest, "size": of.size,
            "platform": {"os": "linux", "architecture": "amd64"},
        }]})
    };
    let once = registry.add_document("once", OCI_INDEX, &entry(&inner));
    let image = client()
        .repository(&registry.image("app:once"), vec![])
        .unwrap()
        .image_for(&amd64())
        .await
        .unwrap();
    assert_eq!(image.documents.len(), 3);
    let twice = registry.add_document("twice", OCI_INDEX, &entry(&once));
    registry.add_document("thrice", OCI_INDEX, &entry(&twice));
    let deep = client()
        .repository(&registry.image("app:thrice"), vec![])
        .unwrap()
        .image_for(&amd64())
        .await;
    assert!(deep.unwrap_err().message.ends_with("nested too deeply"));
}

fn with_mirror(registry: &str, mirror: &str, more: &str) -> (tempfile::TempDir, RegistryClient) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(registry)).unwrap();
    let text = format!("[host.\"http://{mirror}\"]\n{more}");
    fs::write(dir.path().join(registry).join("hosts.toml"), text).unwrap();
    let hosts = Hosts::in_dir(dir.path());
    let client = RegistryClient::new(Settings {
        hosts,
        ..Settings::default()
    });
    (dir, client)
}

#[tokio::test]
async fn a_mirror_serves_first_and_gets_no_credentials() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start().await);
    mirror.add_image("v1", "amd64", b"layer");
    mirror.shelf().auth = Auth::AnonymousToken;
    let (_dir, client) = with_mirror(&registry.address, &mirror.address, "");
    let image = registry.image("app:v1");
    let repository = client
        .repository(&image, vec![Credential::basic("ann", "s3cret")])
        .unwrap();
    repository.image_for(&amd64()).await.unwrap();
    assert!(registry.log().is_empty(), "{:?}", registry.log());
    let log = mirror.log();
    assert!(log[0].starts_with(&format!(
        "GET /v2/app/manifests/v1?ns={}",
        registry.address.replace(':', "%3A")
    )));
    assert!(log.iter().all(|line| !line.contains("Basic")), "{log:?}");
}

#[tokio::test]
async fn headers_of_a_mirror_go_to_the_mirror_alone() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start_at("127.0.0.2").await);
    let blob_store = FakeRegistry::start_at("127.0.0.3").await;
    let blob = blob_store.add_blob("content");
    mirror.shelf().redirects_to = Some(blob_store.origin());
    let header = format!("[host.\"http://{}\".header]\n{} = \"blue\"", mirror.address, fake::TEAM);
    let (_dir, client) = with_mirror(&registry.address, &mirror.address, &header);
    let repository = client.repository(&registry.image("app:v1"), vec![]).unwrap();
    assert_eq!(fetched(&repository, &blob).await.unwrap(), b"content");
    assert_eq!(mirror.secrets(), ["blue"]);
    assert_eq!((blob_store.log().len(), blob_store.secrets().len()), (1, 0));
}

#[tokio::test]
async fn a_mirror_gets_its_own_login_and_not_that_of_the_registry() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start_at("127.0.0.2").await);
    registry.add_image("v1", "amd64", b"layer");
    mirror.add_image("v1", "amd64", b"layer");
    mirror.shelf().auth = Auth::Basic;
    let (dir, _) = with_mirror(&registry.address, &mirror.address, "");
    let client = |key: &str| {
        let mut mirror_logins = Keyring::default();
        mirror_logins.extend([Entry {
            pattern: ImagePattern::parse(key).unwrap(),
            credential: Credential::basic("ann", "s3cret"),
        }]);
        RegistryClient::new(Settings {
            hosts: Hosts::in_dir(dir.path()),
            mirror_logins,
            ..Settings::default()
        })
    };
    let image = registry.image("app:v1");
    let given = Credential::basic("bob", "of the registry");
    // A login for some other host: the mirror is asked without one.
    let repository = client("mirror.example")
        .repository(&image, vec![given.clone()])
        .unwrap();
    repository.image_for(&amd64()).await.unwrap();
    assert_eq!(mirror.secrets(), Vec::<String>::new());
    assert!(!mirror.log().is_empty() && !registry.log().is_empty());

    registry.shelf().log.clear();
    let repository = client(&mirror.address).repository(&image, vec![given]).unwrap();
    repository.image_for(&amd64()).await.unwrap();
    assert!(registry.log().is_empty(), "{:?}", registry.log());
    let secrets = mirror.secrets();
    // ann:s3cret
    assert!(
        !secrets.is_empty() && secrets.iter().all(|secret| secret == "Basic YW5uOnMzY3JldA=="),
        "{secrets:?}"
    );
}

#[rstest]
#[case::hub("nginx", "https://registry-1.docker.io")]
#[case::default_port_is_kept("a.io:443/x", "https://a.io:443")]
#[case::address("127.0.0.1:5000/x", "http://127.0.0.1:5000")]
#[case::named_by_the_file("b.io/x", "https://proxy.b.io:443")]
#[case::file_that_cannot_be_read("broken.io/x", "https://broken.io")]
fn a_login_is_for_the_host_that_answers_for_the_registry(#[case] image: &str, #[case] want: &str) {
    let dir = tempfile::tempdir().unwrap();
    let write = |registry: &str, text: &str| {
        fs::create_dir(dir.path().join(registry)).unwrap();
        fs::write(dir.path().join(registry).join("hosts.toml"), text).unwrap();
    };
    write(
        "b.io",
        "server = \"https://proxy.b.io:443/x\"\n[host.\"https://mirror.io/proxy/b\"]",
    );
    write("broken.io", "server = ");
    let mut mirror_logins = Keyring::default();
    mirror_logins.extend([("mirror.io/proxy", "near"), ("b.io", "far")].map(|(key, user)| Entry {
        pattern: ImagePattern::parse(key).unwrap(),
        credential: Credential::basic(user, "s3cret"),
    }));
    let client = RegistryClient::new(Settings {
        hosts: Hosts::in_dir(dir.path()),
        mirror_logins,
        ..Settings::default()
    });
    let servers = client.login_servers(&ImageRef::parse(image).unwrap());
    assert_eq!(servers.registry, want);
    let mirrors: Vec<_> = servers
        .mirrors
        .iter()
        .map(|m| (&*m.server, &*m.credential.username))
        .collect();
    let expected: &[_] = if image == "b.io/x" {
        &[("https://mirror.io", "near")]
    } else {
        &[]
    };
    assert_eq!(mirrors, expected);
}

#[tokio::test]
async fn a_mirror_that_fails_is_passed_by() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start().await);
    registry.add_image("v1", "amd64", b"layer");
    mirror.shelf().auth = Auth::Basic;
    let (_dir, client) = with_mirror(&registry.address, &mirror.address, "");
    let repository = client.repository(&registry.image("app:v1"), vec![]).unwrap();
    let image = repository.image_for(&amd64()).await.unwrap();
    assert_eq!(fetched(&repository, &image.manifest.layers[0]).await.unwrap(), b"layer");
}

#[tokio::test]
async fn a_mirror_that_may_not_resolve_is_not_asked_for_tags() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start().await);
    registry.add_image("v1", "amd64", b"layer");
    mirror.add_image("v1", "amd64", b"layer");
    let (_dir, client) = with_mirror(&registry.address, &mirror.address, "capabilities = [\"pull\"]");
    let repository = client.repository(&registry.image("app:v1"), vec![]).unwrap();
    let image = repository.image_for(&amd64()).await.unwrap();
    fetched(&repository, &image.manifest.layers[0]).await.unwrap();
    assert!(mirror.log().iter().all(|line| line.contains("/blobs/")) && !mirror.log().is_empty());
    assert_eq!(registry.log(), ["GET /v2/app/manifests/v1"]);
}

#[tokio::test]
async fn a_redirect_elsewhere_takes_no_credentials_along() {
    let (registry, store) = (FakeRegistry::start().await, FakeRegistry::start().await);
    registry.shelf().auth = Auth::Basic;
    registry.shelf().redirects_to = Some(store.origin());
    let blob = store.add_blob("content");
    let image = registry.image("app:v1");
    let repository = client()
        .repository(&image, vec![Credential::basic("ann", "s3cret")])
        .unwrap();
    assert_eq!(fetched(&repository, &blob).await.unwrap(), b"content");
    assert!(!store.log()[0].contains("Basic"), "{:?}", store.log());
}

#[tokio::test]
async fn a_signed_address_is_not_told_when_it_fails() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob("content");
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    registry.shelf().redirects_to = Some(format!("http://{gone}"));
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let error = fetched(&repository, &blob).await.unwrap_err();
    assert_eq!(error.reason, Reason::Unreachable);
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
}
