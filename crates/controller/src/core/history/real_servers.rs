//! Comparisons with a real kube-apiserver, before and after its etcd is put back to an older copy.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use larder_testkit::{ControlPlane, Options};
use serde_json::json;

use super::*;

/// Creates this ConfigMap, or changes it.
async fn write(api: &Api<ConfigMap>, name: &str, content: &str) -> ObjectMeta {
    let params = PatchParams::apply("test").force();
    let patch = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "content": content },
    });
    api.patch(name, &params, &Patch::Apply(patch)).await.unwrap().metadata
}

fn of(object: &ObjectMeta) -> History {
    let history = History::default();
    history.shown(&Event::Apply(shown(object)));
    history
}

/// The object as a watch shows it.
fn shown(object: &ObjectMeta) -> ConfigMap {
    ConfigMap {
        metadata: object.clone(),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn another_history_is_recognised_also_when_its_versions_have_grown_past_what_was_seen() {
    let mut plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.client().unwrap();
    let (objects, all) = (
        Api::<ConfigMap>::default_namespaced(client.clone()),
        Api::<ConfigMap>::all(client),
    );
    assert_eq!(History::default().compare(&all).await, Comparison::Same);

    let kept = of(&write(&objects, "kept", "1").await);
    let doomed = write(&objects, "doomed", "1").await;
    let backup = plane.back_up().await.unwrap();
    let lost = write(&objects, "lost", "1").await;
    let seen = of(&lost);
    assert_eq!(seen.compare(&all).await, Comparison::Same, "nothing happened");
    write(&objects, "lost", "2").await;
    assert_eq!(seen.compare(&all).await, Comparison::Same, "the object has changed");
    objects.delete("lost", &DeleteParams::default()).await.unwrap();
    assert_eq!(seen.compare(&all).await, Comparison::Same, "the object was deleted");
    // A watch shows a deleted object with the version of its deletion, a delete call does not tell it: this one is newer.
    objects.delete("doomed", &DeleteParams::default()).await.unwrap();
    let after = write(&objects, "after", "1").await;
    let deletion = History::default();
    deletion.shown(&Event::Delete(shown(&ObjectMeta {
        resource_version: after.resource_version.clone(),
        ..doomed
    })));
    assert_eq!(deletion.compare(&all).await, Comparison::Same, "it is gone");
    let before_a_failure = of(&lost);
    before_a_failure.interrupted();
    let response = History::default();
    response.answered(&lost);
    assert_eq!(response.compare(&all).await, Comparison::Same, "the watch is behind");

    plane.restore(&backup).await.unwrap();
    for content in 0..500 {
        if revision(&after) < revision(&write(&objects, "other", &content.to_string()).await) {
            break;
        }
    }
    assert_eq!(seen.compare(&all).await, Comparison::Other, "the object was lost");
    let again = write(&objects, "lost", "3").await;
    assert_eq!(
        seen.compare(&all).await,
        Comparison::Other,
        "the object was written again"
    );
    assert_eq!(deletion.compare(&all).await, Comparison::Other, "the object is back");
    assert_eq!(response.compare(&all).await, Comparison::Other, "the response is lost");
    assert_eq!(
        response.shown(&Event::Apply(shown(&again))),
        Comparison::Other,
        "the watch has passed over the response"
    );
    before_a_failure.shown(&Event::Apply(shown(&again)));
    assert_eq!(
        before_a_failure.compare(&all).await,
        Comparison::Other,
        "it was seen before the failure"
    );
    kept.interrupted();
    kept.shown(&Event::Apply(shown(&again)));
    assert_eq!(
        kept.compare(&all).await,
        Comparison::Same,
        "the object is older than the copy"
    );
}

#[tokio::test]
async fn without_an_api_server_there_is_no_comparison() {
    let mut plane = ControlPlane::start(Options::default()).await.unwrap();
    let all = Api::<ConfigMap>::all(plane.client().unwrap());
    let object = write(&Api::default_namespaced(plane.client().unwrap()), "object", "1").await;
    plane.kill_api_server().unwrap();
    assert_eq!(of(&object).compare(&all).await, Comparison::Unanswered);
}
