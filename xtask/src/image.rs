//! `cargo xtask image`: container images of the controller and the agent, without a container daemon.
//!
//! An image is one static program over nothing but certificate authorities. Archives are OCI image layouts, which
//! `ctr image import` and `skopeo copy oci-archive:…` read. Nothing of the machine goes into them: times are the commit's,
//! paths are cut off, certificates come with the locked dependencies. So two builds of one commit should give the same digests; `--twice` looks.

mod build;
mod layer;
mod layout;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use self::build::Source;
use self::layout::{Image, archive};

/// The programs that run in a cluster.
const PROGRAMS: [Program; 2] = [
    Program {
        name: "larder-controller",
        package: "larder-controller-bin",
        title: "Larder controller",
        // Any number but 0: it needs no file and no port of a privileged user.
        user: "65532:65532",
    },
    Program {
        name: "larder-agent",
        package: "larder-agent-bin",
        title: "Larder agent",
        // The runtime's socket on a node belongs to root.
        user: "0:0",
    },
];

struct Program {
    name: &'static str,
    package: &'static str,
    title: &'static str,
    user: &'static str,
}

/// A kind of machine.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// As images name it.
    fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// As compilers name it.
    fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }
}

#[derive(Args)]
pub(crate) struct ImageArguments {
    /// For which machines; the programs for arm64 are built by a compiler that deploy/images/arm64-toolchain gets
    #[arg(long, value_delimiter = ',', default_value = "amd64")]
    arch: Vec<Arch>,

    /// Cargo's profile. dev compiles much faster and makes images of ten times the size, for tests
    #[arg(long, default_value = "release")]
    profile: String,

    /// Where the archives go
    #[arg(long, value_name = "DIR", default_value = "target/images")]
    output: PathBuf,

    /// Where cargo builds: a place of its own, so that ordinary builds neither wait for it nor start anew
    #[arg(long, value_name = "DIR", default_value = "target/image-build")]
    target_dir: PathBuf,

    /// Build a second time in a new folder, and fail if the digests differ
    #[arg(long)]
    twice: bool,

    /// Where cargo keeps the sources of other crates
    #[arg(long, env = "CARGO_HOME", value_name = "DIR")]
    cargo_home: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, arguments: &ImageArguments) -> anyhow::Result<()> {
    let output = root.join(&arguments.output);
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    let target_dir = root.join(&arguments.target_dir);
    let made = make(root, arguments, &target_dir)?;
    for made in &made {
        let name = format!("{}-{}", made.program.name, made.arch.name());
        write(&output.join(format!("{name}.cdx.json")), &made.sbom)?;
        say(made);
    }
    for program in &PROGRAMS {
        let of_it = made.iter().filter(|made| made.program.name == program.name);
        let images: Vec<&Image> = of_it.map(|made| &made.image).collect();
        write(
            &output.join(format!("{}.tar", program.name)),
            &archive(program, &images)?,
        )?;
    }
    if arguments.twice {
        // Beside the first, so that its path is another one.
        let again = tempfile::tempdir_in(&target_dir).context("making a folder for the second build")?;
        let second = make(root, arguments, again.path())?;
        for (first, second) in made.iter().zip(&second) {
            let (before, after) = (first.image.digest(), second.image.digest());
            ensure!(
                before == after,
                "{} is {before}, and built again {after}",
                first.program.name
            );
        }
    }
    Ok(())
}

/// What was built for one kind of machine.
struct Made {
    program: &'static Program,
    arch: Arch,
    image: Image,
    sbom: Vec<u8>,
    program_size: usize,
}

fn make(root: &Path, arguments: &ImageArguments, target_dir: &Path) -> anyhow::Result<Vec<Made>> {
    let source = Source::of(root)?;
    let packages = PROGRAMS.each_ref().map(|program| program.package);
    let mut made = Vec::new();
    for &arch in &arguments.arch {
        let how = build::How {
            root,
            target_dir,
            cargo_home: arguments.cargo_home.as_deref(),
            profile: &arguments.profile,
            arch,
        };
        let binaries = build::build(&how, &packages)?;
        for program in &PROGRAMS {
            let path = binaries.join(program.name);
            let binary = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let sbom = sbom::of(root, program.package, arch)?;
            made.push(Made {
                program,
                arch,
                image: Image::new(program, arch, &source, &binary, &sbom)?,
                sbom,
                program_size: binary.len(),
            });
        }
    }
    Ok(made)
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

#[expect(clippy::print_stdout, reason = "a program for developers, which says what it made")]
fn say(made: &Made) {
    println!(
        "{} {} {}: program {:.1} MB, image {:.1} MB",
        made.program.name,
        made.arch.name(),
        made.image.digest(),
        megabytes(made.program_size),
        megabytes(made.image.size())
    );
}

#[expect(clippy::cast_precision_loss, reason = "sizes for people")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests;
