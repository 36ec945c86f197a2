//! Creating, replacing, patching: what changes, what does not, and who wins.

use ::http::Method;
use axum::body::Body;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::http::{CONFIG_MAPS, JOBS, NODE_IMAGES, Requests, config_map, node_image, plane, revision};

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "ImagePullJob",
        "metadata": {"name": name},
        "spec": {"image": "nginx"},
        "status": {"desired": 5},
    })
}

#[tokio::test]
async fn a_new_object_is_completed_and_has_no_status_yet() {
    let plane = plane().await;
    let created = Requests::to(&plane).post(JOBS, &job("job")).await;
    assert_eq!(created.code, 201);
    let object = created.body;
    assert_eq!(object["spec"]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(object.get("status"), None);
    let meta = &object["metadata"];
    assert_eq!(meta["generation"], 1);
    assert_eq!(meta["namespace"], "default");
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert!(meta["creationTimestamp"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn only_a_change_of_the_specification_counts_as_a_generation() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.post(JOBS, &job("job")).await.ok();
    let path = format!("{JOBS}/job");
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();

    let labelled = requests
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    assert_eq!(generation(&labelled), 1);
    let reported = requests
        .merge(&format!("{path}/status"), &json!({"status": {"desired": 3}}))
        .await
        .ok();
    assert_eq!((generation(&reported), &reported["status"]["desired"]), (1, &json!(3)));
    let edited = requests
        .merge(&path, &json!({"spec": {"parallelism": 2}, "status": {"desired": 9}}))
        .await
        .ok();
    assert_eq!((generation(&edited), &edited["status"]["desired"]), (2, &json!(3)));
    let sneaky = requests
        .merge(
            &format!("{path}/status"),
            &json!({"spec": {"parallelism": 7}, "metadata": {"labels": {"c": "d"}}, "status": {"desired": 4}}),
        )
        .await
        .ok();
    assert_eq!(sneaky["spec"]["parallelism"], 2);
    assert_eq!(sneaky["metadata"]["labels"], json!({"a": "b"}));
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_no_write() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let before = requests.config_map("a", "1").await;
    let after = requests.put(&format!("{CONFIG_MAPS}/a"), &before).await.ok();
    assert_eq!(before, after);
    let patched = requests
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"key": "1"}}))
        .await
        .ok();
    assert_eq!(before, patched);
}

#[tokio::test]
async fn of_two_who_read_the_same_version_one_must_read_again() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let read = requests.node_image("a").await;
    let path = format!("{NODE_IMAGES}/a");
    let mut first = read.clone();
    first["metadata"]["labels"] = json!({"who": "first"});
    let mut second = read.clone();
    second["metadata"]["labels"] = json!({"who": "second"});
    requests.put(&path, &first).await.ok();
    let (reason, message) = requests.put(&path, &second).await.refused(409);
    assert_eq!(reason, "Conflict");
    assert_eq!(
        message,
        "Operation cannot be fulfilled on nodeimages.apps.kruise.io \"a\": the object has been modified; please apply \
         your changes to the latest version and try again"
    );
    let mut blind = second.clone();
    blind["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    requests.put(&path, &blind).await.refused(422);
    let guarded = json!({"metadata": {"resourceVersion": revision(&read).to_string(), "labels": {"who": "third"}}});
    requests.merge(&path, &guarded).await.refused(409);
    let other = json!({"metadata": {"uid": "4afcff36-c096-4678-b41f-ffb8057d51c6"}});
    requests.merge(&path, &other).await.refused(422);
}

#[tokio::test]
async fn patches_that_do_not_contradict_each_other_all_win() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.config_map("a", "0").await;
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..200).map(|index| {
        let change = json!({"data": {format!("k{index}"): "v"}});
        let (requests, path) = (requests.clone(), path.clone());
        async move { requests.merge(&path, &change).await.ok() }
    });
    let answers = join_all(patches).await;
    let mut revisions: Vec<u64> = answers.iter().map(revision).collect();
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len(), 200);
    let last = requests.get(&path).await.ok();
    assert_eq!(last["data"].as_object().unwrap().len(), 201);
}

#[tokio::test]
async fn of_many_who_create_the_same_name_one_succeeds() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let attempts = (0..50).map(|index| {
        let requests = requests.clone();
        async move {
            requests
                .post(CONFIG_MAPS, &config_map("a", &index.to_string()))
                .await
                .code
        }
    });
    let codes = join_all(attempts).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1);
    assert_eq!(codes.iter().filter(|code| **code == 409).count(), 49);
}

#[tokio::test]
async fn names_are_generated_and_differ() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let object = json!({"metadata": {"generateName": "job-"}});
    let one = requests.post(CONFIG_MAPS, &object).await.ok();
    let two = requests.post(CONFIG_MAPS, &object).await.ok();
    assert!(one["metadata"]["name"].as_str().unwrap().starts_with("job-"));
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn a_dry_run_answers_and_leaves_no_trace() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let tried = requests
        .post(&format!("{NODE_IMAGES}?dryRun=All"), &node_image("a"))
        .await;
    assert_eq!(tried.code, 201);
    assert_eq!(tried.ok()["metadata"]["generation"], 1);
    requests.get(&format!("{NODE_IMAGES}/a")).await.refused(404);
    let real = requests.node_image("a").await;
    let path = format!("{NODE_IMAGES}/a?dryRun=All");
    let patched = requests
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    assert_eq!(patched["metadata"]["labels"]["a"], "b");
    requests.delete(&path, &json!({})).await.ok();
    assert_eq!(requests.get(&format!("{NODE_IMAGES}/a")).await.ok(), real);
}

#[tokio::test]
async fn both_versions_show_the_same_object() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("a").await;
    let mut old = requests.get("/apis/apps.kruise.io/v1alpha1/nodeimages/a").await.ok();
    assert_eq!(old["apiVersion"], "apps.kruise.io/v1alpha1");
    old["apiVersion"] = "apps.kruise.io/v1beta1".into();
    assert_eq!(old, requests.get(&format!("{NODE_IMAGES}/a")).await.ok());
}

#[tokio::test]
async fn an_event_is_the_same_in_both_groups() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let event = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "ImagePullJob", "name": "job", "namespace": "default"},
        "note": "done", "reason": "Done", "type": "Normal", "action": "Pull",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "larder", "reportingInstance": "one",
    });
    requests
        .post("/apis/events.k8s.io/v1/namespaces/default/events", &event)
        .await
        .ok();
    let selected = requests
        .get("/api/v1/events?fieldSelector=involvedObject.name%3Djob%2CinvolvedObject.kind%3DImagePullJob")
        .await
        .ok();
    let core = &selected["items"][0];
    assert_eq!(
        (&core["message"], &core["involvedObject"]["name"]),
        (&json!("done"), &json!("job"))
    );
    assert_eq!(core["reportingComponent"], "larder");
    let back = requests
        .get("/apis/events.k8s.io/v1/namespaces/default/events/e")
        .await
        .ok();
    assert_eq!(
        (&back["note"], &back["regarding"]["name"]),
        (&json!("done"), &json!("job"))
    );
    assert_eq!(back["apiVersion"], "events.k8s.io/v1");
}

#[tokio::test]
async fn text_in_a_secret_becomes_data() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}});
    let stored = requests.post(path, &secret).await.ok();
    assert_eq!(
        (&stored["data"], &stored["type"]),
        (&json!({"a": "Yg=="}), &json!("Opaque"))
    );
    let retyped = json!({"type": "kubernetes.io/tls"});
    requests.merge(&format!("{path}/s"), &retyped).await.refused(422);
}

#[tokio::test]
async fn tables_show_the_columns_of_the_kind() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.post(JOBS, &job("job")).await.ok();
    let headers = [(
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )];
    let response = requests.raw(Method::GET, JOBS, &headers, Body::empty()).await;
    let table = crate::http::answer(response).await.ok();
    assert_eq!(table["kind"], "Table");
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns[0]["name"], "Name");
    assert!(columns.iter().any(|column| column["priority"] == 1));
    assert_eq!(table["rows"][0]["cells"][0], "job");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let headers = [(
        "accept",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    )];
    let response = requests.raw(Method::GET, JOBS, &headers, Body::empty()).await;
    let list = crate::http::answer(response).await.ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0].get("spec"), None);
}
