//! An API server and a running controller.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use larder_controller::run::Controller;
use larder_controller::settings::Settings;
use larder_localplane::{Config, Localplane};
use larder_telemetry::{Health, Registry};
use larder_testkit::{ControlPlane, unique_name, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Anything that should happen at once happens within this, on a machine that compiles at the same time.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// An API server in this process, and a controller on it.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    stop: CancellationToken,
    controllers: Vec<JoinHandle<()>>,
    _plane: Option<Localplane>,
}

impl Stage {
    /// A controller with the usual settings.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A controller with changed settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut stage = Self::without_controller().await;
        stage.start_controller(change);
        stage
    }

    pub(crate) async fn without_controller() -> Self {
        let plane = Localplane::start(Config::new(larder_api::crds())).await.unwrap();
        let client = Client::new(plane.service(), "default");
        Self::on(client, Some(plane)).await
    }

    /// The same on a real API server, which belongs to this test alone.
    pub(crate) async fn on_kubernetes(plane: &ControlPlane) -> Self {
        Self::on(plane.client().unwrap(), None).await
    }

    async fn on(client: Client, plane: Option<Localplane>) -> Self {
        let namespace = unique_name("team");
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        Self {
            client,
            namespace,
            stop: CancellationToken::new(),
            controllers: Vec::new(),
            _plane: plane,
        }
    }

    pub(crate) fn start_controller(&mut self, change: impl FnOnce(&mut Settings)) {
        self.stop = CancellationToken::new();
        self.add_controller(change);
    }

    /// One more controller beside those that run.
    pub(crate) fn add_controller(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = Settings::new(unique_name("controller"));
        settings.leader_elect = false;
        // The API server of most of these tests has no policies; those of the node policy turn this off again.
        settings.accept_unenforced_node_policy = true;
        change(&mut settings);
        let mut registry = Registry::default();
        let controller = Controller::new(self.client.clone(), settings, &Health::default(), &mut registry);
        let stop = self.stop.clone();
        self.controllers.push(tokio::spawn(async move {
            controller.run(stop).await.unwrap();
        }));
    }

    /// Stops the controllers and waits until they are gone.
    pub(crate) async fn stop_controller(&mut self) {
        self.stop.cancel();
        for controller in self.controllers.drain(..) {
            controller.await.unwrap();
        }
    }

    pub(crate) fn jobs(&self) -> Api<ImagePullJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn lists(&self) -> Api<ImageListPullJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn prepulls(&self) -> Api<ImagePrePullJob> {
        Api::all(self.client.clone())
    }

    pub(crate) fn node_images(&self) -> Api<NodeImage> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn submit(&self, name: &str, spec: Value) -> ImagePullJob {
        let job = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": name}, "spec": spec,
        });
        let job: ImagePullJob = serde_json::from_value(job).unwrap();
        self.jobs().create(&PostParams::default(), &job).await.unwrap()
    }

    /// Waits until a job is as described, and gives it back.
    pub(crate) async fn job_becomes(&self, name: &str, what: &str, is: impl Fn(&ImagePullJob) -> bool) -> ImagePullJob {
        let jobs = self.jobs();
        wait_for(SOON, format!("{name} to be {what}"), async || {
            let job = jobs.get(name).await.map_err(|error| error.to_string())?;
            if is(&job) {
                Ok(job)
            } else {
                Err(format!("{:?}", job.status))
            }
        })
        .await
        .unwrap()
    }

    /// Waits until a job has ended, and gives it back.
    pub(crate) async fn job_ends(&self, name: &str) -> ImagePullJob {
        self.job_becomes(name, "over", |job| {
            job.status
                .as_ref()
                .is_some_and(|status| status.completion_time.is_some())
        })
        .await
    }

    /// Waits until a NodeImage is as described, and gives it back.
    pub(crate) async fn node_becomes(&self, node: &str, what: &str, is: impl Fn(&NodeImage) -> bool) -> NodeImage {
        let nodes = self.node_images();
        wait_for(SOON, format!("{node} to be {what}"), async || {
            let object = nodes.get(node).await.map_err(|error| error.to_string())?;
            if is(&object) {
                Ok(object)
            } else {
                Err(format!("{object:?}"))
            }
        })
        .await
        .unwrap()
    }

    /// Reasons of the Events about an object.
    pub(crate) async fn event_reasons(&self, name: &str) -> Vec<String> {
        let events = Api::<k8s_openapi::api::events::v1::Event>::all(self.client.clone());
        let all = events.list(&kube::api::ListParams::default()).await.unwrap();
        let about = |event: &k8s_openapi::api::events::v1::Event| {
            event
                .regarding
                .as_ref()
                .and_then(|object| object.name.clone())
                .as_deref()
                == Some(name)
        };
        all.into_iter().filter(about).filter_map(|event| event.reason).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The condition of a type, as `reason`.
pub(crate) fn condition(job: &ImagePullJob, kind: &str) -> Option<String> {
    let conditions = &job.status.as_ref()?.progress.conditions;
    conditions
        .iter()
        .find(|condition| condition.type_ == kind && condition.status == "True")
        .map(|condition| condition.reason.clone())
}
