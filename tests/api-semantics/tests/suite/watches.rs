//! Watches: every change once, in order, from the version that a list carried.

use std::pin::pin;
use std::time::Duration;

use http::Request;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};

use crate::kind::{Kind, Resource};
use crate::server::{MERGE_PATCH, Server, name_of};
use crate::target::Target;

/// Watches end by themselves: tests need no longer, and a lost event fails instead of hanging.
const WATCH: Duration = Duration::from_secs(20);

async fn create(server: &Server, resource: Resource, labels: Value) -> Value {
    let mut object = server.object(resource, &json!({"image": "nginx"}));
    object["metadata"]["labels"] = labels;
    server.create(resource, &object).await.accepted()
}

/// The first `count` events of a watch.
async fn events(server: &Server, path: &str, count: usize) -> Vec<Value> {
    use http_body_util::BodyExt as _;
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = server.client().send(request).await.unwrap();
    assert!(response.status().is_success(), "{} {path}", response.status());
    let mut body = pin!(response.into_body());
    let mut text = String::new();
    let mut found = Vec::new();
    let collect = async {
        while found.len() < count {
            let Some(frame) = body.frame().await else { break };
            let Ok(data) = frame.unwrap().into_data() else { continue };
            text.push_str(std::str::from_utf8(&data).unwrap());
            while let Some(end) = text.find('\n') {
                found.push(serde_json::from_str(&text[..end]).unwrap());
                text.drain(..=end);
            }
        }
    };
    let outcome = tokio::time::timeout(WATCH, collect).await;
    assert!(
        outcome.is_ok(),
        "only {} events within {WATCH:?}: {found:?}",
        found.len()
    );
    found
}

fn summary(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), name_of(&event["object"])))
        .collect()
}

async fn version_now(server: &Server, resource: Resource) -> String {
    let list = server.read(&resource.path(server.namespace())).await.accepted();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[rstest]
#[tokio::test]
async fn tell_every_change_in_order(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    for resource in Kind::ImagePullJob.versions() {
        let version = version_now(&server, resource).await;
        let job = create(&server, resource, json!({})).await;
        let name = name_of(&job);
        let spec = json!({"spec": {"parallelism": 2}});
        server.patch(resource, name, MERGE_PATCH, &spec).await.accepted();
        server
            .patch_status(resource, name, &json!({"status": {"desired": 3}}))
            .await
            .accepted();
        server.delete(&server.path(resource, name), None).await.accepted();

        let path = format!(
            "{}?watch=1&resourceVersion={version}",
            resource.path(server.namespace())
        );
        let events = events(&server, &path, 4).await;
        assert_eq!(
            summary(&events),
            [
                ("ADDED", name),
                ("MODIFIED", name),
                ("MODIFIED", name),
                ("DELETED", name)
            ]
        );
        assert_eq!(events[0]["object"], job);
        assert_eq!(events[1]["object"]["spec"]["parallelism"], 2);
        assert_eq!(events[3]["object"]["status"]["desired"], 3);
        let versions: Vec<u64> = events
            .iter()
            .map(|event| {
                event["object"]["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        assert!(versions.is_sorted_by(|before, after| before < after), "{versions:?}");
        for event in &events {
            assert_eq!(event["object"]["apiVersion"], resource.api_version());
        }
    }
}

#[rstest]
#[tokio::test]
async fn follow_a_selector(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let version = version_now(&server, resource).await;
    let other = create(&server, resource, json!({"zone": "b"})).await;
    let job = create(&server, resource, json!({"zone": "b"})).await;
    let name = name_of(&job);
    for zone in ["a", "a2", "a"] {
        let patch = json!({"metadata": {"labels": {"zone": zone}}});
        server.patch(resource, name, MERGE_PATCH, &patch).await.accepted();
    }
    let spec = json!({"spec": {"parallelism": 2}});
    server.patch(resource, name, MERGE_PATCH, &spec).await.accepted();
    server
        .delete(&server.path(resource, name_of(&other)), None)
        .await
        .accepted();
    server.delete(&server.path(resource, name), None).await.accepted();

    let path = format!(
        "{}?watch=1&resourceVersion={version}&labelSelector=zone%3Da",
        resource.path(server.namespace())
    );
    let events = events(&server, &path, 5).await;
    // Coming into sight is ADDED, going out of sight DELETED, whatever really happened.
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]);
    assert!(events.iter().all(|event| name_of(&event["object"]) == name));
}

#[rstest]
#[tokio::test]
async fn begin_with_what_is_there_if_no_version_is_given(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let job = create(&server, resource, json!({})).await;
    let path = format!("{}?watch=1", resource.path(server.namespace()));
    let events = events(&server, &path, 1).await;
    assert_eq!(summary(&events), [("ADDED", name_of(&job))]);
}

#[rstest]
#[tokio::test]
async fn end_when_their_time_is_over(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let resource = Kind::ImagePullJob.stored();
    let version = version_now(&server, resource).await;
    let path = format!(
        "{}?watch=1&resourceVersion={version}&timeoutSeconds=1",
        resource.path(server.namespace())
    );
    assert_eq!(events(&server, &path, 1).await, Vec::<Value>::new());
}
