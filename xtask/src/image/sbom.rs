//! What a program is made of, as CycloneDX JSON: every crate that is linked into it, with its licence and checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::Arch;
use super::layer::digest;

/// The list for one package of the workspace.
pub(super) fn of(root: &Path, package: &str, arch: Arch) -> anyhow::Result<Vec<u8>> {
    let output = crate::cargo()
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", arch.target()])
        .current_dir(root)
        .output()
        .context("starting cargo metadata")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let checksums = checksums(&fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?);
    document(&metadata, &checksums, package)
}

fn document(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    package: &str,
) -> anyhow::Result<Vec<u8>> {
    let packages: BTreeMap<&str, &Value> = array(&metadata["packages"])
        .map(|package| (text(&package["id"]), package))
        .collect();
    let top = packages
        .values()
        .find(|found| found["name"] == package)
        .with_context(|| format!("{package} is not in the workspace"))?;
    let links = linked(metadata, text(&top["id"]));
    let reference = |id: &str| purl(packages[id]);
    let mut components: Vec<Value> = links
        .keys()
        .filter(|id| **id != text(&top["id"]))
        .map(|id| component(packages[id], checksums))
        .collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    let mut dependencies: Vec<Value> = links
        .iter()
        .map(|(id, on)| {
            let on: BTreeSet<String> = on.iter().map(|id| reference(id)).collect();
            json!({ "ref": reference(id), "dependsOn": on })
        })
        .collect();
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    let mut program = component(top, checksums);
    program["type"] = json!("application");
    let mut bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies,
    });
    bom["serialNumber"] = json!(serial_number(&serde_json::to_vec(&bom)?));
    let mut written = serde_json::to_vec_pretty(&bom)?;
    written.push(b'\n');
    Ok(written)
}

/// Every crate that is reached without those for tests and for building, with what it uses.
fn linked<'a>(metadata: &'a Value, top: &'a str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let used: BTreeMap<&str, Vec<&str>> = array(&metadata["resolve"]["nodes"])
        .map(|node| {
            let ordinary = array(&node["deps"])
                .filter(|dependency| array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null()))
                .map(|dependency| text(&dependency["pkg"]));
            (text(&node["id"]), ordinary.collect())
        })
        .collect();
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut next = vec![top];
    while let Some(id) = next.pop() {
        if found.contains_key(id) {
            continue;
        }
        let on = used.get(id).cloned().unwrap_or_default();
        next.extend(&on);
        found.insert(id, on);
    }
    found
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let purl = purl(package);
    let mut component = json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl });
    if let Some(licence) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

/// Checksums by name and version. The lock file is a list of tables with one key per line.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |table: &str, key: &str| {
        let prefix = format!("{key} = \"");
        let line = table.lines().find_map(|line| line.strip_prefix(prefix.as_str()))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    lock.split("[[package]]")
        .filter_map(|table| {
            let key = (value(table, "name")?, value(table, "version")?);
            Some((key, value(table, "checksum")?))
        })
        .collect()
}

/// A number that follows from the content, in the form that the format asks for.
fn serial_number(content: &[u8]) -> String {
    let hash = digest(content);
    let hex = hash.trim_start_matches("sha256:");
    format!(
        "urn:uuid:{}-{}-5{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
