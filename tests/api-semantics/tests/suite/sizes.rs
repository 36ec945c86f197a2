//! The largest objects that the schemas allow, and that etcd takes: the rules must be affordable on them.

use rstest::rstest;
use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::server::{JSON_PATCH, MERGE_PATCH, name_of};
use crate::target::Target;

/// A reference of the greatest length: 255 characters of name, a tag of 128 and a digest of 135.
fn longest_image(number: usize) -> String {
    let host = format!("registry-{number:03}.example:5000/");
    let name = format!("{host}{}", "a-".repeat(200));
    let name = format!("{}z", &name[..254]);
    let image = format!("{name}:{}@sha512:{}", "t".repeat(128), "0".repeat(128));
    assert_eq!(image.len(), 520);
    image
}

#[rstest]
#[tokio::test]
async fn a_list_of_the_longest_images(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let images: Vec<String> = (0..255).map(longest_image).collect();
    for resource in Kind::ImageListPullJob.versions() {
        let object = server.object(resource, &json!({ "images": images }));
        let created = server.create(resource, &object).await.accepted();
        assert_eq!(created["spec"]["images"], json!(images));
        let patch = json!({"spec": {"parallelism": 3}});
        server
            .patch(resource, name_of(&created), MERGE_PATCH, &patch)
            .await
            .accepted();
    }
    let job = json!({"image": longest_image(0)});
    let resource = Kind::ImagePullJob.stored();
    server.create(resource, &server.object(resource, &job)).await.accepted();
    let longer = json!({"image": format!("{}0", longest_image(0))});
    let message = server
        .create(resource, &server.object(resource, &longer))
        .await
        .refused(422);
    assert!(message.contains("spec.image"), "{message}");
}

#[rstest]
#[tokio::test]
async fn a_node_with_as_many_images_as_it_may_have(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
) {
    const TAGS: usize = 8;
    let server = target.server().await;
    let tag = |number: usize| {
        json!({
            "tag": format!("v{number}"),
            "pullPolicy": {"ttlSecondsAfterFinished": 300},
            "claims": [{"uid": "5e3c8d9e-0000-4000-8000-000000000000", "version": 1}],
        })
    };
    let image = |number: usize| {
        let name = format!("registry.example:5000/team-{number}/{}", "n".repeat(200));
        (name, json!({"tags": (0..TAGS).map(tag).collect::<Vec<_>>()}))
    };
    let images: Map<String, Value> = (0..256).map(image).collect();
    for resource in Kind::NodeImage.versions() {
        let object = server.object(resource, &json!({ "images": images }));
        let created = server.create(resource, &object).await.accepted();
        assert_eq!(created["spec"]["images"].as_object().unwrap().len(), 256);
        let patch = json!([{"op": "remove", "path": "/spec/images/registry.example:5000~1team-7~1".to_owned() + &"n".repeat(200)}]);
        let patched = server
            .patch(resource, name_of(&created), JSON_PATCH, &patch)
            .await
            .accepted();
        assert_eq!(patched["spec"]["images"].as_object().unwrap().len(), 255);
    }
}

#[rstest]
#[tokio::test]
async fn twenty_thousand_node_names(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let names = |count: usize| -> Vec<String> {
        (0..count)
            .map(|number| format!("node-{number:05}.rack-12.region-hangzhou.example"))
            .collect()
    };
    let specs = |names: Vec<String>| {
        [
            (
                Kind::ImagePullJob,
                json!({"image": "nginx", "selector": {"names": names}}),
            ),
            (
                Kind::ImageListPullJob,
                json!({"images": ["nginx"], "selector": {"names": names}}),
            ),
            (
                Kind::ImagePrePullJob,
                json!({"imagePrePullTemplate": {"images": ["nginx"], "nodeNames": names}}),
            ),
        ]
    };
    for (kind, spec) in specs(names(20_000)) {
        for resource in kind.versions() {
            server
                .create(resource, &server.object(resource, &spec))
                .await
                .accepted();
        }
    }
    for (kind, spec) in specs(names(20_001)) {
        let resource = kind.stored();
        let message = server
            .create(resource, &server.object(resource, &spec))
            .await
            .refused(422);
        assert!(
            message.contains("Too many: 20001: must have at most 20000 items"),
            "{message}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn the_largest_label_selectors(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let server = target.server().await;
    let labels: Map<String, Value> = (0..64)
        .map(|number| (format!("{}/key-{number}", "p".repeat(60)), json!("v".repeat(63))))
        .collect();
    let values: Vec<String> = (0..256)
        .map(|number| format!("{number:03}{}", "v".repeat(40)))
        .collect();
    let requirement = |number: usize| json!({"key": format!("key-{number}"), "operator": "In", "values": values});
    let selector = json!({"matchLabels": labels, "matchExpressions": (0..64).map(requirement).collect::<Vec<_>>()});
    for (kind, spec) in [
        (Kind::ImagePullJob, json!({"image": "nginx", "selector": selector})),
        (
            Kind::ImageListPullJob,
            json!({"images": ["nginx"], "podSelector": selector}),
        ),
        (
            Kind::ImagePrePullJob,
            json!({"imagePrePullTemplate": {"images": ["nginx"], "labelSelector": selector}}),
        ),
    ] {
        let resource = kind.stored();
        let created = server
            .create(resource, &server.object(resource, &spec))
            .await
            .accepted();
        assert!(created["metadata"]["uid"].is_string());
    }
}
