//! What the documents name exists: files and functions in ARCHITECTURE.md, tests in docs/security.md.

use std::fs::read_to_string;
use std::path::Path;
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
