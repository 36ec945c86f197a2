//! The `larder` program: what people type.
//!
//! [`args`] is what was typed, each file of [`commands`] is one command, [`job`] is what a person wants to know of a job
//! whatever its kind, [`output`] is the only place that prints, [`failure`] decides what an error says and which exit code
//! it has.

mod args;
mod client;
mod commands;
mod demo;
mod failure;
mod job;
mod manifest;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Cluster, Command};
use failure::Failure;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    // Several libraries bring a cryptographic provider; one is chosen for the whole process. It fails only if somebody
    // chose before, which is fine.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::wrong(format!("no threads can be started: {error}")).report(),
    };
    let arguments = Arguments::parse();
    let outcome = runtime.block_on(async {
        match arguments.command {
            // It runs until Ctrl-C, and ends in order.
            Command::Up(up) => commands::up::run(up).await,
            command => tokio::select! {
                outcome = run(&arguments.cluster, command) => outcome,
                _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
            },
        }
    });
    // A read of standard input that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(cluster: &Cluster, command: Command) -> Result<(), Failure> {
    match command {
        Command::Up(up) => commands::up::run(up).await,
        Command::Crds => commands::crds::run(),
        Command::Lint(lint) => commands::lint::run(lint).await,
        Command::Run(run) => commands::run::run(cluster, run).await,
        Command::Status(status) => commands::status::run(cluster, status).await,
        Command::Completions { shell } => commands::completions::run(shell),
    }
}
