//! What makes no sense is refused with the status that Kubernetes would send.

use ::http::Method;
use axum::body::Body;
use rstest::rstest;
use serde_json::json;

use crate::http::{CONFIG_MAPS, JOBS, MERGE, NODE_IMAGES, Requests, answer, config_map, node_image, plane};

#[rstest]
#[case::broken_json(Method::POST, NODE_IMAGES, "application/json", "{\"kind\":", 400, "BadRequest")]
#[case::no_object(Method::POST, NODE_IMAGES, "application/json", "[1]", 400, "BadRequest")]
#[case::no_kind(Method::POST, NODE_IMAGES, "application/json", "{}", 400, "BadRequest")]
#[case::another_version(
    Method::POST,
    NODE_IMAGES,
    "application/json",
    r#"{"apiVersion":"apps.kruise.io/v1","kind":"NodeImage"}"#,
    400,
    "BadRequest"
)]
#[case::another_kind(
    Method::POST,
    NODE_IMAGES,
    "application/json",
    r#"{"apiVersion":"apps.kruise.io/v1beta1","kind":"Node"}"#,
    422,
    "Invalid"
)]
#[case::xml(Method::POST, NODE_IMAGES, "application/xml", "<a/>", 415, "UnsupportedMediaType")]
#[case::protobuf_of_a_custom_kind(
    Method::POST,
    NODE_IMAGES,
    "application/vnd.kubernetes.protobuf",
    "k8s",
    415,
    "UnsupportedMediaType"
)]
#[case::strategic_patch_of_a_custom_kind(
    Method::PATCH,
    "/apis/apps.kruise.io/v1beta1/nodeimages/n",
    "application/strategic-merge-patch+json",
    "{}",
    415,
    "UnsupportedMediaType"
)]
#[case::server_side_apply(
    Method::PATCH,
    "/apis/apps.kruise.io/v1beta1/nodeimages/n",
    "application/apply-patch+yaml",
    "{}",
    415,
    "UnsupportedMediaType"
)]
#[case::broken_patch(
    Method::PATCH,
    "/apis/apps.kruise.io/v1beta1/nodeimages/n",
    MERGE,
    "{",
    400,
    "BadRequest"
)]
#[case::patch_of_nothing(
    Method::PATCH,
    "/apis/apps.kruise.io/v1beta1/nodeimages/gone",
    MERGE,
    "{}",
    404,
    "NotFound"
)]
#[case::no_such_object(Method::GET, "/apis/apps.kruise.io/v1beta1/nodeimages/gone", "", "", 404, "NotFound")]
#[case::no_such_group(Method::GET, "/apis/nobody.example/v1/things", "", "", 404, "NotFound")]
#[case::no_such_version(Method::GET, "/apis/apps.kruise.io/v9/nodeimages", "", "", 404, "NotFound")]
#[case::no_such_kind(Method::GET, "/api/v1/services", "", "", 404, "NotFound")]
#[case::no_such_subresource(
    Method::GET,
    "/apis/apps.kruise.io/v1beta1/nodeimages/n/scale",
    "",
    "",
    404,
    "NotFound"
)]
#[case::namespace_of_a_cluster_kind(
    Method::GET,
    "/apis/apps.kruise.io/v1beta1/namespaces/default/nodeimages",
    "",
    "",
    404,
    "NotFound"
)]
#[case::bad_label_selector(
    Method::GET,
    "/api/v1/nodes?labelSelector=a%3D%3Db%3D%3Dc",
    "",
    "",
    400,
    "BadRequest"
)]
#[case::bad_field_selector(
    Method::GET,
    "/api/v1/nodes?fieldSelector=spec.taints%3Da",
    "",
    "",
    400,
    "BadRequest"
)]
#[case::bad_limit(Method::GET, "/api/v1/nodes?limit=many", "", "", 400, "BadRequest")]
#[case::bad_continue(Method::GET, "/api/v1/nodes?continue=nonsense", "", "", 400, "BadRequest")]
#[case::bad_revision(Method::GET, "/api/v1/nodes?resourceVersion=new", "", "", 400, "BadRequest")]
#[case::bad_match(
    Method::GET,
    "/api/v1/nodes?resourceVersion=1&resourceVersionMatch=Nearly",
    "",
    "",
    422,
    "Invalid"
)]
#[case::put_to_a_collection(Method::PUT, NODE_IMAGES, "application/json", "{}", 400, "BadRequest")]
#[case::definitions_are_read_only(
    Method::DELETE,
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeimages.apps.kruise.io",
    "",
    "",
    405,
    "MethodNotAllowed"
)]
#[case::a_namespace_that_everybody_relies_on(Method::DELETE, "/api/v1/namespaces/default", "", "", 403, "Forbidden")]
#[case::namespace_that_does_not_exist(
    Method::POST,
    "/api/v1/namespaces/nowhere/configmaps",
    "application/json",
    r#"{"metadata":{"name":"a"}}"#,
    404,
    "NotFound"
)]
#[case::another_namespace(
    Method::POST,
    CONFIG_MAPS,
    "application/json",
    r#"{"metadata":{"name":"a","namespace":"b"}}"#,
    400,
    "BadRequest"
)]
#[case::no_name(Method::POST, CONFIG_MAPS, "application/json", r#"{"metadata":{}}"#, 422, "Invalid")]
#[case::bad_name(
    Method::POST,
    CONFIG_MAPS,
    "application/json",
    r#"{"metadata":{"name":"A_b"}}"#,
    422,
    "Invalid"
)]
#[case::bad_label(
    Method::POST,
    CONFIG_MAPS,
    "application/json",
    r#"{"metadata":{"name":"a","labels":{"-":""}}}"#,
    422,
    "Invalid"
)]
#[case::label_of_another_type(
    Method::POST,
    CONFIG_MAPS,
    "application/json",
    r#"{"metadata":{"name":"a","labels":{"a":1}}}"#,
    400,
    "BadRequest"
)]
#[case::data_of_another_type(
    Method::POST,
    CONFIG_MAPS,
    "application/json",
    r#"{"metadata":{"name":"a"},"data":{"a":1}}"#,
    400,
    "BadRequest"
)]
#[case::bad_dry_run(
    Method::POST,
    "/api/v1/namespaces/default/configmaps?dryRun=Some",
    "application/json",
    r#"{"metadata":{"name":"a"}}"#,
    422,
    "Invalid"
)]
#[case::bad_delete_options(
    Method::DELETE,
    "/api/v1/nodes/n",
    "application/json",
    r#"{"propagationPolicy":"Sideways"}"#,
    422,
    "Invalid"
)]
#[tokio::test]
async fn is_refused(
    #[case] method: Method,
    #[case] path: &str,
    #[case] content_type: &str,
    #[case] body: &'static str,
    #[case] code: u16,
    #[case] reason: &str,
) {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("n").await;
    let (said, message) = requests.send(method, path, content_type, body).await.refused(code);
    assert_eq!(said, reason, "{message}");
    assert!(!message.is_empty());
}

#[tokio::test]
async fn a_body_beyond_three_mebibytes_is_refused() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let huge = config_map("huge", &"x".repeat(3 << 20));
    let (reason, message) = requests.post(CONFIG_MAPS, &huge).await.refused(413);
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    );
}

#[tokio::test]
async fn an_object_does_not_grow_beyond_what_etcd_would_take() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let names: Vec<String> = (0..2_000).map(|number| format!("{number:0>990}")).collect();
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    requests.post("/api/v1/nodes", &node).await.ok();
    node["status"] = json!({"images": [{"names": names}]});
    let (reason, message) = requests.put("/api/v1/nodes/n/status", &node).await.refused(413);
    assert_eq!(
        (reason.as_str(), message.as_str()),
        ("RequestEntityTooLarge", "Request entity too large: limit is 1572864")
    );
    requests.delete("/api/v1/nodes/n", &json!({})).await.ok();
}

/// A small text can take much memory: 3 MB of volumes took 1.2 GB.
#[rstest]
#[case::objects(NODE_IMAGES, "apps.kruise.io/v1beta1", "NodeImage", r#"{"":{}}"#)]
#[case::volumes("/api/v1/namespaces/default/pods", "v1", "Pod", r#"{"name":""}"#)]
#[tokio::test]
async fn a_body_of_very_many_small_objects_is_refused(
    #[case] path: &str,
    #[case] version: &str,
    #[case] kind: &str,
    #[case] object: &str,
) {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let many = vec![object; 200_000].join(",");
    let body = format!(
        r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"x"}},"spec":{{"containers":[],"volumes":[{many}]}}}}"#
    );
    let posted = requests
        .send(Method::POST, path, "application/json", body.clone())
        .await;
    let patched = requests.send(Method::PATCH, &format!("{path}/x"), MERGE, body).await;
    for answer in [posted, patched] {
        let (reason, message) = answer.refused(413);
        assert_eq!(reason, "RequestEntityTooLarge");
        assert!(
            message.starts_with("Request entity too large: ") && message.contains("use several objects"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_object_does_not_get_more_small_objects_patch_by_patch() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    requests.post("/api/v1/nodes", &node).await.ok();
    node["status"] = json!({"images": vec![json!({"names": ["x"]}); 20_000]});
    requests.put("/api/v1/nodes/n/status", &node).await.ok();
    let copy = json!({"op": "copy", "from": "/status/images/0", "path": "/status/images/-"});
    let patch = json!(vec![copy; 5_000]).to_string();
    let status = "/api/v1/nodes/n/status";
    let answer = requests
        .send(Method::PATCH, status, "application/json-patch+json", patch)
        .await;
    assert_eq!(answer.refused(413).0, "RequestEntityTooLarge");
    requests.delete("/api/v1/nodes/n", &json!({})).await.ok();
}

#[tokio::test]
async fn an_answer_names_a_thousand_wrong_fields_at_most() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let wrong: serde_json::Map<_, _> = (0..50_000).map(|number| (format!("image{number}"), json!(0))).collect();
    let mut object = node_image("n");
    object["spec"] = json!({"images": wrong});
    let labels: serde_json::Map<_, _> = (0..50_000).map(|number| (format!("!{number}"), json!(""))).collect();
    let mut map = config_map("m", "");
    map["metadata"]["labels"] = json!(labels);
    for answer in [
        requests.post(NODE_IMAGES, &object).await,
        requests.post(CONFIG_MAPS, &map).await,
    ] {
        assert_eq!(answer.code, 422);
        assert_eq!(answer.body["details"]["causes"].as_array().unwrap().len(), 1_000);
    }
}

#[tokio::test]
async fn more_unknown_fields_than_there_can_be_headers_are_no_trouble() {
    let plane = plane().await;
    let mut object = node_image("n");
    for number in 0..40_000 {
        object["spec"][format!("unknown{number}")] = 1.into();
    }
    let answer = Requests::to(&plane).post(NODE_IMAGES, &object).await;
    assert!((1..200).contains(&answer.warnings.len()), "{}", answer.warnings.len());
    assert_eq!(answer.ok()["spec"], json!({}));
}

#[tokio::test]
async fn an_answer_in_protobuf_alone_cannot_be_had() {
    let plane = plane().await;
    let headers = [("accept", "application/vnd.kubernetes.protobuf")];
    let response = Requests::to(&plane)
        .raw(Method::GET, NODE_IMAGES, &headers, Body::empty())
        .await;
    let (reason, _) = answer(response).await.refused(406);
    assert_eq!(reason, "NotAcceptable");
}

#[tokio::test]
async fn a_refused_field_is_named_in_the_message_and_in_the_causes() {
    let plane = plane().await;
    let job = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "ImagePullJob",
        "metadata": {"name": "job"},
        "spec": {"image": 5},
    });
    let refusal = Requests::to(&plane).post(JOBS, &job).await;
    assert_eq!(refusal.code, 422);
    let text = r#"spec.image: Invalid value: "integer": spec.image in body must be of type string: "integer""#;
    let message = refusal.body["message"].as_str().unwrap();
    let start = format!(r#"ImagePullJob.apps.kruise.io "job" is invalid: [{text}, "#);
    assert!(message.starts_with(&start), "{message}");
    assert!(message.contains("some validation rules were not checked"), "{message}");
    let details = &refusal.body["details"];
    assert_eq!(details["kind"], "ImagePullJob");
    assert_eq!(details["group"], "apps.kruise.io");
    assert_eq!(details["causes"][0]["reason"], "FieldValueTypeInvalid");
    assert_eq!(details["causes"][0]["field"], "spec.image");
}

#[tokio::test]
async fn unknown_fields_are_dropped_told_or_refused_as_the_client_asks() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut object = node_image("a");
    object["spec"]["surprise"] = 1.into();
    let warned = requests.post(NODE_IMAGES, &object).await;
    assert_eq!(warned.warnings, [r#"299 - "unknown field \"spec.surprise\"""#]);
    assert_eq!(warned.ok()["spec"], json!({}));

    object["metadata"]["name"] = "b".into();
    let silent = requests
        .post(&format!("{NODE_IMAGES}?fieldValidation=Ignore"), &object)
        .await;
    assert!(silent.warnings.is_empty());
    silent.ok();

    object["metadata"]["name"] = "c".into();
    let strict = requests
        .post(&format!("{NODE_IMAGES}?fieldValidation=Strict"), &object)
        .await;
    let (_, message) = strict.refused(400);
    assert!(
        message.contains(r#"strict decoding error: unknown field "spec.surprise""#),
        "{message}"
    );

    let mut config = config_map("d", "v");
    config["surprise"] = 1.into();
    let (_, message) = requests
        .post(&format!("{CONFIG_MAPS}?fieldValidation=Strict"), &config)
        .await
        .refused(400);
    assert!(message.contains(r#"unknown field "surprise""#), "{message}");
}
