//! `larder-agent`: runs on every node and pulls what the node's NodeImage asks for.
//!
//! What can be wrong with its configuration is said in one sentence, with exit code 2. Everything else is waited for.

mod args;
mod start;

use std::process::ExitCode;

use clap::Parser as _;
use larder_agent::AgentError;
use larder_telemetry::logs;

use crate::args::Args;

/// Two are enough for one node's work, and each thread has its own share of memory.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build();
    let outcome = match built {
        Ok(runtime) => runtime.block_on(start::run(args)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            let bug = matches!(error.downcast_ref(), Some(AgentError::TaskEnded));
            ExitCode::from(if bug { 1 } else { 2 })
        }
    }
}

fn complain(error: &anyhow::Error) {
    // The libraries below name their own causes in their messages.
    let sentence = match error.chain().nth(1) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    logs::report("larder-agent", &sentence);
}
