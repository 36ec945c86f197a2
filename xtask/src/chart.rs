//! The part of the chart's templates that comes from the rules in `larder-access`, so that the rights in the chart and
//! those that the tests of that crate try out are the same.
//!
//! An object that differs with a value of the chart is written once per case, inside the template's conditions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use larder_access::{KubeEdge, Settings};
use serde_json::{Value, json};

/// Stands for the release's namespace until the text is made a template.
const NAMESPACE: &str = "namespace-of-the-release";

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
    let yaml = serde_saphyr::to_string(object)?;
    let mut text = "---\n".to_owned();
    for line in yaml.lines() {
        if let Some(indent) = line.find("app.kubernetes.io/name: larder") {
            writeln!(
                text,
                "{}{{{{- include \"larder.labels\" . | nindent {indent} }}}}",
                &line[..indent]
            )?;
            continue;
        }
        text += &line.replace(NAMESPACE, "{{ include \"larder.namespace\" . }}");
        text.push('\n');
    }
    if object["kind"] == "ServiceAccount" && object["metadata"]["annotations"].is_null() {
        text += "{{- with .Values.serviceAccount.annotations }}\n  annotations:\n    {{- toYaml . | nindent 4 }}\n{{- end }}\n";
    }
    Ok(text)
}
