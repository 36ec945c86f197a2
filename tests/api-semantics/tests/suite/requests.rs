//! Requests that are wrong in themselves, and the answers that clients rely on to tell why.

use std::collections::BTreeSet;

use http::{Method, Request};
use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::target::Target;

fn request(method: Method, path: &str, content_type: &str, body: &str) -> Request<Vec<u8>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(body.as_bytes().to_vec())
        .unwrap()
}

#[rstest]
#[case::broken_json("application/json", r#"{"kind": "ImagePullJob""#, 400, "BadRequest")]
#[case::no_body("application/json", "", 400, "BadRequest")]
#[case::a_list("application/json", "[]", 400, "BadRequest")]
#[case::no_kind("application/json", "{}", 400, "BadRequest")]
#[case::content_type("text/plain", "{}", 415, "UnsupportedMediaType")]
#[tokio::test]
async fn a_body_that_is_no_object(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] content_type: &str,
    #[case] body: &str,
    #[case] code: u16,
    #[case] reason: &str,
) {
    let server = target.server().await;
    let path = Kind::ImagePullJob.stored().path(server.namespace());
    let answer = server.answer(request(Method::POST, &path, content_type, body)).await;
    assert_eq!(answer.body["reason"], reason, "{}", answer.body);
    answer.refused(code);
}

#[rstest]
#[case::object("imagepulljobs/nobody", 404, "NotFound")]
#[case::kind("imagepulljoobs", 404, "NotFound")]
#[case::subresource("imagepulljobs/nobody/scale", 404, "NotFound")]
#[tokio::test]
async fn a_path_that_leads_nowhere(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] rest: &str,
    #[case] code: u16,
    #[case] reason: &str,
) {
    let server = target.server().await;
    let path = format!("/apis/apps.kruise.io/v1beta1/namespaces/{}/{rest}", server.namespace());
    let answer = server.answer(request(Method::GET, &path, "application/json", "")).await;
    // Below a group that is not served there is no Status, just a line of text.
    assert_eq!(answer.code, code);
    if answer.body.is_object() {
        assert_eq!(answer.body["reason"], reason);
    }
}

/// What clients ask first.
#[rstest]
#[case::kruise("apps.kruise.io", ["v1beta1", "v1alpha1"])]
#[case::kubeedge("operations.kubeedge.io", ["v1alpha2", "v1alpha1"])]
#[tokio::test]
async fn discovery_names_the_kinds(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] group: &str,
    #[case] versions: [&str; 2],
) {
    let server = target.server().await;
    let found = server.read(&format!("/apis/{group}")).await.accepted();
    assert_eq!(found["preferredVersion"]["version"], versions[0]);
    let served = found["versions"].as_array().unwrap();
    let served: Vec<&Value> = served.iter().map(|version| &version["version"]).collect();
    assert_eq!(json!(served), json!(versions));
    for version in versions {
        let list = server.read(&format!("/apis/{group}/{version}")).await.accepted();
        assert_eq!(list["groupVersion"], format!("{group}/{version}"));
        assert_eq!(resources_in(&list), resources_of(group));
    }
}

/// Name, scope, kind and verbs of every resource that a server names.
fn resources_in(list: &Value) -> BTreeSet<String> {
    let resources = list["resources"].as_array().unwrap().iter();
    resources
        .map(|resource| {
            let mut verbs: Vec<&str> = resource["verbs"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            verbs.sort_unstable();
            format!(
                "{} {} {} {}",
                resource["name"],
                resource["namespaced"],
                resource["kind"],
                verbs.join(",")
            )
        })
        .collect()
}

/// The same of every resource that there should be.
fn resources_of(group: &str) -> BTreeSet<String> {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.group() == group);
    kinds
        .flat_map(|kind| {
            let (plural, scope, name) = (kind.plural(), kind.is_namespaced(), kind.name());
            [
                format!("\"{plural}\" {scope} \"{name}\" create,delete,deletecollection,get,list,patch,update,watch"),
                format!("\"{plural}/status\" {scope} \"{name}\" get,patch,update"),
            ]
        })
        .collect()
}
