//! Objects with every field filled, so that a field that gets lost is noticed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kind::Kind;
use crate::yaml::yaml;

/// A spec and a status. Fields that exclude each other stand in different objects of one kind.
pub(crate) struct Full {
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

/// All full objects of a kind.
pub(crate) fn objects(kind: Kind) -> Vec<Full> {
    let (specs, status) = match kind {
        Kind::ImagePullJob => (
            vec![
                format!("image: nginx:1.9.1\n{TEMPLATE}{BY_NAME}"),
                format!("image: nginx:1.9.1\n{TEMPLATE}{BY_LABEL}"),
                format!("image: nginx:1.9.1\n{TEMPLATE}{BY_PODS}"),
                format!("image: nginx:1.9.1\n{}", endless()),
            ],
            format!("{PULL_JOB_STATUS}{PROGRESS}"),
        ),
        Kind::ImageListPullJob => (
            vec![
                format!("images: [nginx, busybox]\n{TEMPLATE}{BY_NAME}"),
                format!("images: [nginx, busybox]\n{TEMPLATE}{BY_LABEL}"),
                format!("images: [nginx, busybox]\n{TEMPLATE}{BY_PODS}"),
                format!("images: [nginx, busybox]\n{}", endless()),
            ],
            format!("{LIST_JOB_STATUS}{PROGRESS}"),
        ),
        Kind::NodeImage => (vec![NODE_IMAGE_SPEC.to_owned()], NODE_IMAGE_STATUS.to_owned()),
        Kind::ImagePrePullJob => (
            ["nodeNames: [edge-1]", "nodes: [edge-1]", SELECTOR]
                .iter()
                .map(|nodes| format!("{PRE_PULL_OVERRIDERS}{PRE_PULL_TEMPLATE}  {nodes}\n"))
                .collect(),
            format!("{PRE_PULL_STATUS}{PROGRESS}"),
        ),
    };
    let status = yaml(&status);
    specs
        .iter()
        .map(|spec| Full {
            spec: yaml(spec),
            status: status.clone(),
        })
        .collect()
}

const TEMPLATE: &str = r#"
pullSecrets: [one, two]
parallelism: "5"
priority: -7
imagePullPolicy: Always
pullPolicy: {timeoutSeconds: 1, backoffLimit: 0}
completionPolicy: {type: Always, activeDeadlineSeconds: 7, ttlSecondsAfterFinished: 8}
sandboxConfig: {labels: {a: b}, annotations: {c: d}}
pin: true
failurePolicy: {maxFailures: "10%"}
tolerations: [{key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 3}]
windows: [{days: [Mon, Sun], from: "22:00", to: "06:00", timeZone: Europe/Berlin}]
windowEnd: Stop
nodeGate: false
"#;

/// What only a job that never ends may have.
fn endless() -> String {
    let policy = "{type: Always, activeDeadlineSeconds: 7, ttlSecondsAfterFinished: 8}";
    let template = TEMPLATE.replace(policy, "{type: Never}");
    format!("{template}refreshSchedule: \"*/30 3 * * Mon-Fri\"\nrefreshTimeZone: Europe/Berlin\n")
}

const BY_NAME: &str = "selector: {names: [node-1]}\n";

const BY_LABEL: &str = "selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}\n";

const BY_PODS: &str = "podSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}\n";

const PROGRESS: &str = r#"
conditions:
- type: Complete
  status: "True"
  reason: AllNodesSucceeded
  message: every node has it
  lastTransitionTime: "2026-11-15T10:00:00Z"
  observedGeneration: 1
bytesTotal: 10000000000
bytesDone: 9999999999
etaSeconds: 5
reasons: {NoSpace: 3, AuthDenied: 1}
"#;

const PULL_JOB_STATUS: &str = r#"
startTime: "2026-11-15T10:00:00Z"
completionTime: "2026-11-15T10:01:00Z"
desired: 10
active: 1
succeeded: 5
failed: 4
message: job has completed
failedNodes: [node-1, node-2, node-3, node-4]
"#;

const LIST_JOB_STATUS: &str = r#"
startTime: "2026-11-15T10:00:00Z"
completionTime: "2026-11-15T10:01:00Z"
desired: 2
active: 1
completed: 2
succeeded: 1
failedImageStatuses: [{imagePullJob: list-abcde, name: nginx, message: look there}]
finishedImages: [{name: nginx, imagePullJob: list-abcde, reason: NodesFailed, revision: c0ffee}]
"#;

const NODE_IMAGE_SPEC: &str = r#"
images:
  registry.example:5000/team/app:
    pullSecrets: [{namespace: larder-system, name: a, mode: batch}]
    sandboxConfig: {labels: {a: b}, annotations: {c: d}}
    tags:
    - tag: v1
      createdAt: "2026-11-15T10:00:00Z"
      pullPolicy: {timeoutSeconds: 1, backoffLimit: 2, ttlSecondsAfterFinished: 3, activeDeadlineSeconds: 4}
      ownerReferences:
      - apiVersion: apps.kruise.io/v1beta1
        kind: ImagePullJob
        namespace: default
        name: job
        uid: 5e3c8d9e-0000-4000-8000-000000000000
        resourceVersion: "7"
        fieldPath: spec.image
      version: 7
      imagePullPolicy: Always
      claims: [{uid: 5e3c8d9e-0000-4000-8000-000000000000, version: 6}]
      pin: true
      alias: docker.io/team/app:v1
      checks: [disk]
      credentials: [login]
      progressSeconds: 30
      position: 2
      priority: 7
      dryRun: true
sealedCredentials: [{id: login, key: fingerprint, data: c2VhbGVk}]
"#;

const NODE_IMAGE_STATUS: &str = r#"
desired: 5
succeeded: 1
failed: 1
pulling: 1
waiting: 2
firstSyncStatus: {syncAt: "2026-11-15T10:00:00Z", status: ok, message: fine}
agent: {version: 0.1.0, runtime: containerd 2.1.9, publicKey: a2V5, lastSeen: "2026-11-15T10:00:00Z", instance: host_a, conflictsWith: host_b}
imageFs: {capacity: 100000000000, free: 50000000000}
imageStatuses:
  registry.example:5000/team/app:
    tags:
    - tag: v1
      phase: Failed
      progress: 50
      startTime: "2026-11-15T10:00:00Z"
      completionTime: "2026-11-15T10:01:00Z"
      version: 7
      imageID: registry.example:5000/team/app@sha256:1234
      message: it did not work
      digest: sha256:5678
      bytesTotal: 10000000000
      bytesDone: 9999999999
      reason: NoSpace
      attempts: 4
      lastSucceeded: {version: 6, digest: sha256:5678, completionTime: "2026-11-15T09:00:00Z"}
"#;

const SELECTOR: &str = "labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}";

const PRE_PULL_OVERRIDERS: &str = r"
imagePrePullOverriders:
- nodeLabel: region=a
  overriders: &changes
    imageOverriders: [{component: Registry, operator: replace, value: a.example}]
    secretOverriders: [{component: SecretName, operator: replace, value: a}]
- imagePrePullOverrider: {nodeLabel: region=b, overriders: *changes}
- labelSelector: &selector {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d]}]}
- imagePrePullOverrider: {labelSelector: *selector}
";

const PRE_PULL_TEMPLATE: &str = r#"
imagePrePullTemplate:
  images: [nginx, {name: a, registry: b.example, repo: c, tag: d, imageSecret: e/f}, {respo: c}]
  checkItems: [cpu, mem]
  failureTolerate: "0.5"
  concurrency: 2
  priority: 2147483647
  timeoutSeconds: 3
  imageSecrets: default/secret
  retryTimes: 4
  pin: true
  activeDeadlineSeconds: 5
  ttlSecondsAfterFinished: 6
  windows: [{days: [Mon, Sun], from: "22:00", to: "06:00", timeZone: Europe/Berlin}]
  windowEnd: Stop
"#;

const PRE_PULL_STATUS: &str = r#"
phase: Failure
reason: too many nodes failed
nodeStatus:
- nodeName: edge-1
  phase: Failure
  cause: CheckFailed
  reason: no room
  actionFlow: [{action: Check, status: "False", reason: no room, time: "2026-11-15T10:00:00Z"}]
  imageStatus: [{image: nginx, status: "False", reason: no room, resolvedImage: a.example/nginx}]
omittedNodes: [{phase: Failure, cause: NotFound, count: 1, nodes: [edge-2]}]
state: Failed
event: TimeOut
action: Failure
time: "2026-11-15T10:00:00Z"
status:
- nodeStatus: {nodeName: edge-1, state: Failed, event: Check, action: Failure, reason: no room, time: "2026-11-15T10:00:00Z"}
  imageStatus: [{image: nginx, state: Failed, reason: no room, resolvedImage: a.example/nginx}]
desired: 2
succeeded: 1
failed: 1
"#;

/// Paths of all fields that a schema names, below `path`.
fn fields(schema: &Value, path: &str, into: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields(field, &path, into);
        into.insert(path);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], &format!("{path}[]"), into);
    }
    if schema["additionalProperties"].is_object() {
        fields(&schema["additionalProperties"], &format!("{path}.*"), into);
    }
}

/// Takes out the paths that `value` fills.
fn fill(value: &Value, schema: &Value, path: &str, missing: &mut BTreeSet<String>) {
    missing.remove(path);
    match value {
        Value::Array(items) => {
            for item in items {
                fill(item, &schema["items"], &format!("{path}[]"), missing);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let known = &schema["properties"][name];
                if known.is_null() {
                    fill(member, &schema["additionalProperties"], &format!("{path}.*"), missing);
                } else {
                    fill(member, known, &format!("{path}.{name}"), missing);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn no_field_is_left_out() {
    for kind in Kind::ALL {
        let crds = larder_api::crds();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind.name()).unwrap();
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
            let schema = serde_json::to_value(schema).unwrap();
            let mut missing = BTreeSet::new();
            for part in ["spec", "status"] {
                fields(&schema["properties"][part], part, &mut missing);
            }
            for full in objects(kind) {
                fill(&full.spec, &schema["properties"]["spec"], "spec", &mut missing);
                fill(&full.status, &schema["properties"]["status"], "status", &mut missing);
            }
            assert!(missing.is_empty(), "{} {}: {missing:?}", kind.name(), version.name);
        }
    }
}

/// The types of `larder_api` read all of it and write the same again.
#[test]
fn the_types_lose_nothing() {
    fn written<T: serde::Serialize + serde::de::DeserializeOwned>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
    }
    for kind in Kind::ALL {
        for full in objects(kind) {
            let object = serde_json::json!({"metadata": {}, "spec": full.spec, "status": full.status});
            let written = match kind {
                Kind::ImagePullJob => written::<larder_api::ImagePullJob>(&object),
                Kind::ImageListPullJob => written::<larder_api::ImageListPullJob>(&object),
                Kind::NodeImage => written::<larder_api::NodeImage>(&object),
                Kind::ImagePrePullJob => written::<larder_api::ImagePrePullJob>(&object),
            };
            let mut spec = full.spec;
            if let Some(image) = spec.pointer_mut("/imagePrePullTemplate/images/2") {
                // Read as the proposal spells it, written as everybody else does.
                *image = serde_json::json!({"repo": image["respo"]});
            }
            assert_eq!(written["spec"], spec, "{kind:?}");
            assert_eq!(written["status"], full.status, "{kind:?}");
        }
    }
}
