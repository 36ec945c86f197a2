//! One node with the agent as a process, and the moment at which the API shows an answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use larder_api::node_image::{ImageTagStatus, NodeImage, NodeImageSpec};
use larder_model::{ImageRef, Phase};
use larder_testkit::{Access, Lifetime, Port, Process, Program, unique_name, wait_until};
use serde_json::json;
use tokio::time::Instant;

pub(crate) const LIMIT: Duration = Duration::from_mins(2);

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) images: Api<NodeImage>,
    folder: tempfile::TempDir,
}

/// An empty NodeImage of its own.
pub(crate) async fn node(access: &Access) -> Node {
    let name = unique_name("bench");
    let images = Api::<NodeImage>::all(access.client().unwrap());
    let empty = NodeImage::new(&name, NodeImageSpec::default());
    images.create(&PostParams::default(), &empty).await.unwrap();
    Node {
        name,
        images,
        folder: tempfile::tempdir().unwrap(),
    }
}

impl Node {
    /// Starts the release binary and waits until it is ready.
    pub(crate) async fn agent(&self, access: &Access, socket: &Path) -> Process {
        let folder = self.folder.path();
        let listen = Port::reserve().unwrap();
        let args = [
            ("--node-name", self.name.clone()),
            ("--kubeconfig", access.kubeconfig().display().to_string()),
            ("--runtime-endpoint", format!("unix://{}", socket.display())),
            ("--state-dir", folder.join("state").display().to_string()),
            ("--listen", listen.address().to_string()),
        ];
        let program = Program {
            name: "larder-agent",
            path: binary(),
            args: args
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value])
                .collect(),
            env: vec![],
            log: folder.join("agent.log"),
            lifetime: Lifetime::Handle,
        };
        let agent = Process::start(program).unwrap();
        let ready = async || match reqwest::get(format!("http://{}/readyz", listen.address())).await {
            Ok(answer) => answer.status().is_success(),
            Err(_) => false,
        };
        wait_until(LIMIT, "the agent", ready).await.unwrap();
        agent
    }

    /// Orders these images and nothing else; returns the moment at which the order was sent.
    pub(crate) async fn order(&self, references: &[String]) -> Instant {
        let mut images = serde_json::Map::new();
        for reference in references {
            let image = ImageRef::parse(reference).unwrap();
            let policy = json!({"timeoutSeconds": 600, "backoffLimit": 0, "ttlSecondsAfterFinished": 3600});
            let tags = json!([{"tag": image.tag_text(), "pullPolicy": policy, "progressSeconds": 1}]);
            images.insert(image.name().to_owned(), json!({"tags": tags}));
        }
        let patch = json!([{"op": "add", "path": "/spec/images", "value": images}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        let sent = Instant::now();
        self.images
            .patch(&self.name, &PatchParams::default(), &patch)
            .await
            .unwrap();
        sent
    }

    /// The object as it changes.
    pub(crate) fn changes(&self) -> impl Stream<Item = NodeImage> + use<> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        watcher(self.images.clone(), config)
            .default_backoff()
            .applied_objects()
            .filter_map(async |change| change.ok())
    }
}

/// Waits until the API shows that this image is there, and returns the moment.
pub(crate) async fn shown(changes: &mut (impl Stream<Item = NodeImage> + Unpin), reference: &str) -> Instant {
    let image = ImageRef::parse(reference).unwrap();
    let seen = async {
        while let Some(object) = changes.next().await {
            let phase = object
                .result(image.name(), &image.tag_text())
                .map(ImageTagStatus::phase);
            assert_ne!(phase, Some(Phase::Failed), "{object:?}");
            if phase == Some(Phase::Succeeded) {
                return Instant::now();
            }
        }
        unreachable!("the watch ended");
    };
    tokio::time::timeout(LIMIT, seen).await.unwrap()
}

/// The release binary that lies beside this example's folder.
fn binary() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.parent().unwrap().parent().unwrap().join("larder-agent")
}
