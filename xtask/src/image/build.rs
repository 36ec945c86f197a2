//! Static programs, and the commit they are of.
//!
//! Linked against glibc, all of it inside the program: a standard library for musl is in no package registry. Since glibc
//! 2.34 names are looked up without loading libraries at run time, so the image needs none.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// Named, although it is the usual one: what is compiled for the machine that compiles, such as macros, cannot be static.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The commit that an image is of.
pub(super) struct Source {
    /// Its hash, with a mark if files differ from it.
    pub(super) revision: String,
    /// When it was made, in seconds since 1970.
    pub(super) time: u64,
}

impl Source {
    pub(super) fn of(root: &Path) -> anyhow::Result<Self> {
        let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root));
        let changed = !git(&["status", "--porcelain"])?.trim().is_empty();
        let hash = git(&["rev-parse", "HEAD"])?.trim().to_owned();
        let time = git(&["log", "-1", "--format=%ct"])?;
        Ok(Self {
            revision: if changed { format!("{hash}-modified") } else { hash },
            time: time.trim().parse().context("reading the time of the commit")?,
        })
    }
}

/// Builds the packages' programs and gives back the folder where they are.
pub(super) fn build(
    root: &Path,
    target_dir: &Path,
    cargo_home: Option<&Path>,
    profile: &str,
    packages: &[&str],
) -> anyhow::Result<PathBuf> {
    let cargo_home = cargo_home.map(Path::to_owned);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    // Paths that the compilers would write into the programs, for messages of a panic.
    let mut cut: Vec<(PathBuf, &str)> = vec![(target_dir.to_owned(), "/target"), (root.to_owned(), "/larder")];
    cut.extend(cargo_home.map(|home| (home, "/cargo")));
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned(), "-Cstrip=symbols".to_owned()];
    flags.extend(
        cut.iter()
            .map(|(path, to)| format!("--remap-path-prefix={}={to}", path.display())),
    );
    let c_flags: Vec<String> = cut
        .iter()
        .map(|(path, to)| format!("-ffile-prefix-map={}={to}", path.display()))
        .collect();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(root)
        .args(["build", "--locked", "--bins", "--target", TARGET, "--profile", profile])
        .arg("--target-dir")
        .arg(target_dir)
        .arg("--config")
        .arg(format!("target.{TARGET}.rustflags={}", serde_json::to_string(&flags)?))
        .env("CFLAGS_x86_64_unknown_linux_gnu", c_flags.join(" "))
        .env_remove("RUSTFLAGS");
    for package in packages {
        cargo.args(["--package", package]);
    }
    let status = cargo.status().context("starting cargo")?;
    ensure!(status.success(), "cargo could not build the programs");
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_dir.join(TARGET).join(folder))
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
