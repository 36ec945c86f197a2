//! ImageListPullJob: what is accepted, completed and refused.

use rstest::rstest;
use serde_json::{Value, json};

use crate::case::{accept, check, refuse};
use crate::kind::Kind;
use crate::target::Target;
use crate::template;
use crate::yaml::merged;

/// As an ImagePullJob, but without `imagePullPolicy`: its children take the default.
pub(crate) fn completed(spec: &Value) -> Value {
    let defaults = json!({
        "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3},
        "completionPolicy": {"type": "Always"},
    });
    merged(&defaults, spec)
}

#[rstest]
#[tokio::test]
async fn nodes_pace_and_rules(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let cases = template::cases("images: [\"nginx:1.9.1\", \"busybox:1.29.2\"]");
    check(&target.server().await, Kind::ImageListPullJob, &cases, completed).await;
}

/// The children's timeouts are cut to the deadline, so a list needs none of its own.
#[rstest]
#[tokio::test]
async fn the_deadline(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let cases = [
        accept(
            "deadline below timeout",
            "{images: [nginx], pullPolicy: {timeoutSeconds: 1201}, completionPolicy: {activeDeadlineSeconds: 1200}}",
        ),
        accept(
            "deadline below default timeout",
            "{images: [nginx], completionPolicy: {activeDeadlineSeconds: 60}}",
        ),
    ];
    check(&target.server().await, Kind::ImageListPullJob, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn the_images(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let images = |count: usize| {
        let names: Vec<String> = (0..count)
            .map(|number| format!("registry.example/app-{number}:v1"))
            .collect();
        json!({ "images": names }).to_string()
    };
    let cases = [
        accept("one image", "{images: [nginx]}"),
        accept("as many as there may be", images(255)),
        accept(
            "equal only after normalisation",
            "{images: [nginx, \"nginx:latest\", docker.io/library/nginx]}",
        ),
        refuse("no spec", "null", "spec: Required value"),
        refuse("no images", "{}", "spec.images: Required value"),
        refuse("images is null", "{images: null}", "spec.images"),
        refuse(
            "empty list",
            "{images: []}",
            "spec.images in body should have at least 1 items",
        ),
        refuse(
            "too many",
            images(256),
            "spec.images: Too many: 256: must have at most 255 items",
        ),
        refuse(
            "one image twice",
            "{images: [nginx, busybox, nginx]}",
            "Duplicate value: \"nginx\"",
        ),
        refuse("empty image", "{images: [nginx, \"\"]}", "spec.images[1]"),
        refuse(
            "one bad image",
            "{images: [nginx, UPPERCASE/image]}",
            "spec.images[1]: Invalid value",
        ),
        refuse("images is a text", "{images: nginx}", "spec.images"),
        refuse("image is an object", "{images: [{name: nginx}]}", "spec.images[0]"),
    ];
    check(&target.server().await, Kind::ImageListPullJob, &cases, completed).await;
}
