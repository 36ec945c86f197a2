//! Private images: sealed credentials that are right, wrong or missing, and credential-provider plugins.

use std::os::unix::fs::PermissionsExt as _;

use larder_api::node_image::{Claim, ImageTagSpec, SealedCredential};
use larder_model::{ImageRef, Phase, Reason};
use larder_registry::provider::{ProviderConfig, Providers};
use larder_seal::{Binding, Login, PublicKey, seal};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Containerd, ContainerdVersion, Registry, wait_for};
use rstest::rstest;

use super::scene::{Change, Node, SOON};

/// The job that everything is sealed for.
pub(crate) const JOB: &str = "11111111-2222-3333-4444-555555555555";

/// Seals what the controller would seal: for this node, object, image and job.
pub(crate) async fn sealed(node: &Node, reference: &str, user: &str, password: &str) -> SealedCredential {
    let published = async || {
        let object = node.get().await;
        let key = object
            .status
            .and_then(|status| status.agent)
            .and_then(|agent| agent.public_key);
        key.map(|key| (object.metadata.uid.unwrap(), key)).ok_or("no key yet")
    };
    let (uid, key) = wait_for(SOON, "the node's public key", published).await.unwrap();
    let image = ImageRef::parse(reference).unwrap();
    let binding = Binding {
        node: &node.name,
        node_image_uid: &uid,
        image: &image,
        claim_uid: JOB,
    };
    let sealed = seal(
        &PublicKey::parse(&key).unwrap(),
        &binding,
        "test",
        &[Login::new(user, password)],
    )
    .unwrap();
    SealedCredential {
        id: sealed.id,
        key: sealed.key,
        data: sealed.data,
    }
}

pub(crate) fn claimed(entry: &mut ImageTagSpec, credential: &SealedCredential) {
    entry.claims = vec![Claim {
        uid: JOB.to_owned(),
        version: entry.version,
    }];
    entry.credentials = vec![credential.id.clone()];
}

struct Scene {
    registry: Registry,
    reference: String,
    containerd: Containerd,
    node: Node,
}

async fn private(version: ContainerdVersion) -> Scene {
    let registry = Registry::start(Auth::basic("ann", "s3cret")).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    Scene {
        reference: pushed.reference,
        registry,
        containerd: Containerd::start(version).await.unwrap(),
        node: Node::new().await,
    }
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn sealed_credentials_open_a_private_registry(#[case] version: ContainerdVersion) {
    let scene = private(version).await;
    let node = &scene.node;
    let _agent = node.containerd(&scene.containerd, Change::default());
    let credential = sealed(node, &scene.reference, "ann", "s3cret").await;
    node.seal(vec![credential.clone()]).await;
    let wanted = node.pull(&scene.reference, |entry| claimed(entry, &credential)).await;
    let status = node.until_done(&wanted).await;
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
async fn a_wrong_password_is_denied_and_not_tried_again(#[case] version: ContainerdVersion) {
    let scene = private(version).await;
    let node = &scene.node;
    let _agent = node.containerd(&scene.containerd, Change::default());
    let credential = sealed(node, &scene.reference, "ann", "wr0ng").await;
    node.seal(vec![credential.clone()]).await;
    let wanted = node.pull(&scene.reference, |entry| claimed(entry, &credential)).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason(), status.attempts),
        (Phase::Failed, Some(Reason::AuthDenied), Some(1)),
        "{status:?}"
    );
    let message = status.message.unwrap();
    assert!(
        message.ends_with(Reason::AuthDenied.advice()) && !message.contains("wr0ng"),
        "{message}"
    );
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn without_credentials_the_registry_denies(#[case] version: ContainerdVersion) {
    let scene = private(version).await;
    let node = &scene.node;
    let _agent = node.containerd(&scene.containerd, Change::default());
    let wanted = node.pull(&scene.reference, |_| {}).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Failed, Some(Reason::AuthDenied)),
        "{status:?}"
    );
}

#[tokio::test]
async fn an_open_image_is_not_pulled_while_its_named_secret_is_missing() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::new().await;
    let image = ImageRef::parse(&pushed.reference).unwrap();
    let agent = node.containerd(&containerd, Change::default());
    node.patch(
        serde_json::json!([{"op": "add", "path": "/spec/images", "value": {image.name(): {
            "pullSecrets": [{"namespace": "larder-system", "name": "later"}],
            "tags": [super::scene::tag("1")],
        }}}]),
    )
    .await;
    let wanted = super::scene::EntryName::new(image.name(), "1");
    let status = node
        .until(&wanted, "a word about the secret", |status| {
            status.reason() == Some(Reason::SecretMissing)
        })
        .await;
    assert_eq!((status.phase(), status.attempts.unwrap_or(0)), (Phase::Waiting, 0));
    agent.stop().await;
    let listed = containerd.ctr(["images", "ls", "-q"]).await.unwrap();
    assert!(listed.stdout.is_empty(), "it was pulled as nobody");
}

#[tokio::test]
async fn an_entry_that_comes_before_its_credentials_waits_and_uses_up_no_try() {
    let scene = private(ContainerdVersion::V2).await;
    let node = &scene.node;
    let _agent = node.containerd(&scene.containerd, Change::default());
    let credential = sealed(node, &scene.reference, "ann", "s3cret").await;
    let wanted = node
        .pull(&scene.reference, |entry| {
            claimed(entry, &credential);
            entry.pull_policy.backoff_limit = 0;
        })
        .await;
    let status = node
        .until(&wanted, "a word about the credentials", |status| {
            status.reason() == Some(Reason::CredentialsUnreadable)
        })
        .await;
    assert_eq!((status.phase(), status.attempts.unwrap_or(0)), (Phase::Waiting, 0));
    node.seal(vec![credential]).await;
    let status = node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.attempts),
        (Phase::Succeeded, Some(1)),
        "{status:?}"
    );
}

#[tokio::test]
async fn credentials_for_another_node_do_not_open_and_the_right_ones_mend_it() {
    let scene = private(ContainerdVersion::V2).await;
    let (node, stranger) = (&scene.node, Node::new().await);
    let _agent = node.containerd(&scene.containerd, Change::default());
    let _other = stranger.fake(&larder_runtime::fake::FakeRuntime::new());
    let wrong = sealed(&stranger, &scene.reference, "ann", "s3cret").await;
    node.seal(vec![wrong.clone()]).await;
    let wanted = node.pull(&scene.reference, |entry| claimed(entry, &wrong)).await;
    let status = node
        .until(&wanted, "a refusal", |status| {
            status.reason() == Some(Reason::CredentialsUnreadable)
        })
        .await;
    assert_eq!(status.phase(), Phase::Waiting);
    let right = sealed(node, &scene.reference, "ann", "s3cret").await;
    node.seal(vec![right.clone()]).await;
    node.pull(&scene.reference, |entry| claimed(entry, &right)).await;
    node.until_phase(&wanted, Phase::Succeeded).await;
}

#[tokio::test]
async fn a_plugin_knows_the_password() {
    let scene = private(ContainerdVersion::V2).await;
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("vault");
    let answer = serde_json::json!({
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "auth": {scene.registry.host(): {"username": "ann", "password": "s3cret"}},
    });
    std::fs::write(
        &plugin,
        format!("#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{answer}\nEND\n"),
    )
    .unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "vault",
            "matchImages": [scene.registry.host()],
            "defaultCacheDuration": "1m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }],
    });
    let providers = Providers::new(ProviderConfig::parse(&config.to_string()).unwrap(), folder.path());
    let change = Change {
        providers: Some(providers),
        ..Change::default()
    };
    let _agent = scene.node.containerd(&scene.containerd, change);
    let wanted = scene.node.pull(&scene.reference, |_| {}).await;
    let status = scene.node.until_done(&wanted).await;
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Succeeded, None),
        "{status:?}"
    );
}
