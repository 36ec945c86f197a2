//! ImagePullJob: what is accepted, completed and refused.

use rstest::rstest;
use serde_json::{Value, json};

use crate::case::{accept, check, refuse};
use crate::kind::Kind;
use crate::target::Target;
use crate::template;
use crate::yaml::merged;

/// The documented defaults: 600 s, three retries, Always, IfNotPresent. `parallelism` is not written.
pub(crate) fn completed(spec: &Value) -> Value {
    let defaults = json!({
        "imagePullPolicy": "IfNotPresent",
        "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3},
        "completionPolicy": {"type": "Always"},
    });
    merged(&defaults, spec)
}

#[rstest]
#[tokio::test]
async fn nodes_pace_and_rules(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let cases = template::cases("image: \"nginx:1.9.1\"");
    check(&target.server().await, Kind::ImagePullJob, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn the_deadline(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    const DEADLINE: &str = "completionPolicy.activeDeadlineSeconds must be at least pullPolicy.timeoutSeconds";
    let cases = [
        refuse(
            "deadline below timeout",
            "{image: nginx, pullPolicy: {timeoutSeconds: 1201}, completionPolicy: {activeDeadlineSeconds: 1200}}",
            DEADLINE,
        ),
        refuse(
            "deadline below default timeout",
            "{image: nginx, completionPolicy: {activeDeadlineSeconds: 599}}",
            DEADLINE,
        ),
    ];
    check(&target.server().await, Kind::ImagePullJob, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn the_image(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let cases = [
        accept("image alone", "{image: nginx}"),
        accept("image pull policy is null", "{image: nginx, imagePullPolicy: null}"),
        refuse("no spec", "null", "spec: Required value"),
        refuse("empty spec", "{}", "spec.image: Required value"),
        refuse("image is null", "{image: null}", "spec.image"),
        refuse(
            "empty image",
            "{image: \"\"}",
            "spec.image in body should be at least 1 chars long",
        ),
        refuse("image is a number", "{image: 5}", "spec.image"),
        refuse("image is a list", "{image: [nginx]}", "spec.image"),
        refuse(
            "images instead of image",
            "{images: [nginx]}",
            "spec.image: Required value",
        ),
    ];
    check(&target.server().await, Kind::ImagePullJob, &cases, completed).await;
}
