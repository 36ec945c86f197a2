//! Objects in protobuf, which typed Go clients send by default: kube-apiserver writes them here, and both servers read
//! them.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};

use crate::server::{Answer, Server};
use crate::target::Target;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The object as kube-apiserver would store it, in protobuf and in JSON.
async fn encoded(server: &Server, path: &str, object: &Value) -> (Vec<u8>, Value) {
    let path = format!("{path}?dryRun=All");
    let request = Request::post(&path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, PROTOBUF)
        .body(Body::from(object.to_string().into_bytes()))
        .unwrap();
    let response = server.client().send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&bytes));
    (bytes.to_vec(), server.post(&path, object).await.accepted())
}

async fn post(server: &Server, path: &str, body: Vec<u8>) -> Answer {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(http::header::CONTENT_TYPE, PROTOBUF)
        .header(http::header::ACCEPT, "application/json")
        .body(body)
        .unwrap();
    server.answer(request).await
}

/// What clients set, without what each server sets anew.
fn essence(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "annotations" | "finalizers"));
    if object["kind"] == "Pod" {
        object.as_object_mut().unwrap().remove("status");
    }
    object
}

fn pod() -> Value {
    let probe =
        |port: Value| json!({"httpGet": {"path": "/", "port": port}, "initialDelaySeconds": 0, "periodSeconds": 3});
    let container = json!({
        "name": "main",
        "image": "nginx",
        "args": ["a", ""],
        "ports": [{"name": "http", "containerPort": 80}],
        "env": [
            {"name": "PLAIN", "value": "1"},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": false}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "envFrom": [{"prefix": "P", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s", "optional": true}}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "livenessProbe": probe(json!("http")),
        "readinessProbe": probe(json!(80)),
        "startupProbe": {"exec": {"command": ["true"]}},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
        "volumeMounts": [{"name": "map", "mountPath": "/map", "readOnly": true}],
        "securityContext": {"privileged": false, "capabilities": {"drop": ["ALL"]}, "runAsUser": 0},
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "labels": {"app": "web", "empty": ""}, "annotations": {"a": "b"}, "finalizers": ["example.com/f"]},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [container],
            "initContainers": [{"name": "first", "image": "busybox@sha256:0000000000000000000000000000000000000000000000000000000000000000"}],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"zone": "a"},
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["here"]}],
            "dnsConfig": {"nameservers": ["127.0.0.1"], "options": [{"name": "ndots", "value": "2"}]},
            "imagePullSecrets": [{"name": "pull"}],
            "securityContext": {"runAsNonRoot": false, "fsGroup": 0, "supplementalGroups": [1, 2], "seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
                ]}},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}},
                ]},
            },
            "volumes": [
                {"name": "map", "configMap": {"name": "c", "items": [{"key": "k", "path": "p", "mode": 256}], "optional": true}},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "empty", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "host", "hostPath": {"path": "/", "type": ""}},
                {"name": "projected", "projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}, {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
            ],
        },
    })
}

fn node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-in-protobuf", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}], "unschedulable": true},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi"},
            "addresses": [{"type": "Hostname", "address": "node"}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
            "images": [{"names": ["nginx"], "sizeBytes": 5_000_000_000_i64}],
        },
    })
}

fn lease() -> Value {
    let spec = json!({
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000001Z",
        "leaseTransitions": 0,
    });
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lease"}, "spec": spec})
}

fn core_event() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "event"},
        "involvedObject": {"kind": "Node", "name": "n", "namespace": "default", "uid": "u"},
        "reason": "Because",
        "message": "it is so",
        "source": {"component": "test"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:01Z",
        "count": 2,
        "type": "Normal",
    })
}

fn new_event() -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new-event"},
        "eventTime": "2026-01-01T00:00:00.123456Z",
        "series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:02.000000Z"},
        "reportingController": "example.com/test",
        "reportingInstance": "test-1",
        "action": "Testing",
        "reason": "Because",
        "regarding": {"kind": "Node", "name": "n", "namespace": "default"},
        "note": "it is so",
        "type": "Warning",
    })
}

#[rstest]
#[case::pod("/api/v1/namespaces/default/pods", pod())]
#[case::node("/api/v1/nodes", node())]
#[case::namespace("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "in-protobuf"}}))]
#[case::secret("/api/v1/namespaces/default/secrets", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "AAE=", "empty": ""}, "immutable": false, "type": "Opaque"}))]
#[case::config_map("/api/v1/namespaces/default/configmaps", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b", "empty": ""}, "binaryData": {"c": "AAE="}, "immutable": true}))]
#[case::service_account("/api/v1/namespaces/default/serviceaccounts", json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}, "imagePullSecrets": [{"name": "p"}], "automountServiceAccountToken": false}))]
#[case::lease("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease())]
#[case::core_event("/api/v1/namespaces/default/events", core_event())]
#[case::new_event("/apis/events.k8s.io/v1/namespaces/default/events", new_event())]
#[tokio::test]
async fn a_kind_is_read_as_it_was_written(#[case] path: &str, #[case] object: Value) {
    let real = Target::KubeApiserver.server().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    // Pods need it, and another test may have made it.
    real.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let (body, want) = encoded(&real, path, &object).await;
    post(&real, &format!("{path}?dryRun=All"), body.clone())
        .await
        .accepted();

    let embedded = Target::Localplane.server().await;
    let created = post(&embedded, path, body).await.accepted();
    assert_eq!(essence(created), essence(want));
}

#[rstest]
#[case::damaged(b"k8s\0\x0a\xff".to_vec())]
#[case::not_protobuf(b"{}".to_vec())]
#[tokio::test]
async fn a_damaged_object_is_a_bad_request(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] body: Vec<u8>,
) {
    let server = target.server().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", server.namespace());
    post(&server, &path, body).await.refused(400);
}

/// A custom kind has no protobuf form. kube-apiserver 1.36 closes the connection on such a request.
#[tokio::test]
async fn a_custom_kind_is_not_read_from_protobuf() {
    let server = Target::Localplane.server().await;
    let path = crate::kind::Kind::ImagePullJob.stored().path(server.namespace());
    post(&server, &path, b"k8s\0".to_vec()).await.refused(415);
}
