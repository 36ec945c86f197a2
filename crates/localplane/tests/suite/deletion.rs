//! Deletion: finalizers, owners, namespaces, conditions.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use crate::http::{CONFIG_MAPS, NODE_IMAGES, Requests, config_map, names, node_image, plane};

/// Waits until the path answers with this code.
async fn until(requests: &Requests, path: &str, code: u16) {
    let reached = async {
        while requests.get(path).await.code != code {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached)
        .await
        .expect("clean-up within its time");
}

fn owned(name: &str, owners: &[(&Value, bool)]) -> Value {
    let mut object = config_map(name, "x");
    object["metadata"]["ownerReferences"] = owners
        .iter()
        .map(|(owner, blocks)| {
            json!({
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": blocks,
            })
        })
        .collect();
    object
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut object = node_image("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    requests.post(NODE_IMAGES, &object).await.ok();
    let path = format!("{NODE_IMAGES}/a");
    let marked = requests.delete(&path, &json!({})).await.ok();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["generation"], 2);
    let again = requests.delete(&path, &json!({})).await.ok();
    assert_eq!(
        again["metadata"]["deletionTimestamp"],
        marked["metadata"]["deletionTimestamp"]
    );
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    requests.merge(&path, &more).await.refused(422);
    let last = requests
        .merge(&path, &json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    assert_eq!(last["metadata"]["finalizers"], Value::Null);
    requests.get(&path).await.refused(404);
}

#[tokio::test]
async fn a_deletion_answers_with_what_was_deleted() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let object = requests.node_image("a").await;
    let status = requests.delete(&format!("{NODE_IMAGES}/a"), &json!({})).await.ok();
    let want = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "group": "apps.kruise.io", "kind": "nodeimages", "uid": object["metadata"]["uid"]},
    });
    assert_eq!(status, want);
}

#[rstest]
#[case::uid(json!({"uid": "4afcff36-c096-4678-b41f-ffb8057d51c6"}))]
#[case::version(json!({"resourceVersion": "1"}))]
#[tokio::test]
async fn preconditions_protect_another_object(#[case] preconditions: Value) {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("a").await;
    let path = format!("{NODE_IMAGES}/a");
    requests
        .delete(&path, &json!({"preconditions": preconditions}))
        .await
        .refused(409);
    requests.get(&path).await.ok();
}

#[tokio::test]
async fn dependents_follow_the_last_of_their_owners() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let (one, two) = (requests.node_image("one").await, requests.node_image("two").await);
    requests
        .post(CONFIG_MAPS, &owned("child", &[(&one, false), (&two, false)]))
        .await
        .ok();
    let child = requests.get(&format!("{CONFIG_MAPS}/child")).await.ok();
    requests
        .post(CONFIG_MAPS, &owned("grandchild", &[(&child, false)]))
        .await
        .ok();

    requests.delete(&format!("{NODE_IMAGES}/one"), &json!({})).await.ok();
    let left = async {
        loop {
            let child = requests.get(&format!("{CONFIG_MAPS}/child")).await.ok();
            if child["metadata"]["ownerReferences"].as_array().unwrap().len() == 1 {
                return child;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let child = tokio::time::timeout(Duration::from_secs(20), left).await.unwrap();
    assert_eq!(child["metadata"]["ownerReferences"][0]["name"], "two");
    requests.delete(&format!("{NODE_IMAGES}/two"), &json!({})).await.ok();
    until(&requests, &format!("{CONFIG_MAPS}/grandchild"), 404).await;
    requests.get(&format!("{CONFIG_MAPS}/child")).await.refused(404);
}

#[tokio::test]
async fn an_object_whose_owner_never_was_goes_too() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut ghost = node_image("ghost");
    ghost["metadata"]["uid"] = "4afcff36-c096-4678-b41f-ffb8057d51c6".into();
    requests
        .post(CONFIG_MAPS, &owned("child", &[(&ghost, false)]))
        .await
        .ok();
    until(&requests, &format!("{CONFIG_MAPS}/child"), 404).await;
}

#[tokio::test]
async fn an_owner_of_an_unknown_kind_is_left_alone() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "uid": "u"}});
    requests
        .post(CONFIG_MAPS, &owned("kept", &[(&other, false)]))
        .await
        .ok();
    let known = requests.node_image("a").await;
    requests
        .post(CONFIG_MAPS, &owned("goes", &[(&known, false)]))
        .await
        .ok();
    requests.delete(&format!("{NODE_IMAGES}/a"), &json!({})).await.ok();
    until(&requests, &format!("{CONFIG_MAPS}/goes"), 404).await;
    requests.get(&format!("{CONFIG_MAPS}/kept")).await.ok();
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let owner = requests.node_image("owner").await;
    requests
        .post(CONFIG_MAPS, &owned("child", &[(&owner, false)]))
        .await
        .ok();
    let path = format!("{NODE_IMAGES}/owner");
    requests
        .delete(&path, &json!({"propagationPolicy": "Orphan"}))
        .await
        .ok();
    until(&requests, &path, 404).await;
    let child = requests.get(&format!("{CONFIG_MAPS}/child")).await.ok();
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn in_the_foreground_an_owner_waits_for_its_dependents() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let owner = requests.node_image("owner").await;
    let mut held = owned("held", &[(&owner, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    requests.post(CONFIG_MAPS, &held).await.ok();
    let path = format!("{NODE_IMAGES}/owner");
    requests
        .delete(&path, &json!({"propagationPolicy": "Foreground"}))
        .await
        .ok();
    let marked = async {
        while requests.get(&format!("{CONFIG_MAPS}/held")).await.ok()["metadata"]
            .get("deletionTimestamp")
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), marked).await.unwrap();
    requests.get(&path).await.ok();
    requests
        .merge(
            &format!("{CONFIG_MAPS}/held"),
            &json!({"metadata": {"finalizers": null}}),
        )
        .await
        .ok();
    until(&requests, &path, 404).await;
}

#[tokio::test]
async fn a_namespace_takes_its_contents_along_and_accepts_nothing_meanwhile() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let space = json!({"metadata": {"name": "space"}});
    requests.post("/api/v1/namespaces", &space).await.ok();
    let maps = "/api/v1/namespaces/space/configmaps";
    let mut held = config_map("held", "x");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    requests.post(maps, &held).await.ok();
    requests.post(maps, &config_map("free", "x")).await.ok();

    let marked = requests.delete("/api/v1/namespaces/space", &json!({})).await.ok();
    assert_eq!(marked["status"]["phase"], "Terminating");
    until(&requests, &format!("{maps}/free"), 404).await;
    let (reason, message) = requests.post(maps, &config_map("late", "x")).await.refused(403);
    assert_eq!(reason, "Forbidden");
    assert!(message.contains("because it is being terminated"), "{message}");
    requests.get("/api/v1/namespaces/space").await.ok();
    requests
        .merge(&format!("{maps}/held"), &json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    until(&requests, "/api/v1/namespaces/space", 404).await;
    requests.post("/api/v1/namespaces", &space).await.ok();
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = config_map(name, "v");
        object["metadata"]["labels"] = json!({"l": label});
        requests.post(CONFIG_MAPS, &object).await.ok();
    }
    requests
        .delete(&format!("{CONFIG_MAPS}?labelSelector=l%3Dx"), &json!({}))
        .await
        .ok();
    let list = requests.get(CONFIG_MAPS).await.ok();
    assert_eq!(names(&list), ["b"]);
}

#[tokio::test]
async fn a_running_pod_waits_for_its_kubelet_and_others_do_not() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node) in [("waiting", None), ("running", Some("n1"))] {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        requests.post(pods, &pod).await.ok();
        requests.delete(&format!("{pods}/{name}"), &json!({})).await.ok();
    }
    requests.get(&format!("{pods}/waiting")).await.refused(404);
    let running = requests.get(&format!("{pods}/running")).await.ok();
    assert_eq!(running["metadata"]["deletionGracePeriodSeconds"], 30);
    requests
        .delete(&format!("{pods}/running"), &json!({"gracePeriodSeconds": 0}))
        .await
        .ok();
    requests.get(&format!("{pods}/running")).await.refused(404);
}

#[tokio::test]
async fn every_namespace_has_a_default_service_account() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests
        .get("/api/v1/namespaces/default/serviceaccounts/default")
        .await
        .ok();
    let space = json!({"metadata": {"name": "space"}});
    requests.post("/api/v1/namespaces", &space).await.ok();
    let account = "/api/v1/namespaces/space/serviceaccounts/default";
    until(&requests, account, 200).await;
    let first = requests.get(account).await.ok();
    requests.delete(account, &json!({})).await.ok();
    until(&requests, account, 200).await;
    let second = requests.get(account).await.ok();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);

    requests.delete("/api/v1/namespaces/space", &json!({})).await.ok();
    until(&requests, "/api/v1/namespaces/space", 404).await;
}
