//! What a controller shows of itself, while it leads and afterwards.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use larder_controller::run::{Controller, LEASE};
use larder_controller::settings::Settings;
use larder_telemetry::{Health, Registry};
use larder_testkit::wait_for;
use prometheus_client::encoding::text::encode;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fleet::{Agent, Fleet};
use crate::stage::{SOON, Stage};

/// The lines of these gauges.
fn shown(registry: &Registry) -> Vec<String> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let gauges = ["active_pulls", "running_jobs"];
    let is_one = |line: &&str| gauges.iter().any(|gauge| line.starts_with(gauge));
    text.lines().filter(is_one).map(str::to_owned).collect()
}

async fn becomes(registry: &Registry, want: [&str; 2]) {
    wait_for(SOON, format!("the gauges to be {want:?}"), async || {
        let shown = shown(registry);
        if shown == want {
            Ok(())
        } else {
            Err(format!("{shown:?}"))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_leader_that_steps_down_shows_nothing_that_runs() {
    let stage = Stage::without_controller().await;
    let _fleet = Fleet::of(&stage.client, &[Agent::Hangs]).await;
    let settings = Settings {
        namespace: stage.namespace.clone(),
        ..Settings::new("first".to_owned())
    };
    let mut registry = Registry::default();
    let controller = Controller::new(stage.client.clone(), settings, &Health::default(), &mut registry);
    let stop = CancellationToken::new();
    let task = tokio::spawn(controller.run(stop.clone()));
    stage.submit("job", json!({"image": "nginx:1"})).await;
    becomes(&registry, ["active_pulls 1", "running_jobs 1"]).await;

    let leases = Api::<Lease>::namespaced(stage.client.clone(), &stage.namespace);
    let stolen = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    leases.patch(LEASE, &PatchParams::default(), &stolen).await.unwrap();
    becomes(&registry, ["active_pulls 0", "running_jobs 0"]).await;
    stop.cancel();
    task.await.unwrap().unwrap();
}
