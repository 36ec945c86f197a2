//! The chart's README: a table of all values, from the comments in `values.yaml`.
//!
//! The comment directly above a value describes it, and everything below it that has no comment of its own. A value that no
//! comment describes is an error.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

const INTRODUCTION: &str = "\
# The Larder chart

<!-- Written by `cargo xtask codegen` from values.yaml. Do not edit. -->

Installs the controller, the agents and the CRDs. [docs/install.md](../../docs/install.md) describes the installation step
by step, [docs/upgrade-and-uninstall.md](../../docs/upgrade-and-uninstall.md) upgrades and removal, and
[docs/migrate-from-openkruise.md](../../docs/migrate-from-openkruise.md) maps the values of OpenKruise's chart.

```
helm install larder deploy/chart --namespace larder-system --create-namespace --wait
helm test larder --namespace larder-system
```

The folder [values](values) contains sets for K3s, RKE2, k0s, MicroK8s, CRI-O and KubeEdge. Unknown values are rejected.
";

/// A value and its comment.
#[derive(Debug, PartialEq)]
struct Described {
    section: String,
    path: Vec<String>,
    text: String,
}

pub(crate) fn text(root: &Path) -> anyhow::Result<String> {
    let path = root.join("deploy/chart/values.yaml");
    let values = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    tables(&values)
}

fn tables(values: &str) -> anyhow::Result<String> {
    let described = described(values);
    let values: Value = serde_saphyr::from_str(values).context("reading values.yaml")?;
    let mut undescribed = Vec::new();
    find_undescribed(&values, &mut Vec::new(), &described, &mut undescribed);
    if !undescribed.is_empty() {
        bail!(
            "these values have no comment in deploy/chart/values.yaml: {}",
            undescribed.join(", ")
        );
    }
    let mut text = INTRODUCTION.to_owned();
    let mut section = "";
    for value in &described {
        let name = value.path.join(".");
        if described.iter().any(|other| is_below(other, value)) {
            bail!(
                "{name} in deploy/chart/values.yaml has a comment, and so has a value below it: describe one of them"
            );
        }
        if value.section != section {
            section = &value.section;
            write!(
                text,
                "\n## {section}\n\n| value | default | description |\n|---|---|---|\n"
            )?;
        }
        let default = value.path.iter().fold(&values, |value, key| &value[key]);
        writeln!(text, "| `{name}` | `{default}` | {} |", value.text.replace('|', "\\|"))?;
    }
    Ok(text)
}

fn is_below(lower: &Described, upper: &Described) -> bool {
    lower.path.len() > upper.path.len() && lower.path.starts_with(&upper.path)
}

/// All values with a comment, in the order of the file.
fn described(values: &str) -> Vec<Described> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut above: Vec<(usize, String)> = Vec::new();
    for line in values.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(title) = trimmed.strip_prefix("# --- ") {
            title.trim_end_matches('-').trim().clone_into(&mut section);
            comment.clear();
        } else if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
        } else if let Some((key, _)) = trimmed.split_once(':').filter(|_| !trimmed.starts_with("- ")) {
            above.retain(|(outer, _)| *outer < indent);
            above.push((indent, key.to_owned()));
            if !comment.is_empty() {
                found.push(Described {
                    section: section.clone(),
                    path: above.iter().map(|(_, key)| key.clone()).collect(),
                    text: comment.join(" "),
                });
            }
            comment.clear();
        } else {
            comment.clear();
        }
    }
    found
}

fn find_undescribed(value: &Value, path: &mut Vec<String>, described: &[Described], missing: &mut Vec<String>) {
    if described.iter().any(|one| one.path == *path) {
        return;
    }
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            for (key, value) in fields {
                path.push(key.clone());
                find_undescribed(value, path, described, missing);
                path.pop();
            }
        }
        None => missing.push(path.join(".")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = "\
# --- First ---------

# How many,
# at least one.
count: 1

outer:
  # A | B.
  inner:
    a: {}
    b: [1]

# --- Second ---------

# Words.
words: \"\"
";

    #[test]
    fn every_value_is_in_the_table_of_its_section_with_its_default() {
        let text = tables(VALUES).unwrap();
        let tables = text.strip_prefix(INTRODUCTION).unwrap();
        assert_eq!(
            tables,
            "\n## First\n\n| value | default | description |\n|---|---|---|\n\
             | `count` | `1` | How many, at least one. |\n\
             | `outer.inner` | `{\"a\":{},\"b\":[1]}` | A \\| B. |\n\
             \n## Second\n\n| value | default | description |\n|---|---|---|\n\
             | `words` | `\"\"` | Words. |\n"
        );
    }

    #[test]
    fn a_value_without_a_comment_is_an_error() {
        let error = tables(&VALUES.replace("# Words.\n", "")).unwrap_err();
        assert!(error.to_string().ends_with("values.yaml: words"), "{error}");
        let error = tables(&VALUES.replace("  # A | B.\n", "")).unwrap_err();
        assert!(error.to_string().ends_with("outer.inner.a, outer.inner.b"), "{error}");
    }

    #[test]
    fn a_comment_above_another_is_an_error() {
        let error = tables(&VALUES.replace("outer:\n", "# Outer.\nouter:\n")).unwrap_err();
        assert!(error.to_string().starts_with("outer in "), "{error}");
    }
}
