//! `deploy/manifests`: the chart with its own values, rendered, for people without Helm.
//!
//! Helm itself renders it, in the version that the tests use. What only Helm makes sense of is left out; the CRDs, which
//! a hook brings otherwise, and the namespace stand in front.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;

use crate::codegen::{Files, yaml};

/// What the rendered files are for: from 1.30 on the policy is part of them.
const KUBERNETES: &str = "1.30.0";

const KUSTOMIZATION: &str = "\
# Written by `cargo xtask codegen`. Do not edit; refer to this folder from a kustomization of your own.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- larder.yaml
";

/// Where helm is looked for: in the cache folder of the tests, see `tests/servers/setup`.
#[derive(Args)]
pub(crate) struct HelmArguments {
    #[arg(long, env = "LARDER_CACHE", hide = true)]
    larder_cache: Option<PathBuf>,

    #[arg(long, env = "XDG_CACHE_HOME", hide = true)]
    user_cache: Option<PathBuf>,
}

/// The program.
pub(crate) struct Helm(PathBuf);

impl HelmArguments {
    /// None if it was not built yet.
    pub(crate) fn find(&self, root: &Path) -> anyhow::Result<Option<Helm>> {
        let setup = fs::read_to_string(root.join("tests/servers/setup")).context("reading tests/servers/setup")?;
        let version = setup.lines().find_map(|line| line.strip_prefix("readonly HELM="));
        let version = version.context("tests/servers/setup names no version of helm")?;
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let cache = given(&self.larder_cache)
            .or_else(|| Some(given(&self.user_cache)?.join("larder")))
            .or_else(|| Some(std::env::home_dir()?.join(".cache/larder")));
        let program = cache.map(|cache| cache.join(format!("servers/helm-{version}/helm")));
        Ok(program.filter(|program| program.is_file()).map(Helm))
    }
}

/// The text of each file, by the file's name.
pub(crate) fn files(root: &Path, helm: &Helm) -> anyhow::Result<Files> {
    let mut objects: Vec<Value> = larder_access::manifests(&larder_access::Settings::default())
        .into_iter()
        .filter(|manifest| manifest.file == "00-namespace.yaml")
        .flat_map(|manifest| manifest.objects)
        .collect();
    for crd in larder_api::crds() {
        objects.push(serde_json::to_value(&crd)?);
    }
    let everything = helm.render(root, &["--no-hooks"])?;
    let clean_up = helm.render(
        root,
        &[
            "--show-only=templates/generated/uninstaller.yaml",
            "--show-only=templates/hooks/uninstall.yaml",
        ],
    )?;
    let before = yaml("deploy/chart, crates/api and crates/access", &objects)?;
    let header = "# Written by `cargo xtask codegen` from deploy/chart. Do not edit.\n\
                  # To be run before larder.yaml is deleted; see docs/install.md.\n";
    Ok([
        ("larder.yaml", format!("{before}{everything}")),
        ("uninstall.yaml", format!("{header}{clean_up}")),
        ("kustomization.yaml", KUSTOMIZATION.to_owned()),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), text))
    .collect())
}

impl Helm {
    fn render(&self, root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.0)
            .args(["template", "larder"])
            .arg(root.join("deploy/chart"))
            .args([
                "--namespace",
                larder_api::names::LARDER_NAMESPACE,
                "--kube-version",
                KUBERNETES,
            ])
            .args(arguments)
            .output()
            .with_context(|| format!("starting {}", self.0.display()))?;
        ensure!(
            output.status.success(),
            "helm template failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(without_helm(&String::from_utf8(output.stdout)?))
    }
}

/// Leaves out labels, annotations and comments that speak of a release.
fn without_helm(rendered: &str) -> String {
    const OF_A_RELEASE: [&str; 4] = [
        "helm.sh/",
        "app.kubernetes.io/managed-by: Helm",
        "app.kubernetes.io/instance: ",
        "# Source: ",
    ];
    let is_of_a_release = |line: &&str| OF_A_RELEASE.iter().any(|start| line.trim_start().starts_with(start));
    let lines: Vec<&str> = rendered.lines().filter(|line| !is_of_a_release(line)).collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let deeper = lines.get(number + 1).is_some_and(|next| indent(next) > indent(line));
        if line.trim() == "annotations:" && !deeper {
            continue;
        }
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_of_a_release_is_left_out() {
        let rendered = "---\n# Source: larder/x.yaml\nmetadata:\n  annotations:\n    helm.sh/hook: pre-delete\n  labels:\n    \
                        app.kubernetes.io/name: larder\n    app.kubernetes.io/managed-by: Helm\nspec:\n  annotations:\n    mine: kept\n";
        assert_eq!(
            without_helm(rendered),
            "---\nmetadata:\n  labels:\n    app.kubernetes.io/name: larder\nspec:\n  annotations:\n    mine: kept\n"
        );
    }
}
