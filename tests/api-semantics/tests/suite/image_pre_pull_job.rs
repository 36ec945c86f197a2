//! ImagePrePullJob: what is accepted, completed and refused.

use rstest::rstest;
use serde_json::{Value, json};

use crate::case::{accept, check, refuse};
use crate::kind::Kind;
use crate::target::Target;
use crate::yaml::merged;

/// The defaults that KubeEdge documents: disk check, a tenth may fail, one node at a time, 300 s, no retries.
pub(crate) fn completed(spec: &Value) -> Value {
    let defaults = json!({"imagePrePullTemplate": {
        "checkItems": ["disk"],
        "failureTolerate": "0.1",
        "concurrency": 1,
        "timeoutSeconds": 300,
        "retryTimes": 0,
    }});
    merged(&defaults, spec)
}

fn template(fields: &str) -> String {
    format!("{{imagePrePullTemplate: {{{fields}}}}}")
}

/// A template that is right, and these fields.
fn with(fields: &str) -> String {
    template(&format!("images: [image1], nodeNames: [edgenode1], {fields}"))
}

#[rstest]
#[tokio::test]
async fn images_and_nodes(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    const BOTH: &str = "nodeNames and nodeSelector cannot be specified at the same time";
    const NONE: &str = "nodeNames and nodeSelector cannot both be empty";
    const TWICE: &str = "nodes is another name of nodeNames; give only one of them";
    let nodes = |fields: &str| template(&format!("images: [image1], {fields}"));
    let images = |value: &str| template(&format!("nodeNames: [edgenode1], images: {value}"));
    let cases = [
        refuse("no spec", "null", "spec: Required value"),
        refuse("no template", "{}", "spec.imagePrePullTemplate: Required value"),
        refuse(
            "template is null",
            "{imagePrePullTemplate: null}",
            "spec.imagePrePullTemplate",
        ),
        accept("node names", nodes("nodeNames: [edgenode1, edgenode2]")),
        accept("nodes", nodes("nodes: [edgenode1, edgenode2]")),
        accept(
            "names beside labels that are null",
            nodes("nodeNames: [edgenode1], labelSelector: null"),
        ),
        refuse("labels that are null", nodes("labelSelector: null"), NONE),
        accept("one node twice counts once", nodes("nodeNames: [edgenode1, edgenode1]")),
        accept(
            "labels",
            nodes("labelSelector: {matchLabels: {node-role.kubernetes.io/edge: \"\"}}"),
        ),
        accept("all edge nodes", nodes("labelSelector: {}")),
        accept(
            "no names beside labels",
            nodes("nodeNames: [], labelSelector: {matchLabels: {a: b}}"),
        ),
        accept(
            "no names of either spelling beside labels",
            nodes("nodeNames: [], nodes: [], labelSelector: {}"),
        ),
        accept("names beside no names", nodes("nodeNames: [edgenode1], nodes: []")),
        refuse(
            "names and labels",
            nodes("nodeNames: [edgenode1], labelSelector: {matchLabels: {a: b}}"),
            BOTH,
        ),
        refuse(
            "names and empty labels",
            nodes("nodeNames: [edgenode1], labelSelector: {}"),
            BOTH,
        ),
        refuse(
            "nodes and labels",
            nodes("nodes: [edgenode1], labelSelector: {matchLabels: {a: b}}"),
            BOTH,
        ),
        refuse("neither names nor labels", template("images: [image1]"), NONE),
        refuse("no names and no labels", nodes("nodeNames: []"), NONE),
        refuse(
            "both spellings",
            nodes("nodeNames: [edgenode1], nodes: [edgenode2]"),
            TWICE,
        ),
        refuse(
            "node without name",
            nodes("nodeNames: [\"\"]"),
            "imagePrePullTemplate.nodeNames[0]",
        ),
        refuse(
            "labels that cannot be",
            nodes("labelSelector: {matchExpressions: [{key: a, operator: In}]}"),
            "values must be given when operator is In or NotIn",
        ),
        refuse(
            "no images",
            template("nodeNames: [edgenode1]"),
            "imagePrePullTemplate.images: Required value",
        ),
        refuse(
            "empty images",
            images("[]"),
            "imagePrePullTemplate.images in body should have at least 1 items",
        ),
        refuse(
            "images is one object, as in the proposal",
            images("{name: image1, repo: a}"),
            "imagePrePullTemplate.images",
        ),
        refuse("images is a text", images("image1"), "imagePrePullTemplate.images"),
        accept(
            "several images",
            images("[image1, \"nginx:1.25\", registry.cn-hangzhou.aliyuncs.com/jilimoxing/test:nginx]"),
        ),
        accept(
            "image in parts",
            images(
                "[{name: image1, registry: harbor.docker.hub, repo: jili, tag: \"example:v1.0.0\", imageSecret: default/secret}]",
            ),
        ),
        accept(
            "image in parts, as the proposal spells it",
            images(
                "[{name: image1, registry: harbor.docker.hub, respo: jili, tag: \"example:v1.0.0\", imageSecret: default/secret}]",
            ),
        ),
        accept("texts and parts mixed", images("[nginx, {repo: team/app, tag: v1}]")),
        accept(
            "what the rules cannot see is kept for the controller to refuse",
            images("[{repo: 5, colour: blue}]"),
        ),
    ];
    check(&target.server().await, Kind::ImagePrePullJob, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn rules_of_the_pull(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    const TOLERATE: &str = "failureTolerate must be a decimal between 0 and 1";
    const SECRET: &str = "imageSecrets must have the form namespace/name";
    let tolerate = |value: &str| with(&format!("failureTolerate: {value}"));
    let secret = |value: &str| with(&format!("imageSecrets: {value}"));
    let cases = [
        accept(
            "the guide's sample",
            with("checkItems: [disk], failureTolerate: \"0.3\", concurrency: 2, timeoutSeconds: 180, retryTimes: 1"),
        ),
        accept("all checks", with("checkItems: [cpu, mem, disk]")),
        accept("no checks", with("checkItems: []")),
        refuse(
            "check that nobody knows",
            with("checkItems: [network]"),
            "checkItems[0]: Unsupported value: \"network\"",
        ),
        accept("tolerate the default", tolerate("\"\"")),
        accept("tolerate none", tolerate("\"0\"")),
        accept("tolerate all", tolerate("\"1\"")),
        accept("tolerate a tenth", tolerate("\"0.1\"")),
        accept("tolerate a tenth without zero", tolerate("\".1\"")),
        accept("tolerate all as a decimal", tolerate("\"1.0\"")),
        refuse("tolerate more than all", tolerate("\"1.1\""), TOLERATE),
        refuse("tolerate less than none", tolerate("\"-0.1\""), TOLERATE),
        refuse("tolerate what is no number", tolerate("\"NaN\""), TOLERATE),
        refuse("tolerate a word", tolerate("abc"), TOLERATE),
        refuse("tolerate in percent", tolerate("\"10%\""), TOLERATE),
        refuse("tolerate in powers", tolerate("\"1e-1\""), TOLERATE),
        refuse(
            "tolerate without quotes",
            tolerate("0.1"),
            "imagePrePullTemplate.failureTolerate",
        ),
        accept("secret", secret("default/my-secret")),
        accept("no secret", secret("\"\"")),
        refuse("secret without namespace", secret("my-secret"), SECRET),
        refuse("secret without name", secret("default/"), SECRET),
        refuse("secret with three parts", secret("a/b/c"), SECRET),
        refuse("secret in capitals", secret("default/My-Secret"), SECRET),
        refuse(
            "list of secrets",
            secret("[default/my-secret]"),
            "imagePrePullTemplate.imageSecrets",
        ),
        accept("concurrency 0 means 1", with("concurrency: 0")),
        refuse(
            "negative concurrency",
            with("concurrency: -1"),
            "concurrency in body should be greater than or equal to 0",
        ),
        accept("timeout 0 means the default", with("timeoutSeconds: 0")),
        refuse(
            "negative timeout",
            with("timeoutSeconds: -1"),
            "timeoutSeconds in body should be greater than or equal to 0",
        ),
        refuse(
            "negative retries",
            with("retryTimes: -1"),
            "retryTimes in body should be greater than or equal to 0",
        ),
        accept(
            "pin, deadline and TTL",
            with("pin: true, activeDeadlineSeconds: 3600, ttlSecondsAfterFinished: 0"),
        ),
        refuse(
            "deadline 0",
            with("activeDeadlineSeconds: 0"),
            "activeDeadlineSeconds in body should be greater than or equal to 1",
        ),
        refuse(
            "negative TTL",
            with("ttlSecondsAfterFinished: -1"),
            "ttlSecondsAfterFinished in body should be greater than or equal to 0",
        ),
    ];
    check(&target.server().await, Kind::ImagePrePullJob, &cases, completed).await;
}

#[rstest]
#[tokio::test]
async fn overriders(#[values(Target::KubeApiserver, Target::Localplane)] target: Target) {
    const VALUE: &str = "value must be given when operator is add or replace";
    let with = |overrider: &str| {
        format!(
            "{{imagePrePullTemplate: {{images: [nginx], nodeNames: [edgenode1]}}, imagePrePullOverriders: [{overrider}]}}"
        )
    };
    let image = |change: &str| {
        with(&format!(
            "{{nodeLabel: region=hangzhou, overriders: {{imageOverriders: [{change}]}}}}"
        ))
    };
    let secret = |change: &str| {
        with(&format!(
            "{{nodeLabel: region=hangzhou, overriders: {{secretOverriders: [{change}]}}}}"
        ))
    };
    let wrapped = |fields: &str| with(&format!("{{imagePrePullOverrider: {{{fields}}}}}"));
    let cases = [
        accept(
            "the proposal's sample, wrapped",
            wrapped(
                "nodeLabel: labelexample, overriders: {imageOverriders: [{component: Registry, operator: replace, value: hangzhou.registry.io}], secretOverriders: [{component: SecretName, operator: replace, value: hangzhou-secret}]}",
            ),
        ),
        accept(
            "unwrapped",
            image("{component: Registry, operator: replace, value: hangzhou.registry.io}"),
        ),
        accept(
            "nodes by structure",
            with("{labelSelector: {matchLabels: {region: hangzhou}}, overriders: {}}"),
        ),
        accept(
            "every component and operator",
            image(
                "{component: Registry, operator: add, value: \":5000\"}, {component: Repository, operator: replace, value: a/b}, {component: Tag, operator: remove}",
            ),
        ),
        accept(
            "both components of a secret",
            secret("{component: Namespace, operator: replace, value: a}, {component: SecretName, operator: remove}"),
        ),
        accept(
            "both components of a secret in lower case",
            secret(
                "{component: namespace, operator: replace, value: a}, {component: secretName, operator: add, value: \"-b\"}",
            ),
        ),
        refuse(
            "component that nobody knows",
            image("{component: Host, operator: remove}"),
            "imageOverriders[0].component: Unsupported value: \"Host\"",
        ),
        refuse(
            "component of an image in a secret",
            secret("{component: Registry, operator: remove}"),
            "secretOverriders[0].component: Unsupported value: \"Registry\"",
        ),
        refuse(
            "operator that nobody knows",
            image("{component: Tag, operator: set, value: a}"),
            "imageOverriders[0].operator: Unsupported value: \"set\"",
        ),
        refuse(
            "no component",
            image("{operator: remove}"),
            "imageOverriders[0].component: Required value",
        ),
        refuse(
            "no operator",
            image("{component: Tag, value: a}"),
            "imageOverriders[0].operator: Required value",
        ),
        refuse(
            "replace by nothing",
            image("{component: Tag, operator: replace}"),
            VALUE,
        ),
        refuse(
            "add an empty text",
            image("{component: Tag, operator: add, value: \"\"}"),
            VALUE,
        ),
        refuse(
            "replace by nothing, wrapped",
            wrapped("nodeLabel: a, overriders: {secretOverriders: [{component: SecretName, operator: replace}]}"),
            VALUE,
        ),
        refuse(
            "two ways to choose nodes",
            with("{nodeLabel: a, labelSelector: {}, overriders: {}}"),
            "nodeLabel and labelSelector cannot be given together",
        ),
        accept(
            "empty fields beside the wrapper",
            with("{imagePrePullOverrider: {nodeLabel: a}, nodeLabel: \"\", overriders: {}}"),
        ),
        refuse(
            "nodes beside the wrapper",
            with("{imagePrePullOverrider: {nodeLabel: a}, nodeLabel: b}"),
            "write them in one place",
        ),
        refuse(
            "changes beside the wrapper",
            with(
                "{imagePrePullOverrider: {nodeLabel: a}, overriders: {imageOverriders: [{component: Tag, operator: remove}]}}",
            ),
            "write them in one place",
        ),
        refuse(
            "two ways to choose nodes, wrapped",
            wrapped("nodeLabel: a, labelSelector: {}, overriders: {}"),
            "nodeLabel and labelSelector cannot be given together",
        ),
    ];
    check(&target.server().await, Kind::ImagePrePullJob, &cases, completed).await;
}
