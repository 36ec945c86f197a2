//! `cargo xtask image`: container images of the controller and the agent, without a container daemon.
//!
//! An image is one static program over nothing but certificate authorities. Archives are OCI image layouts, which
//! `ctr image import` and `skopeo copy oci-archive:…` read. Nothing of the machine goes into them: times are the commit's,
//! paths are cut off, certificates come with the locked dependencies. So two builds of one commit give the same digests.

mod build;
mod layer;
mod layout;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
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

    /// Where cargo keeps the sources of other crates
    #[arg(long, env = "CARGO_HOME", value_name = "DIR")]
    cargo_home: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, arguments: &ImageArguments) -> anyhow::Result<()> {
    let source = Source::of(root)?;
    let packages = PROGRAMS.each_ref().map(|program| program.package);
    let mut images: [Vec<Image>; PROGRAMS.len()] = Default::default();
    let output = root.join(&arguments.output);
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    for &arch in &arguments.arch {
        let how = build::How {
            root,
            target_dir: &root.join(&arguments.target_dir),
            cargo_home: arguments.cargo_home.as_deref(),
            profile: &arguments.profile,
            arch,
        };
        let binaries = build::build(&how, &packages)?;
        for (program, images) in PROGRAMS.iter().zip(&mut images) {
            let path = binaries.join(program.name);
            let binary = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let sbom = sbom::of(root, program.package, arch)?;
            let beside = output.join(format!("{}-{}.cdx.json", program.name, arch.name()));
            fs::write(&beside, &sbom).with_context(|| format!("writing {}", beside.display()))?;
            let image = Image::new(program, arch, &source, &binary, &sbom)?;
            say(
                program,
                arch,
                &image.digest(),
                &[("program", binary.len()), ("image", image.size())],
            );
            images.push(image);
        }
    }
    for (program, images) in PROGRAMS.iter().zip(&images) {
        let path = output.join(format!("{}.tar", program.name));
        fs::write(&path, archive(program, images)?).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a program for developers, which says what it made")]
fn say(program: &Program, arch: Arch, digest: &str, sizes: &[(&str, usize)]) {
    let sizes: Vec<String> = sizes
        .iter()
        .map(|(what, size)| format!("{what} {:.1} MB", megabytes(*size)))
        .collect();
    println!("{} {} {digest}: {}", program.name, arch.name(), sizes.join(", "));
}

#[expect(clippy::cast_precision_loss, reason = "sizes for people")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests;
