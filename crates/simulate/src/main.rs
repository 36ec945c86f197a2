//! `make simulate`: many seeds, or one again.

use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::Parser;
use larder_simulate::{Failure, Options, sweep};
use tokio::time::Instant;

/// Runs the controller and the agents in virtual time, against a simulated API server with faults.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,

    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,

    /// Run this seed alone
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,

    /// The largest number of nodes in a run; a seed is the same run again only with the same number
    #[arg(long, default_value_t = Options::default().largest_fleet)]
    largest_fleet: u64,

    /// Go on after a failure, and show each in one line
    #[arg(long)]
    keep_going: bool,

    /// How many of the last events to show with a failure
    #[arg(long, default_value_t = 60)]
    last_events: usize,

    /// Runs at a time (default: one per core)
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (first, count) = arguments
        .seed
        .map_or((arguments.first, arguments.seeds), |seed| (seed, 1));
    let cores = available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let shows = stderr().is_terminal();
    let threads = arguments.threads.unwrap_or(cores);
    let options = Options {
        largest_fleet: arguments.largest_fleet,
        last_events: arguments.last_events,
        planted: None,
    };
    let swept = sweep(first, count, threads, options, |swept| {
        let every = if shows { 50 } else { 1_000 };
        if swept.runs.is_multiple_of(every) {
            progress(swept.runs, count, per_second(swept.runs, began), shows);
        }
        arguments.keep_going || swept.failures.is_empty()
    });
    let rate = per_second(swept.runs, began);
    let seconds = began.elapsed().as_secs_f64();
    let total = format!(
        "{} seeds in {seconds:.1} s, {rate:.1} a second, {} events",
        swept.runs, swept.events
    );
    if swept.failures.is_empty() {
        say(&format!("every invariant held: {total}"));
        return ExitCode::SUCCESS;
    }
    for failure in &swept.failures {
        if arguments.keep_going {
            say(&format!("seed {}: {}", failure.seed, failure.violation));
        } else {
            say(&report(failure, arguments.largest_fleet));
        }
    }
    say(&format!("{} failures, {total}", swept.failures.len()));
    ExitCode::FAILURE
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn per_second(runs: u64, began: Instant) -> f64 {
    runs as f64 / began.elapsed().as_secs_f64().max(0.001)
}

fn progress(runs: u64, count: u64, rate: f64, overwrites: bool) {
    let end = if overwrites { '\r' } else { '\n' };
    // Progress that cannot be shown is not worth a failure.
    drop(write!(stderr(), "{runs} of {count} seeds, {rate:.1} a second{end}"));
}

fn say(text: &str) {
    drop(writeln!(stdout(), "{text}"));
}

fn report(failure: &Failure, fleet: u64) -> String {
    let seed = failure.seed;
    format!(
        "{}\n\nseed {seed} breaks an invariant after {:.3} s of virtual time (above: what happened last)\n  {}\n  repeat it: make simulate SEED={seed} FLEET={fleet}\n",
        failure.last_events.join("\n"),
        failure.at,
        failure.violation,
    )
}
