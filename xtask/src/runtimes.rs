//! `cargo xtask runtimes`: the table of docs/runtimes.md, from what the tests of crates/runtime saw.
//!
//! Each of those tests leaves a file, `target/tmp/runtimes/<runtime>/<case>`. A table is made of a complete set alone, so
//! that no cell can outlive the test behind it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;

/// Folder of the results, and how the table calls the runtime.
const RUNTIMES: [(&str, &str); 5] = [
    ("containerd-1.6", "containerd 1.6 (Debian 12)"),
    ("containerd-1.7", "containerd 1.7.28"),
    ("containerd-2", "containerd 2.4.2"),
    ("cri-o", "CRI-O 1.34.0"),
    ("docker", "Docker 20.10 (Debian 12) with cri-dockerd 0.3.14"),
];

/// File of the result, and how the table calls the case.
const CASES: [(&str, &str); 16] = [
    ("version", "reports itself as"),
    ("tag", "pull by tag"),
    ("digest", "pull by digest"),
    ("private", "private registry"),
    ("mirror", "mirror set up in the runtime"),
    ("sandbox-config", "`sandboxConfig`"),
    ("present", "image that is present: recognised, not fetched again"),
    ("removal", "image that others remove: noticed, and pulled again"),
    ("missing-tag", "missing tag, repository or digest: reason"),
    ("wrong-password", "wrong or no password: reason"),
    ("disk-full", "disk full: reason, and the next pull works"),
    ("cancellation", "cancelled pull stops in the runtime"),
    (
        "killed",
        "runtime killed during a pull: reason, and the next pull works",
    ),
    ("progress", "bytes of a running pull"),
    ("pins", "pins"),
    ("aliases", "aliases"),
];

const PAGE: &str = "docs/runtimes.md";
const BEGIN: &str = "<!-- runtimes: begin -->\n";
const END: &str = "<!-- runtimes: end -->";

#[derive(Args)]
pub(crate) struct RuntimesArguments {
    /// Change nothing; fail if the table says something else
    #[arg(long)]
    check: bool,

    /// Where cargo builds, and the tests leave what they saw
    #[arg(long, env = "CARGO_TARGET_DIR", value_name = "DIR", default_value = "target")]
    target_dir: PathBuf,
}

pub(crate) fn run(root: &Path, arguments: &RuntimesArguments) -> anyhow::Result<()> {
    let page = root.join(PAGE);
    let found = fs::read_to_string(&page).with_context(|| format!("reading {PAGE}"))?;
    let results = root.join(&arguments.target_dir).join("tmp/runtimes");
    let wanted = with_table(&found, &table(&results)?)?;
    if !arguments.check {
        return fs::write(&page, wanted).with_context(|| format!("writing {PAGE}"));
    }
    ensure!(
        found == wanted,
        "the table in {PAGE} is not what the tests saw; run `cargo xtask runtimes`, look at the change and commit it"
    );
    Ok(())
}

fn with_table(page: &str, table: &str) -> anyhow::Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.with_context(|| format!("{PAGE} has no place for the table"))?;
    Ok(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

/// What a runtime cannot do stands as a dash with the number of a note; equal notes stand once.
fn table(results: &Path) -> anyhow::Result<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut lines = vec![
        row("", &RUNTIMES.map(|(_, title)| title.to_owned())),
        row("---", &RUNTIMES.map(|_| "---".to_owned())),
    ];
    for (case, title) in CASES {
        let mut cells = Vec::new();
        for (runtime, _) in RUNTIMES {
            let saw = result(results, runtime, case)?;
            cells.push(match saw.strip_prefix("no: ") {
                None => saw,
                Some(why) => format!("– ({})", number(&mut notes, why)),
            });
        }
        lines.push(row(title, &cells));
    }
    let notes = notes
        .iter()
        .enumerate()
        .map(|(index, note)| format!("{}. {note}", index + 1));
    Ok(format!(
        "{}\n\n{}\n",
        lines.join("\n"),
        notes.collect::<Vec<_>>().join("\n")
    ))
}

fn number(notes: &mut Vec<String>, note: &str) -> usize {
    if let Some(known) = notes.iter().position(|known| known == note) {
        return known + 1;
    }
    notes.push(note.to_owned());
    notes.len()
}

fn row(title: &str, cells: &[String]) -> String {
    format!("| {title} | {} |", cells.join(" | "))
}

fn result(results: &Path, runtime: &str, case: &str) -> anyhow::Result<String> {
    let file = results.join(runtime).join(case);
    let Ok(text) = fs::read_to_string(&file) else {
        bail!(
            "no test has left {}: run `cargo nextest run --package larder-runtime --test runtimes` to its end first",
            file.display()
        );
    };
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (runtime, _) in RUNTIMES {
            fs::create_dir(folder.path().join(runtime)).unwrap();
            for (case, _) in CASES {
                let saw = match (runtime, case) {
                    ("docker", "pins" | "aliases") => "no: It has none.",
                    ("cri-o", "pins") => "no: Not yet.",
                    _ => "yes",
                };
                fs::write(folder.path().join(runtime).join(case), format!("{saw}\n")).unwrap();
            }
        }
        folder
    }

    #[test]
    fn notes_stand_once() {
        let table = table(complete().path()).unwrap();
        assert!(
            table.contains("| pins | yes | yes | yes | – (1) | – (2) |\n"),
            "{table}"
        );
        assert!(
            table.contains("| aliases | yes | yes | yes | yes | – (2) |\n"),
            "{table}"
        );
        assert!(table.ends_with("\n\n1. Not yet.\n2. It has none.\n"), "{table}");
    }

    #[test]
    fn a_missing_result_is_an_error() {
        let folder = complete();
        fs::remove_file(folder.path().join("cri-o/digest")).unwrap();
        let error = table(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cri-o/digest"), "{error}");
    }

    #[test]
    fn what_stands_around_the_table_stays() {
        let page = format!("# Title\n{BEGIN}old\n{END}\nThe end.\n");
        let once = with_table(&page, "new\n").unwrap();
        assert_eq!(once, format!("# Title\n{BEGIN}\nnew\n\n{END}\nThe end.\n"));
        assert_eq!(with_table(&once, "new\n").unwrap(), once);
        assert!(with_table("nothing", "new").is_err());
    }
}
