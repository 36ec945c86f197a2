//! What the documents name exists: files and functions in ARCHITECTURE.md, tests in docs/security.md. What they promise of the code
//! holds: the engine names no kind of job.

use std::fs::read_to_string;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_stop_in_the_life_of_a_job_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, section) = page.split_once("## The life of a job").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut stops = 0;
    for row in section
        .lines()
        .filter(|row| row.starts_with("| ") && row.contains("`crates/"))
    {
        let mut names = row.split('`').skip(1).step_by(2);
        let (file, function) = (names.next().unwrap(), names.next().unwrap());
        let code = read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let defined = ["(", "<"]
            .iter()
            .any(|next| code.contains(&format!("fn {function}{next}")));
        assert!(defined, "{file} has no function {function}");
        stops += 1;
    }
    assert!((6..=12).contains(&stops), "{stops} stops");
}

#[test]
fn the_code_map_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            page.contains(&format!("\n| `{name}` |")),
            "ARCHITECTURE.md does not mention crates/{name}"
        );
    }
}

#[test]
fn every_test_that_the_security_model_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = read_to_string(root.join("docs/security.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let is_test = |name: &&str| {
        name.contains('_')
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
    };
    let mut tests = 0;
    for name in quoted.filter(is_test) {
        let found = Command::new("grep")
            .args(["--recursive", "--quiet", "--include=*.rs", &format!("fn {name}")])
            .args(["crates", "bins", "tests"])
            .current_dir(root)
            .status();
        assert!(found.unwrap().success(), "no test is called {name}");
        tests += 1;
    }
    assert!(20 <= tests, "{tests} tests");
}

/// Words of the job kinds and of the software that they come from.
const WORDS_OF_KINDS: [&str; 6] = [
    "imagepulljob",
    "imageprepulljob",
    "imagelistpulljob",
    "kruise",
    "kubeedge",
    "cloudcore",
];

/// Files and directories of the planner that may name kinds, by the beginning of their path, and why.
const MAY_NAME_KINDS: [(&str, &str); 4] = [
    ("crates/planner/src/kruise", "the kinds of OpenKruise"),
    ("crates/planner/src/kubeedge", "the kind of KubeEdge"),
    ("crates/planner/src/lib.rs", "declares the modules of the kinds"),
    ("crates/planner/src/workload", "writes jobs for workloads, as people do"),
];

#[test]
fn the_engine_names_no_kind_of_job() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = vec![root.join("crates/controller/src/engine.rs")];
    files.extend(source_files(&root.join("crates/controller/src/engine")).unwrap());
    files.extend(source_files(&root.join("crates/planner/src")).unwrap());
    let mut checked = 0;
    for file in files {
        let name = file.strip_prefix(root).unwrap().to_str().unwrap();
        let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
        let is_allowed = MAY_NAME_KINDS.iter().any(|(allowed, _)| name.starts_with(allowed));
        if is_test || is_allowed {
            continue;
        }
        let code = read_to_string(&file).unwrap();
        let named = kinds_named_in(&code);
        assert!(
            named.is_empty(),
            "{name} names kinds of jobs, which belongs into planner::kruise, planner::kubeedge or controller::kinds: {named:?}"
        );
        checked += 1;
    }
    assert!(40 <= checked, "{checked} files");
}

#[test]
fn a_kind_is_found_in_code_and_not_in_comments_or_tests() {
    let code = "/// Not an ImagePullJob.\nlet job = KRUISE_FINALIZER; // of OpenKruise\n#[cfg(test)]\nmod tests;\n\
                const TEXT: &str = \"ImagePrePullJob\";\n#[cfg(test)]\nmod tests {\n    const KIND: &str = \"ImagePullJob\";\n}\n";
    assert_eq!(
        kinds_named_in(code),
        [
            "let job = KRUISE_FINALIZER; ",
            "const TEXT: &str = \"ImagePrePullJob\";"
        ]
    );
}

/// The lines of code that name a kind of job, without comments and without the tests at the end of the file.
fn kinds_named_in(code: &str) -> Vec<&str> {
    let begins_tests = |[attribute, module]: &[&str; 2]| {
        attribute.trim() == "#[cfg(test)]" && module.contains("mod ") && module.ends_with('{')
    };
    let lines: Vec<&str> = code.lines().collect();
    let end = lines.array_windows().position(begins_tests).unwrap_or(lines.len());
    let code = lines[..end]
        .iter()
        .map(|line| line.split_once("//").map_or(*line, |(code, _)| code));
    let names_kind = |line: &&str| {
        let line = line.to_ascii_lowercase();
        WORDS_OF_KINDS.iter().any(|word| line.contains(word))
    };
    code.filter(names_kind).collect()
}

/// Every Rust file of a directory, at any depth.
fn source_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(source_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}
