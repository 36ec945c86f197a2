//! What the tests share: a NodeImage of their own on the shared control plane, an agent for it, and ways to wait.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use larder_agent::{Clock, Credentials, FetchMode, Metrics, Parts, RuntimePlace, RuntimeSource, Settings};
use larder_api::node_image::{ImageSpec, ImageTagPullPolicy, ImageTagSpec, ImageTagStatus, SealedCredential};
use larder_api::{NodeImage, NodeImageSpec, crds};
use larder_model::{ImageRef, NodeName, Phase};
use larder_registry::provider::Providers;
use larder_runtime::RuntimeEndpoint;
use larder_runtime::fake::FakeRuntime;
use larder_seal::KeyPair;
use larder_telemetry::{Health, Registry};
use larder_testkit::{Access, Containerd, ControlPlane, unique_name, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Long enough for a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// One node: its NodeImage, its state on disk.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) access: Access,
    pub(crate) images: Api<NodeImage>,
    pub(crate) state: tempfile::TempDir,
}

/// How an agent of a test differs from the usual one.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) max_pulls: Option<usize>,
    pub(crate) providers: Option<Providers>,
    pub(crate) clock: Option<Clock>,
    pub(crate) silence: Option<Duration>,
    pub(crate) inspect_every: Option<Duration>,
    /// As the flag of this name.
    pub(crate) accept_foreign_images: bool,
    /// As the flag of this name.
    pub(crate) fetch: FetchMode,
}

/// A running agent; it ends when it is dropped.
pub(crate) struct Agent {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), larder_agent::AgentError>>>,
    pub(crate) health: Health,
    registry: Registry,
}

impl Node {
    /// A node on the control plane that all tests share.
    pub(crate) async fn new() -> Self {
        let access = ControlPlane::shared(&crds()).await.unwrap();
        Self::on(access).await
    }

    /// A node with an empty NodeImage.
    pub(crate) async fn on(access: Access) -> Self {
        let images = Api::<NodeImage>::all(access.client().unwrap());
        let name = NodeName::parse(&unique_name("node")).unwrap();
        let empty = NodeImage::new(name.as_str(), NodeImageSpec::default());
        images.create(&PostParams::default(), &empty).await.unwrap();
        Self {
            name,
            access,
            images,
            state: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn fake(&self, fake: &FakeRuntime) -> Agent {
        self.start(RuntimeSource::Given(Arc::new(fake.clone())), Change::default())
    }

    pub(crate) fn containerd(&self, containerd: &Containerd, change: Change) -> Agent {
        self.runtime(&containerd.socket(), change)
    }

    pub(crate) fn runtime(&self, socket: &Path, change: Change) -> Agent {
        let place = RuntimePlace {
            endpoint: Some(RuntimeEndpoint::at(socket)),
            host_root: PathBuf::from("/"),
        };
        self.start(RuntimeSource::Found(place), change)
    }

    pub(crate) fn start(&self, runtime: RuntimeSource, change: Change) -> Agent {
        let usual = Settings::new(self.name.clone());
        let settings = Settings {
            state_dir: Some(self.state.path().to_owned()),
            max_pulls: change.max_pulls.unwrap_or(usual.max_pulls),
            silence: change.silence.unwrap_or(usual.silence),
            inspect_every: change.inspect_every.unwrap_or(usual.inspect_every),
            // Nothing is emulated, whatever the machine of the tests can do.
            binfmt_dir: self.state.path().join("binfmt_misc"),
            accept_foreign_images: change.accept_foreign_images,
            fetch: change.fetch,
            ..usual
        };
        let mut config = self.access.config(self.access.admin_token()).unwrap();
        config.default_retry = false;
        // The client of a test installs the TLS provider.
        self.access.client().unwrap();
        let key = KeyPair::load_or_create(&self.state.path().join("node.key")).unwrap();
        let health = Health::default();
        let parts = Parts {
            client: kube::Client::try_from(config).unwrap(),
            runtime,
            credentials: Credentials::new(Some(key), change.providers),
            clock: change.clock.unwrap_or_else(Clock::of_this_machine),
            metrics: Metrics::default(),
            health: health.clone(),
        };
        let mut registry = Registry::default();
        parts.metrics.register(&mut registry);
        let stop = CancellationToken::new();
        let task = tokio::spawn(larder_agent::run(settings, parts, stop.clone()));
        Agent {
            stop,
            task: Some(task),
            health,
            registry,
        }
    }

    /// Replaces the whole spec.
    pub(crate) async fn order(&self, tags: &[(&str, ImageTagSpec)]) {
        let mut images: std::collections::BTreeMap<String, ImageSpec> = std::collections::BTreeMap::new();
        for (name, tag) in tags {
            images.entry((*name).to_owned()).or_default().tags.push(tag.clone());
        }
        self.patch(json!([{"op": "add", "path": "/spec/images", "value": images}]))
            .await;
    }

    /// Orders one image by its full reference, with some of the entry changed.
    pub(crate) async fn pull(&self, reference: &str, change: impl FnOnce(&mut ImageTagSpec)) -> EntryName {
        let image = ImageRef::parse(reference).unwrap();
        let mut entry = tag(&image.tag_text());
        change(&mut entry);
        self.order(&[(image.name(), entry)]).await;
        EntryName {
            name: image.name().to_owned(),
            tag: image.tag_text(),
        }
    }

    pub(crate) async fn patch(&self, operations: Value) {
        let patch: Patch<NodeImage> = Patch::Json(serde_json::from_value(operations).unwrap());
        self.images
            .patch(self.name.as_str(), &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self) {
        self.images
            .delete(self.name.as_str(), &DeleteParams::default())
            .await
            .unwrap();
    }

    pub(crate) async fn get(&self) -> NodeImage {
        self.images.get(self.name.as_str()).await.unwrap()
    }

    pub(crate) async fn seal(&self, sealed: Vec<SealedCredential>) {
        self.patch(json!([{"op": "add", "path": "/spec/sealedCredentials", "value": sealed}]))
            .await;
    }

    /// The public half of the key in this node's folder.
    pub(crate) fn public_key(&self) -> String {
        let key = KeyPair::load_or_create(&self.state.path().join("node.key")).unwrap();
        key.public().to_string()
    }

    /// Waits until the entry's status is as wanted.
    pub(crate) async fn until(
        &self,
        wanted: &EntryName,
        what: &str,
        good: impl Fn(&ImageTagStatus) -> bool,
    ) -> ImageTagStatus {
        let question = async || {
            let object = self
                .images
                .get(self.name.as_str())
                .await
                .map_err(|error| error.to_string())?;
            match object.result(&wanted.name, &wanted.tag) {
                Some(status) if good(status) => Ok(status.clone()),
                other => Err(format!("{other:?}")),
            }
        };
        wait_for(SOON, what, question).await.unwrap()
    }

    pub(crate) async fn until_phase(&self, wanted: &EntryName, phase: Phase) -> ImageTagStatus {
        self.until(wanted, phase.as_str(), |status| status.phase() == phase)
            .await
    }

    /// Waits for a final answer.
    pub(crate) async fn until_done(&self, wanted: &EntryName) -> ImageTagStatus {
        self.until(wanted, "an answer", |status| status.phase().is_final())
            .await
    }
}

/// Names an entry.
pub(crate) struct EntryName {
    pub(crate) name: String,
    pub(crate) tag: String,
}

impl EntryName {
    pub(crate) fn new(name: &str, tag: &str) -> Self {
        Self {
            name: name.to_owned(),
            tag: tag.to_owned(),
        }
    }
}

impl Agent {
    /// Ends it as SIGTERM would.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.await.unwrap().unwrap();
        }
    }

    /// Whether the metrics have this line.
    pub(crate) fn counts(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().any(|known| known == line)
    }

    /// How often another agent overwrote this one's status.
    pub(crate) fn conflicts(&self) -> usize {
        (0..100)
            .find(|count| self.counts(&format!("status_conflicts_total {count}")))
            .unwrap()
    }

    /// What a start that cannot succeed says.
    pub(crate) async fn ended(mut self) -> String {
        let ended = tokio::time::timeout(SOON, self.task.take().unwrap()).await.unwrap();
        ended.unwrap().unwrap_err().to_string()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// An entry with short times.
pub(crate) fn tag(tag: &str) -> ImageTagSpec {
    ImageTagSpec {
        tag: tag.to_owned(),
        pull_policy: ImageTagPullPolicy {
            timeout_seconds: 60,
            backoff_limit: 1,
            ttl_seconds_after_finished: 3600,
            active_deadline_seconds: None,
        },
        progress_seconds: Some(1),
        ..ImageTagSpec::default()
    }
}

/// Whether the message of a status has these words.
pub(crate) fn says(status: &ImageTagStatus, words: &str) -> bool {
    status.message.as_ref().is_some_and(|message| message.contains(words))
}

pub(crate) fn if_not_present(entry: &mut ImageTagSpec) {
    entry.image_pull_policy = Some("IfNotPresent".to_owned());
}
