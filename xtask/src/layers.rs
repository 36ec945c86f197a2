//! `cargo xtask layers`: proves the arrows in ARCHITECTURE.md from `cargo metadata`.
//!
//! Two things are checked. A crate of ours may depend on those that stand below it, and on no other. And what must stay
//! pure cannot reach a crate that does IO, reads a clock or draws random numbers, by however many steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// What each crate of ours may use. A crate that is not listed may not exist: add it here, and say in ARCHITECTURE.md why.
const ALLOWED: &[(&str, &[&str])] = &[
    ("larder-model", &[]),
    ("larder-api", &["larder-model"]),
    ("larder-access", &["larder-api"]),
    ("larder-planner", &["larder-model", "larder-api"]),
    ("larder-private-files", &[]),
    ("larder-seal", &["larder-model"]),
    ("larder-registry", &["larder-model"]),
    ("larder-runtime-proto", &[]),
    (
        "larder-runtime",
        &["larder-model", "larder-registry", "larder-runtime-proto"],
    ),
    ("larder-telemetry", &["larder-model"]),
    ("larder-localplane", &["larder-api", "larder-private-files"]),
    (
        "larder-agent",
        &[
            "larder-private-files",
            "larder-model",
            "larder-api",
            "larder-planner",
            "larder-seal",
            "larder-registry",
            "larder-runtime",
            "larder-telemetry",
        ],
    ),
    (
        "larder-controller",
        &[
            "larder-model",
            "larder-api",
            "larder-access",
            "larder-planner",
            "larder-seal",
            "larder-registry",
            "larder-telemetry",
        ],
    ),
    (
        "larder-controller-bin",
        &["larder-api", "larder-controller", "larder-telemetry"],
    ),
    (
        "larder-cli",
        &[
            "larder-model",
            "larder-api",
            "larder-planner",
            "larder-agent",
            "larder-controller",
            "larder-registry",
            "larder-seal",
            "larder-access",
            "larder-runtime",
            "larder-telemetry",
            "larder-localplane",
            "larder-sample-images",
            "larder-embedded",
        ],
    ),
    (
        "larder-embedded",
        &[
            "larder-private-files",
            "larder-model",
            "larder-api",
            "larder-registry",
            "larder-runtime",
            "larder-seal",
            "larder-telemetry",
            "larder-localplane",
            "larder-agent",
            "larder-controller",
        ],
    ),
    ("larder", &["larder-cli"]),
    (
        "larder-agent-bin",
        &[
            "larder-agent",
            "larder-model",
            "larder-registry",
            "larder-runtime",
            "larder-seal",
            "larder-telemetry",
        ],
    ),
    ("larder-sample-images", &[]),
    ("larder-testkit", &["larder-sample-images"]),
    (
        "larder-api-semantics",
        &["larder-api", "larder-testkit", "larder-localplane"],
    ),
    ("larder-cluster", &["larder-testkit"]),
    (
        "larder-simulate",
        &[
            "larder-model",
            "larder-api",
            "larder-planner",
            "larder-controller",
            "larder-seal",
        ],
    ),
    ("larder-chart", &[]),
    ("larder-e2e", &["larder-api", "larder-testkit"]),
    (
        "larder-scale",
        &[
            "larder-model",
            "larder-api",
            "larder-planner",
            "larder-agent",
            "larder-runtime",
            "larder-seal",
            "larder-telemetry",
            "larder-testkit",
        ],
    ),
    ("xtask", &["larder-access", "larder-api"]),
];

/// Crates in which every decision is a function of values.
const PURE: &[&str] = &["larder-model", "larder-api", "larder-access", "larder-planner"];

/// What a pure crate must not reach: runtimes, clients, gRPC, random numbers.
const IMPURE: &[&str] = &[
    "tokio",
    "kube-client",
    "kube-runtime",
    "reqwest",
    "hyper",
    "tonic",
    "rand",
    "getrandom",
    "redb",
    "rustix",
    "mio",
];

pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let members = members(root)?;
    let mut wrong = Vec::new();
    for (name, dependencies) in &members {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            wrong.push(format!("{name} is not in the table of xtask/src/layers.rs"));
            continue;
        };
        let ours = dependencies
            .iter()
            .filter(|dependency| members.contains_key(*dependency));
        wrong.extend(
            ours.filter(|dependency| !allowed.contains(&dependency.as_str()))
                .map(|dependency| format!("{name} may not depend on {dependency}")),
        );
    }
    for name in PURE.iter().filter(|name| members.contains_key(**name)) {
        let reached = reached_from(root, name)?;
        wrong.extend(
            IMPURE.iter().filter(|impure| reached.contains(**impure)).map(|impure| {
                format!("{name} must stay pure, but reaches {impure} (cargo tree -p {name} -i {impure})")
            }),
        );
    }
    ensure!(wrong.is_empty(), "the layers do not hold:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Crates of the workspace with their ordinary dependencies; those for tests do not count.
fn members(root: &Path) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let output = cargo(root, &["metadata", "--format-version", "1", "--no-deps", "--locked"])?;
    let metadata: Value = serde_json::from_str(&output).context("reading cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata without packages")?;
    let name_of = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let ordinary = |package: &Value| {
        let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
        dependencies
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .map(name_of)
            .collect()
    };
    Ok(packages
        .iter()
        .map(|package| (name_of(package), ordinary(package)))
        .collect())
}

/// Every crate that `name` links, with the features that it alone asks for.
fn reached_from(root: &Path, name: &str) -> anyhow::Result<BTreeSet<String>> {
    let tree = cargo(
        root,
        &[
            "tree",
            "--locked",
            "--package",
            name,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ],
    )?;
    Ok(tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = crate::cargo()
        .args(arguments)
        .current_dir(root)
        .output()
        .context("starting cargo")?;
    if !output.status.success() {
        bail!(
            "cargo {} failed:\n{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
