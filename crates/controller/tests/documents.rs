//! What docs/kubeedge.md names as proof exists.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all functions in the Rust files below a folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1);
            found.extend(names.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
        }
    }
}

#[test]
fn every_test_that_the_list_of_defects_names_is_there() {
    let text = fs::read_to_string(root().join("docs/kubeedge.md")).unwrap();
    let (_, table) = text.split_once("| in KubeEdge | shown by |").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(40 <= rows.len(), "{} rows", rows.len());
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests"] {
        functions(&root().join(folder), &mut known);
    }
    for row in rows {
        let proof = row.trim_end_matches(" |").rsplit_once(" | ").unwrap().1;
        let named = proof.split('`').skip(1).step_by(2);
        let tests: Vec<&str> = named
            .filter(|name| name.contains('_') || *name == "overriders")
            .collect();
        let same = proof.starts_with("the same here");
        assert!(same || !tests.is_empty(), "nothing shows: {row}");
        let missing: Vec<&&str> = tests.iter().filter(|name| !known.contains(**name)).collect();
        assert!(missing.is_empty(), "{missing:?} of: {row}");
    }
}
