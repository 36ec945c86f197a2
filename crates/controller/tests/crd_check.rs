//! The watch over the CRDs, on a real kube-apiserver: missing, ours, somebody else's, ours again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use larder_controller::crd_check::{CrdState, watch_crds};
use larder_testkit::{ControlPlane, Options, wait_for};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

async fn apply(client: &Client, crd: &CustomResourceDefinition) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let parameters = PatchParams::apply("test").force();
    definitions
        .patch(&crd.name_any(), &parameters, &Patch::Apply(crd))
        .await
        .unwrap();
}

/// The definition as it was before `pin` and `conditions` were added.
fn older(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut json = serde_json::to_value(crd).unwrap();
    for version in json["spec"]["versions"].as_array_mut().unwrap() {
        let root = &mut version["schema"]["openAPIV3Schema"]["properties"];
        let remove = |schema: &mut Value, field: &str| schema["properties"].as_object_mut().unwrap().remove(field);
        remove(&mut root["spec"], "pin").unwrap();
        remove(&mut root["status"], "conditions").unwrap();
    }
    serde_json::from_value(json).unwrap()
}

async fn becomes(state: &watch::Receiver<CrdState>, what: &str, wanted: impl Fn(&CrdState) -> bool) {
    wait_for(Duration::from_secs(30), what, async || {
        let now = state.borrow().clone();
        if wanted(&now) {
            Ok(())
        } else {
            Err(format!("it is {now:?}"))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_answer_follows_the_cluster() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.client().unwrap();
    let (sender, state) = watch::channel(CrdState::Unknown);
    let stop = CancellationToken::new();
    let task = tokio::spawn(watch_crds(client.clone(), sender, stop.clone()));

    let says = |sentence: &'static str| move |state: &CrdState| matches!(state, CrdState::Wrong(text) if text.contains(sentence));
    becomes(
        &state,
        "missing CRDs to be noticed",
        says("the CRD nodeimages.apps.kruise.io is not installed"),
    )
    .await;
    for crd in larder_api::crds() {
        apply(&client, &crd).await;
    }
    becomes(&state, "our CRDs to be accepted", |state| *state == CrdState::Fine).await;

    let job = larder_api::crds().remove(0);
    apply(&client, &older(&job)).await;
    becomes(
        &state,
        "the older schema to be noticed",
        says("lacks spec.pin, status.conditions"),
    )
    .await;
    apply(&client, &job).await;
    becomes(&state, "our schema to be accepted again", |state| {
        *state == CrdState::Fine
    })
    .await;

    stop.cancel();
    task.await.unwrap();
}
