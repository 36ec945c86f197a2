//! Code generation and checks that cargo itself does not do. Each generator has `--check`, which changes nothing and fails
//! if the files in the repository are not what it would write.

mod chart;
mod chart_readme;
mod codegen;
mod image;
mod layers;
mod manifests;
mod monitoring;
mod proto;
mod runtimes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Code generation and checks of this repository")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the generated files: deploy/crds, deploy/rbac, the rights, files and README of deploy/chart, deploy/manifests, deploy/monitoring/prometheusrule.yaml, the gRPC code of crates/runtime-proto
    Codegen {
        /// Change nothing; fail if a file is stale
        #[arg(long)]
        check: bool,

        #[command(flatten)]
        helm: manifests::HelmArguments,
    },
    /// Build container images of the controller and the agent, without a container daemon
    Image(image::ImageArguments),
    /// Check that dependencies between the crates point one way, and that no IO reaches the pure ones
    Layers,
    /// Write the table of docs/runtimes.md from what the tests of crates/runtime saw
    Runtimes(runtimes::RuntimesArguments),
}

/// cargo as a person would call it. Not by the path that xtask was built with: that one, called without the others of its
/// toolchain, would look for a toolchain anew in the folder of every dependency.
fn cargo() -> std::process::Command {
    std::process::Command::new("cargo")
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command, &root()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, root: &Path) -> anyhow::Result<()> {
    match command {
        Command::Codegen { check, helm } => {
            proto::generate(root, *check)?;
            codegen::run(root, *check, helm.find(root)?.as_ref())
        }
        Command::Image(arguments) => image::run(root, arguments),
        Command::Layers => layers::run(root),
        Command::Runtimes(arguments) => runtimes::run(root, arguments),
    }
}

#[expect(clippy::print_stderr, reason = "a program for developers, which says what is wrong")]
fn complain(error: &anyhow::Error) {
    eprintln!("xtask: {error:#}");
}

/// The workspace: this crate lies directly below it.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
