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
            // Versions differ in how they show the value.
            "tags[2]: Duplicate value: ",
        ),
        accept("version 0", tag("tag: latest, version: 0")),
        accept("large version", tag("tag: latest, version: 9007199254740993")),
        refuse(
            "negative version",
            tag("tag: latest, version: -1"),
            "tags[0].version in body should be greater than or equal to 0",
        ),
        refuse(
            "createdAt in the 25th hour",
            tag("tag: latest, createdAt: \"2026-11-15T24:00:00Z\""),
            "must be of type date-time",
        ),
        refuse(
            "createdAt on a day that is not",
            tag("tag: latest, createdAt: \"2026-02-30T10:00:00Z\""),
            "must be of type date-time",
        ),
        refuse(
            "createdAt without offset",
            tag("tag: latest, createdAt: \"2026-11-15T10:00:00\""),
            "must be of type date-time",
        ),
        refuse(
            "createdAt is a day",
            tag("tag: latest, createdAt: \"2026-11-15\""),
            "must be of type date-time",
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

/// What the API server takes for a time is readable for us, whatever it means.
#[rstest]
#[case::as_everybody_writes_it("2026-11-15T10:00:00Z")]
#[case::in_small_letters("2026-11-15t10:00:00z")]
#[case::with_offset("2026-11-15T10:00:00+05:30")]
#[case::with_a_long_fraction("2026-11-15T10:00:00.123456789012345Z")]
#[case::at_the_end_of_time("9999-12-31T23:59:59Z")]
#[case::beyond_it_by_its_offset("9999-12-31T23:59:59-12:00")]
#[case::in_the_year_zero("0000-01-01T00:00:00Z")]
#[case::with_an_offset_of_days("2026-11-15T10:00:00+99:99")]
#[tokio::test]
async fn moments(#[values(Target::KubeApiserver, Target::Localplane)] target: Target, #[case] moment: &str) {
    let server = target.server().await;
    let resource = Kind::NodeImage.stored();
    let spec = json!({"images": {"nginx": {"tags": [
        {"tag": "1", "createdAt": moment, "pullPolicy": {"ttlSecondsAfterFinished": 1}},
    ]}}});
    let created = server
        .create(resource, &server.object(resource, &spec))
        .await
        .accepted();
    let read: larder_api::NodeImage = serde_json::from_value(created).unwrap();
    assert!(read.entry("nginx", "1").unwrap().created_at.is_some());
}

#[rstest]
#[case::version("version", 1024)]
#[case::runtime("runtime", 1024)]
#[case::public_key("publicKey", 1024)]
#[tokio::test]
async fn texts_of_agents_are_bounded(
    #[values(Target::KubeApiserver, Target::Localplane)] target: Target,
    #[case] field: &str,
    #[case] most: usize,
) {
    let server = target.server().await;
    let resource = Kind::NodeImage.stored();
    let created = server
        .create(resource, &server.object(resource, &json!({})))
        .await
        .accepted();
    let name = crate::server::name_of(&created);
    let say = |text: String| json!({"status": {"agent": {field: text}}});
    let status = say("ü".repeat(most));
    server.patch_status(resource, name, &status).await.accepted();
    let too_long = say("1".repeat(most + 1));
    let message = server.patch_status(resource, name, &too_long).await.refused(422);
    // 1.30 names it without the first `status.`.
    assert!(message.contains(&format!("agent.{field}: Too long")), "{message}");
    let story = json!({"status": {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "message": "1".repeat(4_097)}]}}}});
    // What other software wrote as a message must not block every later write.
    server.patch_status(resource, name, &story).await.accepted();
}
