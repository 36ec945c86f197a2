//! The part of the chart's templates that comes from the rules in `larder-access`, so that the rights in the chart and
//! those that the tests of that crate try out are the same.
//!
//! An object that differs with a value of the chart is written once per case, inside the template's conditions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use larder_access::{AGENT, CONTROLLER, KubeEdge, Settings};
use serde_json::{Value, json};

/// Stand for what a release decides until the text is made a template.
const NAMESPACE: &str = "namespace-of-the-release";
const FULLNAME: &str = "fullname-of-the-release";
const CONTROLLER_ACCOUNT: &str = "controller-account-of-the-release";
const AGENT_ACCOUNT: &str = "agent-account-of-the-release";

/// What each becomes in a template.
const EXPRESSIONS: [(&str, &str); 4] = [
    (NAMESPACE, r#"{{ include "larder.namespace" . }}"#),
    (FULLNAME, r#"{{ include "larder.fullname" . }}"#),
    (CONTROLLER_ACCOUNT, r#"{{ include "larder.controllerAccount" . }}"#),
    (AGENT_ACCOUNT, r#"{{ include "larder.agentAccount" . }}"#),
];

const HEADER: &str = "{{- /* Written by `cargo xtask codegen` from crates/access. Do not edit. */}}\n";

/// The text of each file in `templates/generated`, by the file's name.
pub(crate) fn files() -> anyhow::Result<BTreeMap<String, String>> {
    let edge = |kube_edge, condition: &str| {
        let condition = format!("eq (include \"larder.kubeEdge\" .) \"{condition}\"");
        (condition, settings(true, kube_edge))
    };
    let edges = [
        edge(KubeEdge::Absent, "Absent"),
        edge(KubeEdge::NodeIdentity, "Node"),
        edge(KubeEdge::CloudCore, "CloudCore"),
    ];
    let gates = [
        (
            "include \"larder.servesJobs\" .".to_owned(),
            settings(true, KubeEdge::Absent),
        ),
        ("true".to_owned(), settings(false, KubeEdge::Absent)),
    ];
    let usual = settings(true, KubeEdge::Absent);
    let files = [
        ("controller.yaml", cases(&gates, "10-controller.yaml")?),
        (
            "warm-workloads.yaml",
            only_if(
                ".Values.controller.warmWorkloads",
                &plain(&larder_access::warm_workloads(&usual))?,
            ),
        ),
        (
            "node-gate.yaml",
            only_if(
                ".Values.controller.nodeGate.enabled",
                &plain(&larder_access::node_gate(&usual))?,
            ),
        ),
        ("agent.yaml", cases(&edges, "20-agent.yaml")?),
        (
            "policy.yaml",
            only_if(
                "include \"larder.hasPolicy\" .",
                &cases(&edges, "30-agent-own-node.yaml")?,
            ),
        ),
        (
            "users.yaml",
            only_if(".Values.rbac.aggregate", &plain(&manifest(&usual, "40-users.yaml")?)?),
        ),
        (
            "installer.yaml",
            only_if(
                ".Values.crds.install",
                &hook("pre-install,pre-upgrade", larder_access::installer(&usual))?,
            ),
        ),
        (
            "uninstaller.yaml",
            only_if(
                ".Values.uninstall.cleanUp",
                &hook("pre-delete", larder_access::uninstaller(&usual))?,
            ),
        ),
    ];
    Ok(files
        .into_iter()
        .map(|(name, text)| (name.to_owned(), format!("{HEADER}{text}")))
        .collect())
}

fn settings(image_pull_jobs: bool, kube_edge: KubeEdge) -> Settings {
    Settings {
        namespace: NAMESPACE.to_owned(),
        image_pull_jobs,
        kube_edge,
    }
}

fn manifest(settings: &Settings, file: &str) -> anyhow::Result<Vec<Value>> {
    larder_access::manifests(settings)
        .into_iter()
        .find(|manifest| manifest.file == file)
        .map(|manifest| manifest.objects)
        .with_context(|| format!("larder-access writes no {file}"))
}

/// Objects that are the same in every case stand there once, the others inside conditions.
fn cases(cases: &[(String, Settings)], file: &str) -> anyhow::Result<String> {
    let mut order: Vec<String> = Vec::new();
    let mut found: BTreeMap<String, Vec<(&str, Value)>> = BTreeMap::new();
    for (condition, settings) in cases {
        for object in manifest(settings, file)? {
            let identity = format!("{} {}", object["kind"], object["metadata"]["name"]);
            if !order.contains(&identity) {
                order.push(identity.clone());
            }
            found.entry(identity).or_default().push((condition, object));
        }
    }
    let mut text = String::new();
    for identity in order {
        let variants = &found[&identity];
        let same = variants.len() == cases.len() && variants.iter().all(|(_, object)| *object == variants[0].1);
        if same {
            text += &document(&variants[0].1)?;
            continue;
        }
        for (number, (condition, object)) in variants.iter().enumerate() {
            let word = if number == 0 { "if" } else { "else if" };
            write!(text, "{{{{- {word} {condition} }}}}\n{}", document(object)?)?;
        }
        text += "{{- end }}\n";
    }
    Ok(text)
}

fn only_if(condition: &str, text: &str) -> String {
    format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n")
}

fn plain(objects: &[Value]) -> anyhow::Result<String> {
    objects.iter().map(document).collect()
}

/// Objects that are there only while the hook's job runs.
fn hook(event: &str, objects: Vec<Value>) -> anyhow::Result<String> {
    let annotated = objects.into_iter().map(|mut object| {
        object["metadata"]["annotations"] = json!({
            "helm.sh/hook": event,
            "helm.sh/hook-weight": "-10",
            "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
        });
        object
    });
    plain(&annotated.collect::<Vec<_>>())
}

/// One object as a template.
fn document(object: &Value) -> anyhow::Result<String> {
    let component = match object["metadata"]["name"].as_str() {
        Some(CONTROLLER) => "controller",
        _ => "agent",
    };
    let of_a_component = is_account_of_a_component(object);
    let mut object = with_placeholders(object)?;
    let annotations = object["metadata"]
        .as_object_mut()
        .and_then(|metadata| metadata.remove("annotations"));
    let annotations = match annotations {
        Some(annotations) => dict(&annotations),
        None if of_a_component => format!(
            "(include \"larder.overlaid\" (list .Values.serviceAccount.annotations \
             .Values.{component}.serviceAccount.annotations) | fromYaml)"
        ),
        None => "dict".to_owned(),
    };
    let mut text = "---\n".to_owned();
    for line in serde_saphyr::to_string(&object)?.lines() {
        if let Some(indent) = line.find("app.kubernetes.io/name: larder") {
            let before = &line[..indent];
            writeln!(
                text,
                "{before}{{{{- include \"larder.labels\" . | nindent {indent} }}}}"
            )?;
            continue;
        }
        let templated = EXPRESSIONS
            .iter()
            .fold(line.to_owned(), |line, (placeholder, expression)| {
                line.replace(placeholder, expression)
            });
        text += &templated;
        text.push('\n');
        if line == "metadata:" {
            writeln!(
                text,
                "  {{{{- with include \"larder.annotations\" (list . {annotations}) }}}}"
            )?;
            text += "  {{- . | nindent 2 }}\n  {{- end }}\n";
        }
    }
    if of_a_component {
        return Ok(only_if(&format!(".Values.{component}.serviceAccount.create"), &text));
    }
    Ok(text)
}

/// The ServiceAccounts of hooks are always created, because the hooks delete them.
fn is_account_of_a_component(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str();
    object["kind"] == "ServiceAccount" && [Some(CONTROLLER), Some(AGENT)].contains(&name)
}

/// Annotations as an expression of the template language.
fn dict(annotations: &Value) -> String {
    let pairs = annotations.as_object().into_iter().flatten();
    let pairs: Vec<String> = pairs.map(|(key, value)| format!("\"{key}\" {value}")).collect();
    format!("(dict {})", pairs.join(" "))
}

/// The object with placeholders for the names that depend on values. The policy keeps its name, and so does the Lease in
/// the rules: each exists once in a cluster, and other programs look for it.
fn with_placeholders(object: &Value) -> anyhow::Result<Value> {
    let controller = format!("system:serviceaccount:{NAMESPACE}:");
    let text = object.to_string().replace(
        &format!("{controller}{CONTROLLER}"),
        &format!("{controller}{CONTROLLER_ACCOUNT}"),
    );
    let mut object: Value = serde_json::from_str(&text)?;
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "ServiceAccount" {
        rename(&mut object["metadata"]["name"], account);
    } else if !kind.starts_with("ValidatingAdmissionPolicy") {
        rename(&mut object["metadata"]["name"], prefixed);
    }
    if let Some(reference) = object.get_mut("roleRef") {
        rename(&mut reference["name"], prefixed);
    }
    for subject in objects_in(&mut object, "subjects") {
        if subject["kind"] == "ServiceAccount" {
            rename(&mut subject["name"], account);
        }
    }
    for rule in objects_in(&mut object, "rules") {
        if rule["resources"] == json!(["deployments/scale"]) {
            objects_in(rule, "resourceNames").for_each(|name| rename(name, prefixed));
        }
        if rule["resources"] == json!(["serviceaccounts"]) {
            objects_in(rule, "resourceNames").for_each(|name| rename(name, account));
        }
    }
    Ok(object)
}

fn objects_in<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

fn rename(name: &mut Value, to: fn(&str) -> String) {
    if let Some(renamed) = name.as_str().map(to) {
        *name = json!(renamed);
    }
}

fn account(name: &str) -> String {
    match name {
        CONTROLLER => CONTROLLER_ACCOUNT.to_owned(),
        AGENT => AGENT_ACCOUNT.to_owned(),
        hook => prefixed(hook),
    }
}

/// The name with the prefix of the release in place of our own.
fn prefixed(name: &str) -> String {
    name.strip_prefix("larder-")
        .map_or_else(|| name.to_owned(), |rest| format!("{FULLNAME}-{rest}"))
}
