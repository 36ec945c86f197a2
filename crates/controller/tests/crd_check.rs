//! The watch over the CRDs, on a real kube-apiserver: missing, ours, somebody else's, ours again; and served by another.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use larder_controller::crd_check::{CrdState, watch_crds};
use larder_testkit::{ControlPlane, Options, wait_for};
use serde_json::{Value, json};
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

/// OpenKruise's daemon on two nodes, and a webhook that is asked about NodeImages.
async fn serve_by_kruise(client: &Client) {
    let parameters = PostParams::default();
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "kruise-system" } })).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&parameters, &namespace).await.unwrap();
    let labels = json!({ "control-plane": "daemon" });
    let daemon = json!({
        "metadata": { "name": "kruise-daemon" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "daemon", "image": "kruise.invalid/daemon:1" }] },
            },
        },
    });
    let daemons = Api::<DaemonSet>::namespaced(client.clone(), "kruise-system");
    daemons
        .create(&parameters, &serde_json::from_value(daemon).unwrap())
        .await
        .unwrap();
    let status = json!({ "status": {
        "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
    } });
    daemons
        .patch_status("kruise-daemon", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let webhooks = json!({
        "metadata": { "name": "kruise-mutating-webhook-configuration" },
        "webhooks": [{
            "name": "mnodeimage.kb.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": { "url": "https://kruise.invalid/" },
            "rules": [{
                "apiGroups": ["apps.kruise.io"], "apiVersions": ["v1alpha1"],
                "resources": ["nodeimages"], "operations": ["CREATE", "UPDATE"],
            }],
        }],
    });
    Api::<MutatingWebhookConfiguration>::all(client.clone())
        .create(&parameters, &serde_json::from_value(webhooks).unwrap())
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

    serve_by_kruise(&client).await;
    becomes(&state, "OpenKruise to be noticed", |state| {
        says("kruise-system/kruise-daemon runs on 2 nodes")(state)
            && says("OpenKruise serves nodeimages in this cluster: its kruise-mutating-webhook-configuration")(state)
    })
    .await;
    let nothing = DeleteParams::default();
    let daemons = Api::<DaemonSet>::namespaced(client.clone(), "kruise-system");
    daemons.delete("kruise-daemon", &nothing).await.unwrap();
    becomes(&state, "its webhooks to be left", |state| {
        !says("kruise-daemon runs")(state) && says("is asked about them")(state)
    })
    .await;
    // OpenKruise without these kinds is no rival.
    let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let others = Patch::Json::<()>(
        serde_json::from_value(json!([
            { "op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["clonesets"] },
        ]))
        .unwrap(),
    );
    let parameters = PatchParams::default();
    webhooks
        .patch("kruise-mutating-webhook-configuration", &parameters, &others)
        .await
        .unwrap();
    becomes(&state, "the rest of OpenKruise to be accepted", |state| {
        *state == CrdState::Fine
    })
    .await;

    stop.cancel();
    task.await.unwrap();
}
