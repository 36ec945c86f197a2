//! The `larder` program: what people type.
//!
//! `args` is what was typed and `usage` reads it, each file of `commands` is one command, `job` is what a person
//! wants to know of a job whatever its kind, `output` is the only place that prints and `printable` the only text that it
//! accepts, `failure` decides what an error says and which exit code it has.

mod args;
mod bars;
mod cause;
mod client;
mod commands;
mod demo;
mod failure;
mod fleet;
mod job;
mod jobs;
mod manifest;
mod open_files;
mod output;
mod printable;
mod stop;
mod table;
mod usage;
mod yaml;

use std::process::ExitCode;

use args::{Arguments, Cluster, Command};
use failure::Failure;

/// Runs the program with the arguments of this process.
pub fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run() -> Result<(), Failure> {
    let Arguments {
        cluster,
        no_color,
        command,
    } = usage::parse(std::env::args_os().collect())?;
    if no_color {
        output::without_colours();
    }
    // Several libraries bring a cryptographic provider; one is chosen for the whole process. It fails only if one
    // was chosen before, which is fine.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::wrong(format!("no threads can be started: {error}")))?;
    let outcome = runtime.block_on(execute(&cluster, command));
    // A blocked read of standard input must not keep the process.
    runtime.shutdown_background();
    outcome
}

async fn execute(cluster: &Cluster, command: Command) -> Result<(), Failure> {
    match command {
        // These have something to put in order, or to say, when they are told to stop.
        Command::Up(up) => commands::up::run(up).await,
        Command::Plan(plan) => commands::plan::run(cluster, plan).await,
        Command::Run(run) => commands::run::run(cluster, run).await,
        Command::Crds => commands::crds::run(),
        Command::Doctor(doctor) => stop::or_interrupted(Box::pin(commands::doctor::run(cluster, doctor))).await,
        Command::Lint(lint) => stop::or_interrupted(commands::lint::run(lint)).await,
        Command::Status(status) => stop::or_interrupted(commands::status::run(cluster, status)).await,
        Command::Why(why) => stop::or_interrupted(commands::why::run(cluster, why)).await,
        Command::Pull(pull) => stop::or_interrupted(commands::pull::run(pull)).await,
        Command::Completions { shell } => {
            commands::completions::run(shell);
            Ok(())
        }
    }
}
