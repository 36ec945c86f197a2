//! NodeImage: what is accepted, completed and refused.

use rstest::rstest;
use serde_json::{Value, json};

use crate::case::{Case, accept, check, refuse};
use crate::kind::Kind;
use crate::target::Target;
use crate::yaml::merged;

/// The documented defaults of every tag: 600 s, three retries. `createdAt`, `imagePullPolicy` and the TTL have none.
pub(crate) fn completed(spec: &Value) -> Value {
    let mut spec = merged(&json!({}), spec);
    let images = spec.get_mut("images").and_then(Value::as_object_mut);
    let tags = images
        .into_iter()
        .flat_map(|images| images.values_mut())
        .filter_map(|image| image.get_mut("tags").and_then(Value::as_array_mut))
        .flatten()
        .filter(|tag| tag.is_object());
    for tag in tags {
        let defaults = json!({"timeoutSeconds": 600, "backoffLimit": 3});
        tag["pullPolicy"] = merged(&defaults, &tag["pullPolicy"]);
    }
    spec
}

fn with_tag(tag: &str) -> String {
    format!("{{images: {{ubuntu: {{tags: [{tag}]}}}}}}")
}

fn images(names: usize) -> String {
    let image = json!({"tags": [{"tag": "v1", "pullPolicy": {"ttlSecondsAfterFinished": 300}}]});
    let images: serde_json::Map<String, Value> = (0..names)
        .map(|name| (format!("team/app-{name}"), image.clone()))
        .collect();
    json!({ "images": images }).to_string()
}

#[rstest]
#[tokio::test]
async fn names_and_tags(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    const TTL: &str = "pullPolicy: {ttlSecondsAfterFinished: 300}";
    let tag = |fields: &str| with_tag(&format!("{{{fields}, {TTL}}}"));
    let cases = [
        accept("no spec", "null"),
        accept("empty spec", "{}"),
        accept("no images", "{images: {}}"),
        accept("no tags", "{images: {ubuntu: {tags: []}}}"),
        accept("hand-written, without createdAt", tag("tag: latest")),
        accept(
            "with createdAt",
            tag("tag: latest, createdAt: \"2026-11-15T10:00:00Z\""),
        ),
        accept(
            "digest",
            tag("tag: \"sha256:f2ca1bb6c7e907d06dafe4687e579fce76b37e4e93b7605022da52e6ccc26fd2\""),
        ),
        accept(
            "host with port",
            format!("{{images: {{\"registry.example:5000/team/app\": {{tags: [{{tag: v1, {TTL}}}]}}}}}}"),
        ),
        accept("as many names as there may be", images(256)),
        refuse(
            "too many names",
            images(257),
            "spec.images: Too many: 257: must have at most 256 items",
        ),
        refuse(
            "empty name",
            format!("{{images: {{\"\": {{tags: [{{tag: v1, {TTL}}}]}}}}}}"),
            "the name of an image must not be empty",
        ),
        refuse(
            "name without tags",
            "{images: {ubuntu: {}}}",
            "spec.images.ubuntu.tags: Required value",
        ),
        refuse(
            "empty tag",
            tag("tag: \"\""),
            "tags[0].tag in body should be at least 1 chars long",
        ),
        refuse("no tag", with_tag(&format!("{{{TTL}}}")), "tags[0].tag: Required value"),
        refuse(
            "one tag twice",
            with_tag(&format!(
                "{{tag: latest, {TTL}}}, {{tag: v1, {TTL}}}, {{tag: latest, {TTL}}}"
            )),
            "tags[2]: Duplicate value: {\"tag\":\"latest\"}",
        ),
        accept("version 0", tag("tag: latest, version: 0")),
        accept("large version", tag("tag: latest, version: 9007199254740993")),
        refuse(
            "negative version",
            tag("tag: latest, version: -1"),
            "tags[0].version in body should be greater than or equal to 0",
        ),
        refuse(
            "createdAt is no time",
            tag("tag: latest, createdAt: yesterday"),
            "must be of type date-time",
        ),
        accept("empty image pull policy", tag("tag: latest, imagePullPolicy: \"\"")),
        refuse(
            "image pull policy Never",
            tag("tag: latest, imagePullPolicy: Never"),
            "tags[0].imagePullPolicy: Unsupported value: \"Never\"",
        ),
        accept(
            "copied secret of OpenKruise",
            format!(
                "{{images: {{ubuntu: {{pullSecrets: [{{namespace: kruise-daemon-config, name: a-1, mode: batch}}], tags: [{{tag: v1, {TTL}}}]}}}}}}"
            ),
        ),
        refuse("images is a list", "{images: [ubuntu]}", "spec.images"),
    ];
    check(&target.server().await, Kind::NodeImage, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn pull_policy_of_a_tag(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let policy = |fields: &str| with_tag(&format!("{{tag: latest, pullPolicy: {{{fields}}}}}"));
    let cases: Vec<Case> = vec![
        accept(
            "the guides' four numbers",
            policy("ttlSecondsAfterFinished: 300, timeoutSeconds: 600, backoffLimit: 3, activeDeadlineSeconds: 1200"),
        ),
        accept("the guides' merge patch", policy("ttlSecondsAfterFinished: 300")),
        accept("TTL 0", policy("ttlSecondsAfterFinished: 0")),
        refuse(
            "no pull policy",
            with_tag("{tag: latest}"),
            "tags[0].pullPolicy: Required value",
        ),
        refuse(
            "pull policy is null",
            with_tag("{tag: latest, pullPolicy: null}"),
            "tags[0].pullPolicy",
        ),
        refuse(
            "no TTL",
            policy("timeoutSeconds: 600"),
            "pullPolicy.ttlSecondsAfterFinished: Required value",
        ),
        refuse(
            "negative TTL",
            policy("ttlSecondsAfterFinished: -1"),
            "ttlSecondsAfterFinished in body should be greater than or equal to 0",
        ),
        refuse(
            "timeout 0",
            policy("ttlSecondsAfterFinished: 1, timeoutSeconds: 0"),
            "timeoutSeconds in body should be greater than or equal to 1",
        ),
        refuse(
            "negative retries",
            policy("ttlSecondsAfterFinished: 1, backoffLimit: -1"),
            "backoffLimit in body should be greater than or equal to 0",
        ),
        refuse(
            "deadline 0",
            policy("ttlSecondsAfterFinished: 1, activeDeadlineSeconds: 0"),
            "activeDeadlineSeconds in body should be greater than or equal to 1",
        ),
    ];
    check(&target.server().await, Kind::NodeImage, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn fields_of_our_own(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    let tag = |fields: &str| {
        with_tag(&format!(
            "{{tag: latest, pullPolicy: {{ttlSecondsAfterFinished: 1}}, {fields}}}"
        ))
    };
    let cases = [
        accept("claims", tag("claims: [{uid: a, version: 0}, {uid: b, version: 7}]")),
        refuse(
            "claim without uid",
            tag("claims: [{version: 7}]"),
            "claims[0].uid: Required value",
        ),
        refuse(
            "two claims of one job",
            tag("claims: [{uid: a, version: 0}, {uid: a, version: 1}]"),
            "claims[1]: Duplicate value",
        ),
        refuse(
            "negative claim",
            tag("claims: [{uid: a, version: -1}]"),
            "claims[0].version",
        ),
        accept("checks", tag("checks: [disk, cpu, mem]")),
        refuse(
            "check that nobody knows",
            tag("checks: [network]"),
            "checks[0]: Unsupported value: \"network\"",
        ),
        accept(
            "pin, alias, dry run",
            tag("pin: true, alias: \"docker.io/library/nginx:1\", dryRun: true, progressSeconds: 5, credentials: [a]"),
        ),
        refuse(
            "progress seconds 0",
            tag("progressSeconds: 0"),
            "progressSeconds in body should be greater than or equal to 1",
        ),
        accept("first position", tag("position: 0")),
        accept("last position", tag("position: 65535")),
        refuse(
            "position beyond the last",
            tag("position: 65536"),
            "position in body should be less than or equal to 65535",
        ),
        refuse(
            "negative position",
            tag("position: -1"),
            "position in body should be greater than or equal to 0",
        ),
        accept(
            "sealed credentials",
            "{sealedCredentials: [{id: a, key: k, data: ZA==}]}",
        ),
        refuse(
            "two credentials with one id",
            "{sealedCredentials: [{id: a, key: k, data: ZA==}, {id: a, key: l, data: ZB==}]}",
            "spec.sealedCredentials[1]: Duplicate value",
        ),
        refuse(
            "credential without id",
            "{sealedCredentials: [{key: k, data: ZA==}]}",
            "sealedCredentials[0].id: Required value",
        ),
    ];
    check(&target.server().await, Kind::NodeImage, &cases, completed).await;
}
