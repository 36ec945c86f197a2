//! Leadership on a real kube-apiserver. `make check` leaves modules of this name out.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use larder_testkit::{ControlPlane, unique_name, wait_until};
use tokio::sync::oneshot;

use super::*;

const SOON: Duration = Duration::from_secs(30);

async fn client() -> Client {
    let access = ControlPlane::shared(&larder_api::crds()).await.unwrap();
    access.client().unwrap()
}

async fn namespace(client: &Client) -> String {
    let namespace = unique_name("controller");
    let object = serde_json::from_value(serde_json::json!({ "metadata": { "name": namespace } })).unwrap();
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    namespaces
        .create(&kube::api::PostParams::default(), &object)
        .await
        .unwrap();
    namespace
}

async fn holder(client: &Client, namespace: &str) -> Option<String> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(LEASE).await.unwrap()?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

/// A core that says when it may write, and ends when it is let.
struct Core {
    writes: oneshot::Sender<()>,
    stopping: oneshot::Sender<()>,
    let_go: oneshot::Receiver<()>,
}

impl Core {
    async fn run(self, mut inputs: CoreInputs) {
        let may_write = |leadership: &Leadership| leadership.may_write(Instant::now());
        inputs.permit.wait_for(may_write).await.unwrap();
        self.writes.send(()).unwrap();
        inputs.stop.cancelled().await;
        self.stopping.send(()).unwrap();
        self.let_go.await.unwrap();
    }
}

#[tokio::test]
async fn the_lease_is_given_back_after_the_last_write() {
    let client = client().await;
    let settings = Settings {
        namespace: namespace(&client).await,
        ..Settings::new("first".into())
    };
    let namespace = settings.namespace.clone();
    let health = Health::default();
    let controller = Controller::new(client.clone(), settings, &health, &mut Registry::default());
    let (writes, may_write) = oneshot::channel();
    let (stopping, is_stopping) = oneshot::channel();
    let (release, let_go) = oneshot::channel();
    let core = Core {
        writes,
        stopping,
        let_go,
    };
    let stop = CancellationToken::new();
    let running = tokio::spawn(controller.run_around(|inputs| core.run(inputs), stop.clone()));

    timeout(SOON, may_write).await.unwrap().unwrap();
    wait_until(SOON, "the controller to be ready", async || {
        health.not_ready().is_none()
    })
    .await
    .unwrap();
    assert_eq!(holder(&client, &namespace).await.as_deref(), Some("first"));

    stop.cancel();
    timeout(SOON, is_stopping).await.unwrap().unwrap();
    assert_eq!(
        holder(&client, &namespace).await.as_deref(),
        Some("first"),
        "the core still writes"
    );
    release.send(()).unwrap();
    timeout(SOON, running).await.unwrap().unwrap().unwrap();
    assert_eq!(holder(&client, &namespace).await, None);
}

#[tokio::test]
async fn a_core_that_ends_by_itself_ends_the_controller() {
    let client = client().await;
    let settings = Settings {
        leader_elect: false,
        ..Settings::new("alone".into())
    };
    let controller = Controller::new(client, settings, &Health::default(), &mut Registry::default());
    let ended = controller.run_around(async |_| {}, CancellationToken::new());
    let error = timeout(SOON, ended).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the task `core` ended by itself");
}

#[tokio::test]
async fn alone_it_leads_without_a_lease() {
    let client = client().await;
    let settings = Settings {
        namespace: namespace(&client).await,
        leader_elect: false,
        ..Settings::new("alone".into())
    };
    let namespace = settings.namespace.clone();
    let controller = Controller::new(client.clone(), settings, &Health::default(), &mut Registry::default());
    let stop = CancellationToken::new();
    let when_leading = stop.clone();
    let core = async move |mut inputs: CoreInputs| {
        inputs
            .permit
            .wait_for(|leadership| leadership.may_write(Instant::now()))
            .await
            .unwrap();
        when_leading.cancel();
        inputs.stop.cancelled().await;
    };
    timeout(SOON, controller.run_around(core, stop)).await.unwrap().unwrap();
    assert_eq!(holder(&client, &namespace).await, None);
}
