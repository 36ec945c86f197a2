//! Of Kubernetes' own kinds, what the controller, the agents and the guides need of them.

use http::Method;
use larder_testkit::unique_name;
use rstest::rstest;
use serde_json::{Value, json};

use crate::server::{MERGE_PATCH, Server, name_of};
use crate::target::Target;

const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn core(server: &Server, plural: &str) -> String {
    format!("/api/v1/namespaces/{}/{plural}", server.namespace())
}

#[rstest]
#[tokio::test]
async fn a_lease_is_won_by_one(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", server.namespace());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "larder-controller"},
        "spec": {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-15T10:00:00.000001Z",
            "renewTime": "2026-11-15T10:00:00.000001Z",
        },
    });
    let created = server.post(&path, &lease).await.accepted();
    assert_eq!(created["spec"], lease["spec"]);
    server.post(&path, &lease).await.refused(409);

    let object = format!("{path}/larder-controller");
    let mut by_one = created.clone();
    by_one["spec"]["renewTime"] = "2026-11-15T10:00:05.000000Z".into();
    server
        .send(Method::PUT, &object, "application/json", Some(&by_one))
        .await
        .accepted();
    let mut by_two = created.clone();
    by_two["spec"]["holderIdentity"] = "two".into();
    let answer = server
        .send(Method::PUT, &object, "application/json", Some(&by_two))
        .await;
    assert_eq!(answer.body["reason"], "Conflict");
    answer.refused(409);
    assert_eq!(server.read(&object).await.accepted()["spec"], by_one["spec"]);
}

#[rstest]
#[case::negative_duration(json!({"leaseDurationSeconds": 0}), 422, "spec.leaseDurationSeconds: Invalid value")]
#[case::time(json!({"renewTime": "yesterday"}), 400, "")]
#[tokio::test]
async fn a_lease_that_cannot_be(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] spec: Value,
    #[case] code: u16,
    #[case] text: &str,
) {
    let server = target.server().await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", server.namespace());
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": spec});
    let message = server.post(&path, &lease).await.refused(code);
    assert!(message.contains(text), "{message}");
}

fn secret(fields: &Value) -> Value {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": unique_name("secret")}});
    for (field, value) in fields.as_object().unwrap() {
        secret[field] = value.clone();
    }
    secret
}

#[rstest]
#[tokio::test]
async fn a_secret_is_kept_in_base64(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let path = core(&server, "secrets");
    let fields = json!({"stringData": {"password": "pass1234", "user": "lion"}, "data": {"user": "dGlnZXI="}});
    let created = server.post(&path, &secret(&fields)).await.accepted();
    assert_eq!(created["data"], json!({"user": "bGlvbg==", "password": "cGFzczEyMzQ="}));
    assert_eq!(created["type"], "Opaque");
    assert_eq!(created.get("stringData"), None);

    let object = format!("{path}/{}", name_of(&created));
    let patch = json!({"stringData": {"user": "tiger"}});
    let patched = server
        .send(Method::PATCH, &object, MERGE_PATCH, Some(&patch))
        .await
        .accepted();
    assert_eq!(patched["data"], json!({"user": "dGlnZXI=", "password": "cGFzczEyMzQ="}));
    let message = server
        .send(
            Method::PATCH,
            &object,
            MERGE_PATCH,
            Some(&json!({"type": "example.com/other"})),
        )
        .await
        .refused(422);
    assert!(
        message.contains("type: Invalid value: \"example.com/other\": field is immutable"),
        "{message}"
    );
}

#[rstest]
#[case::no_base64(json!({"data": {"a": "%%%"}}), 400, "")]
#[case::key(json!({"stringData": {"a b": "c"}}), 422, "data[a b]: Invalid value")]
#[case::login_without_its_key(json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {"a": "b"}}), 422, "data[.dockerconfigjson]: Required value")]
#[case::login_that_is_no_json(json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "auths"}}), 422, "data[.dockerconfigjson]: Invalid value")]
#[tokio::test]
async fn a_secret_that_cannot_be(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] fields: Value,
    #[case] code: u16,
    #[case] text: &str,
) {
    let server = target.server().await;
    let message = server
        .post(&core(&server, "secrets"), &secret(&fields))
        .await
        .refused(code);
    assert!(message.contains(text), "{message}");
}

#[rstest]
#[tokio::test]
async fn a_node_has_labels_and_conditions(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let name = unique_name("node");
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": name}},
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}]},
    });
    let created = server.post("/api/v1/nodes", &node).await.accepted();
    assert_eq!(
        created["status"]["conditions"][0]["status"], "False",
        "a node's status is taken at its creation"
    );

    let path = format!("/api/v1/nodes/{name}");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let status = format!("{path}/status");
    let patched = server
        .send(Method::PATCH, &status, STRATEGIC, Some(&ready))
        .await
        .accepted();
    let mut conditions: Vec<Value> = patched["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| json!([condition["type"], condition["status"]]))
        .collect();
    conditions.sort_by_key(Value::to_string);
    assert_eq!(conditions, [json!(["DiskPressure", "False"]), json!(["Ready", "True"])]);

    let labels = json!({"metadata": {"labels": {"gpu": "yes"}}, "spec": {"unschedulable": true}});
    let patched = server
        .send(Method::PATCH, &path, STRATEGIC, Some(&labels))
        .await
        .accepted();
    assert_eq!(patched["metadata"]["labels"], json!({"zone": name, "gpu": "yes"}));
    assert_eq!(patched["spec"]["unschedulable"], true);
    let found = server
        .read(&format!("/api/v1/nodes?labelSelector=zone%3D{name},gpu"))
        .await
        .accepted();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[rstest]
#[tokio::test]
async fn events_are_found_by_what_they_are_about(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let path = core(&server, "events");
    let event = |name: &str, about: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name},
            "involvedObject": {"kind": "ImagePullJob", "namespace": server.namespace(), "name": about, "uid": "1"},
            "reason": "PullImageFailed",
            "message": "no room",
            "type": "Warning",
            "source": {"component": "larder-controller"},
            "firstTimestamp": "2026-11-15T10:00:00Z",
            "lastTimestamp": "2026-11-15T10:00:00Z",
            "count": 1,
        })
    };
    for (name, about) in [("one", "job-a"), ("two", "job-b")] {
        server.post(&path, &event(name, about)).await.accepted();
    }
    let query = "fieldSelector=involvedObject.name%3Djob-a,involvedObject.kind%3DImagePullJob";
    let found = server.read(&format!("{path}?{query}")).await.accepted();
    let names: Vec<&str> = found["items"].as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(names, ["one"]);

    let mut elsewhere = event("three", "job-c");
    elsewhere["involvedObject"]["namespace"] = "kube-system".into();
    let message = server.post(&path, &elsewhere).await.refused(422);
    assert!(message.contains("involvedObject.namespace: Invalid value"), "{message}");
}

#[rstest]
#[tokio::test]
async fn pods_are_found_by_their_node(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    // Where a controller makes it, it may be there already.
    let answer = server.post(&core(&server, "serviceaccounts"), &account).await;
    assert!(matches!(answer.code, 201 | 409), "{}", answer.body);
    let path = core(&server, "pods");
    let node = unique_name("node");
    for (name, node) in [("here", node.as_str()), ("there", "another")] {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "nginx"}]},
        });
        let created = server.post(&path, &pod).await.accepted();
        assert_eq!(created["status"]["phase"], "Pending");
    }
    let found = server
        .read(&format!(
            "{path}?fieldSelector=spec.nodeName%3D{node}&labelSelector=app%3Dweb"
        ))
        .await
        .accepted();
    let names: Vec<&str> = found["items"].as_array().unwrap().iter().map(name_of).collect();
    assert_eq!(names, ["here"]);
}

#[rstest]
#[tokio::test]
async fn a_namespace_carries_its_name_as_label(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let found = server
        .read(&format!("/api/v1/namespaces/{}", server.namespace()))
        .await
        .accepted();
    assert_eq!(
        found["metadata"]["labels"]["kubernetes.io/metadata.name"],
        server.namespace()
    );
    assert_eq!(found["status"]["phase"], "Active");
}

#[rstest]
#[tokio::test]
async fn a_config_map_keeps_texts(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let path = core(&server, "configmaps");
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unique_name("map")}, "data": data});
    let created = server.post(&path, &map(json!({"a.yaml": "b: c"}))).await.accepted();
    assert_eq!(created["data"], json!({"a.yaml": "b: c"}));
    server.post(&path, &map(json!({"a": 1}))).await.refused(400);
    let message = server.post(&path, &map(json!({"a/b": "c"}))).await.refused(422);
    assert!(message.contains("data[a/b]: Invalid value"), "{message}");
}
