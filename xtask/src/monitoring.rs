//! Copies of the alert rules and the dashboard: inside the chart, which can read no file outside of it, and as an object of
//! the Prometheus Operator.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::codegen::Files;

const RULE: &str = "\
# Written by `cargo xtask codegen` from alerts.yaml. Do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: larder
  labels:
    app.kubernetes.io/name: larder
spec:
";

/// What the chart's templates read, by the file's name.
pub(crate) fn chart_files(root: &Path) -> anyhow::Result<Files> {
    let alerts = format!(
        "# Written by `cargo xtask codegen` from deploy/monitoring. Do not edit.\n{}",
        alerts(root)?
    );
    let dashboard = read(root, "dashboard.json")?;
    Ok([("alerts.yaml", alerts), ("dashboard.json", dashboard)]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text))
        .collect())
}

/// The rules as a PrometheusRule.
pub(crate) fn rule(root: &Path) -> anyhow::Result<String> {
    let indented = |line: &str| {
        if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("  {line}\n")
        }
    };
    let groups: String = alerts(root)?.lines().map(indented).collect();
    Ok(format!("{RULE}{groups}"))
}

/// The rules without the comment above them.
fn alerts(root: &Path) -> anyhow::Result<String> {
    let text = read(root, "alerts.yaml")?;
    let start = text
        .find("groups:")
        .context("deploy/monitoring/alerts.yaml has no groups")?;
    Ok(text[start..].to_owned())
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    let path = root.join("deploy/monitoring").join(file);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
