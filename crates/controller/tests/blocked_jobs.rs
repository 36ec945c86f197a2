//! What jobs say while OpenKruise serves the same kinds, on a real kube-apiserver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use larder_controller::run::Controller;
use larder_controller::settings::Settings;
use larder_telemetry::{Health, Registry};
use larder_testkit::{ControlPlane, Options, wait_for};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_mins(1);
const WEBHOOKS: &str = "kruise-mutating-webhook-configuration";
const WHY: &str = "OpenKruise serves nodeimages in this cluster";

async fn create<K>(jobs: &Api<K>, kind: &str, name: &str, spec: Value)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object = json!({"apiVersion": K::api_version(&()), "kind": kind, "metadata": {"name": name}, "spec": spec});
    let object = serde_json::from_value(object).unwrap();
    jobs.create(&PostParams::default(), &object).await.unwrap();
}

fn namespaced<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(client: &Client) -> Api<K> {
    Api::namespaced(client.clone(), "default")
}

/// What the condition Progressing says, once it says this.
async fn says<K>(jobs: &Api<K>, name: &str, wanted: &str)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    wait_for(SOON, format!("{name} to say: {wanted}"), async || {
        let job = serde_json::to_value(jobs.get(name).await.unwrap()).unwrap();
        let message = job["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        if message.contains(wanted) {
            Ok(())
        } else {
            Err(job["status"].to_string())
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn jobs_say_why_nothing_is_done_and_the_rivals_status_stays_its_own() {
    let options = Options {
        crds: larder_api::crds(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let client = plane.client().unwrap();
    let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let rival = json!({
        "metadata": { "name": WEBHOOKS },
        "webhooks": [{
            "name": "mnodeimage.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": "https://kruise.invalid/" },
            "rules": [{
                "apiGroups": ["apps.kruise.io"], "apiVersions": ["v1alpha1"],
                "resources": ["nodeimages"], "operations": ["CREATE", "UPDATE"],
            }],
        }],
    });
    let rival = serde_json::from_value(rival).unwrap();
    webhooks.create(&PostParams::default(), &rival).await.unwrap();

    let pulls: Api<ImagePullJob> = namespaced(&client);
    let lists: Api<ImageListPullJob> = namespaced(&client);
    let prepulls = Api::<ImagePrePullJob>::all(client.clone());
    create(&pulls, "ImagePullJob", "before", json!({"image": "nginx:1"})).await;
    create(&pulls, "ImagePullJob", "served", json!({"image": "nginx:1"})).await;
    // As OpenKruise's manager writes it.
    let theirs = json!({"status": {
        "startTime": "2026-01-01T00:00:00Z", "desired": 2, "active": 1, "message": "job is running, progress 50.0%",
    }});
    let parameters = PatchParams::default();
    pulls
        .patch_status("served", &parameters, &Patch::Merge(theirs))
        .await
        .unwrap();

    let settings = Settings {
        leader_elect: false,
        ..Settings::new("me".into())
    };
    let controller = Controller::new(client.clone(), settings, &Health::default(), &mut Registry::default());
    let stop = CancellationToken::new();
    let task = tokio::spawn(controller.run(stop.clone()));
    create(&lists, "ImageListPullJob", "list", json!({"images": ["nginx:1"]})).await;
    let template = json!({"imagePrePullTemplate": {"images": ["nginx:1"], "nodeNames": ["a"]}});
    create(&prepulls, "ImagePrePullJob", "edge", template).await;

    says(&pulls, "before", WHY).await;
    says(&lists, "list", WHY).await;
    says(&prepulls, "edge", WHY).await;
    let status = pulls.get("before").await.unwrap().status.unwrap();
    assert!(status.message.unwrap().contains(WHY));
    assert!(status.start_time.is_none());
    let status = prepulls.get("edge").await.unwrap().status.unwrap();
    assert!(status.reason.unwrap().contains(WHY));

    // The job that OpenKruise serves learns it by an Event, and its status stays OpenKruise's.
    let events = Api::<Event>::namespaced(client.clone(), "default");
    wait_for(SOON, "the Event of the job that OpenKruise serves", async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let of_it = |event: &&Event| event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some("served");
        let note = all
            .iter()
            .find(of_it)
            .and_then(|event| event.note.clone())
            .unwrap_or_default();
        if note.contains(WHY) {
            Ok(())
        } else {
            Err(format!("{all:?}"))
        }
    })
    .await
    .unwrap();
    let status = pulls.get("served").await.unwrap().status.unwrap();
    assert_eq!(status.message.as_deref(), Some("job is running, progress 50.0%"));
    assert!(status.progress.conditions.is_empty());

    // OpenKruise leaves these kinds: the jobs are served, and say so.
    webhooks.delete(WEBHOOKS, &DeleteParams::default()).await.unwrap();
    says(&pulls, "before", "no node matches").await;
    stop.cancel();
    task.await.unwrap().unwrap();
}
