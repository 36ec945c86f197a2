//! Registries whose manifests are meant to do harm: what it costs, and what it is called.

use std::{path::Path, sync::Arc};

use larder_model::{ByteSize, Reason};
use larder_runtime::{Progress, PullRequest, RuntimeEndpoint, connect};
use larder_testkit::{ContainerdVersion, CriProxy, wait_until};
use rstest::rstest;
use sha2::{Digest as _, Sha256};

use super::{
    DEADLINE, Node, image,
    stub::{Sent, Stub, answer},
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn digest(content: &str) -> String {
    let bytes = Sha256::digest(content);
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

/// An image with these layers, none of which there is.
pub(crate) struct Promised {
    config: String,
    manifest: String,
}

impl Promised {
    fn new(layers: &[String]) -> Self {
        Self::of_size(layers, 10)
    }

    /// With layers of this size.
    pub(crate) fn of_size(layers: &[String], size: usize) -> Self {
        // containerd asks for no layer before the two lists are of one length.
        let rootfs = serde_json::json!({"type": "layers", "diff_ids": layers});
        let config = serde_json::json!({"os": "linux", "architecture": "amd64", "rootfs": rootfs}).to_string();
        let layers: Vec<_> = layers
            .iter()
            .map(|digest| serde_json::json!({"mediaType": LAYER, "size": size, "digest": digest}))
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "layers": layers,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json", "size": config.len(), "digest": digest(&config),
            },
        });
        Self {
            config,
            manifest: manifest.to_string(),
        }
    }

    /// The same with something else in place of the manifest.
    fn with_manifest(self, manifest: &str) -> Self {
        Self {
            manifest: manifest.to_owned(),
            ..self
        }
    }

    /// A registry that has no other image, and sends this for every layer. Nothing: it hangs. `None`: it has no layer.
    pub(crate) async fn serve(self, layer: Option<String>) -> Stub {
        let (found, config) = (digest(&self.manifest), digest(&self.config));
        Stub::start("127.0.0.1", move |sent: &Sent| {
            let headers = [("Content-Type", MANIFEST), ("Docker-Content-Digest", &*found)];
            if sent.line.starts_with("HEAD") {
                // The length of a body that does not come.
                let whole = answer("200 OK", &headers, &self.manifest);
                whole[..whole.len() - self.manifest.len()].to_owned()
            } else if sent.line.contains("/manifests/") {
                answer("200 OK", &headers, &self.manifest)
            } else if sent.line.contains(&config) {
                answer("200 OK", &[], &self.config)
            } else {
                match layer.as_deref() {
                    None => answer("404 Not Found", &[], ""),
                    Some("") => String::new(),
                    Some(layer) => answer("200 OK", &[], layer),
                }
            }
        })
        .await
    }
}

/// The manifest of an image is a registry's word. Each layer it names must not cost requests to the runtime again and
/// again.
#[rstest]
#[case::many_layers(900, 64)]
#[case::more_than_any_image_has(5000, 0)]
#[tokio::test]
async fn thousands_of_layers_do_not_flood_the_runtime(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] layers: usize,
    #[case] look_ups: usize,
) {
    let layers: Vec<_> = (0..layers).map(|n| format!("sha256:{n:064x}")).collect();
    let promised = Promised::new(&layers);
    let (target, total) = (digest(&promised.manifest), layers.len() * 10 + promised.config.len());
    let registry = promised.serve(Some(String::new())).await;
    let node = Node::start(version).await;
    let host = registry.address.to_string();
    let hosts = format!("server = \"http://{host}\"\n");
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let proxy = CriProxy::start(&node.containerd.socket()).unwrap();
    let runtime = connect(&RuntimeEndpoint::at(proxy.socket()), Path::new("/"))
        .await
        .unwrap();
    let name = image(&format!("{host}/app@{target}"));
    let pull = {
        let (runtime, request) = (Arc::clone(&runtime), PullRequest::new(name.clone()));
        tokio::spawn(async move { runtime.pull(&request).await })
    };
    wait_until(DEADLINE, "requests for layers", async || {
        registry
            .sent()
            .iter()
            .any(|sent| sent.line.contains("/blobs/sha256:0000"))
    })
    .await
    .unwrap();
    let before = proxy.calls().len();
    let read = runtime.progress(&name).await.unwrap();
    let info = proxy.calls_of("Info").len();
    let all = proxy.calls().len() - before;
    pull.abort();
    assert!(info <= look_ups, "{info} look-ups of blobs");
    assert!(all <= look_ups + 10, "{all} calls");
    let shown = read.map(|Progress { total, .. }| total);
    assert_eq!(shown, (0 < look_ups).then_some(ByteSize(total as u64)));
}

#[rstest]
#[case::page_of_a_proxy(Promised::new(&[]).with_manifest("<html>"))]
#[case::nothing(Promised::new(&[]).with_manifest("{}"))]
#[case::broken_off(Promised::new(&[]).with_manifest("{\"schemaVersion\": 2, \"config\""))]
#[case::other_bytes(Promised::new(&[format!("sha256:{}", "a".repeat(64))]))]
#[case::a_digest_that_is_none(Promised::new(&["sha256:x".to_owned()]))]
#[tokio::test]
async fn a_manifest_that_cannot_be_used_is_no_image(
    #[values(ContainerdVersion::V1_6, ContainerdVersion::V2)] version: ContainerdVersion,
    #[case] promised: Promised,
) {
    let registry = promised.serve(Some("0123456789".to_owned())).await;
    let node = Node::start(version).await;
    let host = registry.address.to_string();
    let hosts = format!("server = \"http://{host}\"\n");
    node.containerd.set_hosts(&host, &hosts).unwrap();
    let name = image(&format!("{host}/app:v1"));
    let error = node.runtime.pull(&PullRequest::new(name)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::InvalidImage, "{}", error.text());
}
