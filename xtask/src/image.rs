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
use clap::Args;

use self::build::Source;
use self::layout::Image;

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

#[derive(Args)]
pub(crate) struct ImageArguments {
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
    let binaries = build::build(
        root,
        &root.join(&arguments.target_dir),
        arguments.cargo_home.as_deref(),
        &arguments.profile,
        &PROGRAMS.each_ref().map(|program| program.package),
    )?;
    let output = root.join(&arguments.output);
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    for program in &PROGRAMS {
        let path = binaries.join(program.name);
        let binary = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let sbom = sbom::of(root, program.package)?;
        let image = Image::new(program, &source, &binary, &sbom)?;
        let archive = output.join(format!("{}.tar", program.name));
        fs::write(&archive, image.archive()?).with_context(|| format!("writing {}", archive.display()))?;
        let beside = output.join(format!("{}.cdx.json", program.name));
        fs::write(&beside, &sbom).with_context(|| format!("writing {}", beside.display()))?;
        say(&archive, &image, binary.len())?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a program for developers, which says what it made")]
fn say(archive: &Path, image: &Image, binary: usize) -> anyhow::Result<()> {
    let size = fs::metadata(archive)?.len();
    println!(
        "{}  {} @{}  {:.1} MB, program {:.1} MB",
        archive.display(),
        image.reference,
        image.digest(),
        megabytes(size),
        megabytes(binary as u64),
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests;
