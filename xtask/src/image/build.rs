//! Static programs, and the commit they are of.
//!
//! Linked against glibc, all of it inside the program: no package registry has a ready-made standard library for musl. Since glibc
//! 2.34 names are looked up without loading libraries at run time, so the image needs none.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::Arch;

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

/// What to build how.
pub(super) struct How<'a> {
    pub(super) root: &'a Path,
    pub(super) target_dir: &'a Path,
    pub(super) cargo_home: Option<&'a Path>,
    pub(super) profile: &'a str,
    pub(super) arch: Arch,
}

/// Builds the packages' programs and gives back the folder where they are.
pub(super) fn build(how: &How<'_>, packages: &[&str]) -> anyhow::Result<PathBuf> {
    // Named, although it may be the usual one: what runs on the machine that compiles, such as macros, cannot be static.
    let target = how.arch.target();
    // The other compiler's results would push out those of the first.
    let target_dir = match how.arch {
        Arch::Amd64 => how.target_dir.to_owned(),
        Arch::Arm64 => how.target_dir.join("arm64"),
    };
    let cargo_home = how.cargo_home.map(Path::to_owned);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    // Paths that the compilers would write into the programs, for messages of a panic. The last one that fits counts, so
    // a folder comes before those in it.
    let mut cut: Vec<(PathBuf, &str)> = vec![(how.root.to_owned(), "/larder"), (target_dir.clone(), "/target")];
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
    let mut cargo = crate::cargo();
    cargo
        .current_dir(how.root)
        .args([
            "build",
            "--locked",
            "--bins",
            "--target",
            target,
            "--profile",
            how.profile,
        ])
        .arg("--target-dir")
        .arg(&target_dir)
        .env(format!("CFLAGS_{}", target.replace('-', "_")), c_flags.join(" "))
        .env_remove("RUSTFLAGS");
    if how.arch == Arch::Arm64 {
        let toolchain = output(Command::new(how.root.join("deploy/images/arm64-toolchain")).current_dir(how.root))?;
        cargo.env("RUSTC", toolchain.trim());
        flags.push("-Clinker=aarch64-linux-gnu-gcc".to_owned());
    }
    let flags = serde_json::to_string(&flags)?;
    cargo.arg("--config").arg(format!("target.{target}.rustflags={flags}"));
    for package in packages {
        cargo.args(["--package", package]);
    }
    let status = cargo.status().context("starting cargo")?;
    ensure!(status.success(), "cargo could not build the programs");
    let folder = if how.profile == "dev" { "debug" } else { how.profile };
    Ok(target_dir.join(target).join(folder))
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
