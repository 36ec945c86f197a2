//! What is missing is named, all of it at once, with the way to get it.

use rstest::rstest;

use crate::machine::{Machine, text};

const ALL: [&str; 6] = ["rust", "lints", "compiler", "go", "debian", "root"];

fn complaints(machine: &Machine, names: &[&str]) -> Vec<String> {
    let output = machine.script("prerequisites", names).output().unwrap();
    let lines: Vec<_> = text(&output.stderr).lines().map(str::to_owned).collect();
    assert_eq!(output.status.success(), lines.is_empty(), "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("missing: ")), "{lines:?}");
    lines
}

fn complete() -> Machine {
    let machine = Machine::bare();
    machine.set_up(&["only", "packages"]);
    machine
}

#[test]
fn a_complete_machine_lacks_nothing() {
    assert_eq!(complaints(&complete(), &ALL), [""; 0]);
}

#[rstest]
#[case::cargo("cargo", "rust", &["Rust: install 1.95", "rustup"])]
#[case::rustfmt("cargo-fmt", "lints", &["rustfmt", "rustup component add rustfmt"])]
#[case::clippy("cargo-clippy", "lints", &["clippy", "rustup component add clippy"])]
#[case::compiler("cc", "compiler", &["C compiler", "apt-get install build-essential"])]
#[case::go("go", "go", &["Go 1.26", "install it"])]
#[case::apt("apt-get", "debian", &["Debian 12", "apt-get is not here"])]
#[case::dpkg("dpkg", "debian", &["Debian 12", "dpkg is not here"])]
fn a_missing_command_is_named(#[case] command: &str, #[case] requirement: &str, #[case] words: &[&str]) {
    let machine = complete();
    machine.uninstall(command);
    for names in [&[requirement][..], &ALL] {
        let lines = complaints(&machine, names);
        assert!(
            lines.len() == 1 && words.iter().all(|word| lines[0].contains(word)),
            "{lines:?}"
        );
    }
}

#[rstest]
#[case::rust("cargo-version", "cargo 1.94.1 (0123456789 2026-01-01)", &["Rust 1.95", "1.94.1", "rustup update"])]
#[case::go("go-version", "go1.9.7", &["Go 1.26", "1.9.7", "newer"])]
#[case::ordinary_user("uid", "1000", &["root", "run make as root"])]
#[case::confined_root("confined", "", &["the right to mount", "--privileged"])]
fn what_does_not_suffice_is_named(#[case] setting: &str, #[case] value: &str, #[case] words: &[&str]) {
    let machine = complete();
    machine.set(setting, value);
    let lines = complaints(&machine, &ALL);
    assert!(
        lines.len() == 1 && words.iter().all(|word| lines[0].contains(word)),
        "{lines:?}"
    );
}

#[test]
fn a_rustup_without_toolchain_is_told_apart() {
    let machine = complete();
    machine.unset("cargo-version");
    assert!(complaints(&machine, &["rust"])[0].contains("rustup default"));
}

#[test]
fn everything_that_is_missing_is_named_at_once() {
    let machine = Machine::bare();
    for command in ["cargo", "cargo-fmt", "go", "apt-get"] {
        machine.uninstall(command);
    }
    machine.set("uid", "1000");
    assert_eq!(complaints(&machine, &ALL).len(), 6, "and the C compiler");
}

#[test]
fn a_step_that_lacks_its_compiler_says_so() {
    let machine = Machine::bare();
    machine.uninstall("go");
    let output = machine.setup(&["only", "pause"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("missing: Go 1.26"),
        "{}",
        text(&output.stderr)
    );
}
