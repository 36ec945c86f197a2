//! Alert rules and dashboard, as Prometheus reads them. That the series exist is checked where pods show them (`life`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use larder_cluster::root;
use larder_testkit::promtool;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    root().join("deploy/monitoring")
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn rules() -> Vec<Value> {
    let groups = yaml(&folder().join("alerts.yaml"));
    groups["groups"][0]["rules"].as_array().unwrap().clone()
}

async fn accepted(arguments: &[&str], file: &Path) {
    let arguments = arguments.iter().map(AsRef::as_ref).chain([file.as_os_str()]);
    let output = promtool(arguments).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn prometheus_accepts_the_rules_and_each_alert_fires_when_it_should() {
    accepted(
        &["check", "rules", "--lint=all", "--lint-fatal"],
        &folder().join("alerts.yaml"),
    )
    .await;
    accepted(&["test", "rules"], &folder().join("alerts_test.yaml")).await;
    let tried = std::fs::read_to_string(folder().join("alerts_test.yaml")).unwrap();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        let fires = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels");
        assert!(tried.contains(&fires), "no test lets {name} fire");
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let books = root().join("docs/runbooks");
    let index = std::fs::read_to_string(books.join("README.md")).unwrap();
    let mut named: Vec<String> = Vec::new();
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        let runbook = format!("docs/runbooks/{name}.md");
        assert_eq!(rule["annotations"]["runbook"], json!(runbook));
        let text = std::fs::read_to_string(root().join(&runbook)).unwrap();
        assert!(text.starts_with(&format!("# {name}: ")), "{runbook}");
        assert!(
            index.contains(&format!("[{name}]({name}.md)")),
            "{name} is not in the index"
        );
        named.push(format!("{name}.md"));
    }
    for file in std::fs::read_dir(books).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        assert!(
            file == "README.md" || named.contains(&file),
            "{file} belongs to no alert"
        );
    }
}

#[test]
fn the_rules_for_the_prometheus_operator_are_the_same() {
    let object = yaml(&folder().join("prometheusrule.yaml"));
    assert_eq!(object["spec"], yaml(&folder().join("alerts.yaml")));
}

/// A dashboard that does not work shows empty panels and no error: Prometheus itself reads every question in it.
#[tokio::test]
async fn prometheus_understands_every_question_of_the_dashboard() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(folder().join("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let rows: Vec<_> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|row| &row["title"])
        .collect();
    assert_eq!(rows, ["Fleet", "Jobs", "Failures", "Pull rates", "API and controller"]);
    let questions: Vec<_> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default())
        .map(|target| {
            let question = target["expr"].as_str().unwrap();
            question
                .replace("$__rate_interval", "5m")
                .replace("$__range", "3h")
                .replace("$node", ".*")
        })
        .collect();
    assert!(
        questions.len() > 20 && !questions.iter().any(|question| question.contains('$')),
        "{questions:?}"
    );
    let rules: Vec<_> = questions
        .iter()
        .enumerate()
        .map(|(number, question)| json!({ "record": format!("panel:{number}"), "expr": question }))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.json");
    std::fs::write(
        &file,
        json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string(),
    )
    .unwrap();
    accepted(&["check", "rules"], &file).await;
}
