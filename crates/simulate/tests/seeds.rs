//! Several hundred seeds break no invariant, others each time, and a seed repeats its run. A seed that fails is printed,
//! with the command that repeats it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and says what it saw"
)]

use std::hash::{BuildHasher as _, RandomState};
use std::thread::available_parallelism;

use larder_simulate::{Options, run, sweep};

const SEEDS: u64 = 400;

const SMALL: Options = Options {
    largest_fleet: 12,
    planted: None,
    last_events: 60,
};

#[test]
fn new_seeds_break_no_invariant() {
    let cores = available_parallelism().map_or(1, usize::from);
    // Hash maps draw their keys anew in each process.
    let first = RandomState::new().hash_one(0) >> 16;
    let swept = sweep(first, SEEDS, cores, SMALL, |swept| swept.failures.is_empty());
    if let Some(failure) = swept.failures.first() {
        panic!(
            "{}\nseed {}: {}\nrepeat it: make simulate SEED={} FLEET={}",
            failure.last_events.join("\n"),
            failure.seed,
            failure.violation,
            failure.seed,
            SMALL.largest_fleet,
        );
    }
    assert_eq!(swept.runs, SEEDS);
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..5 {
        let (one, other) = (run(seed, SMALL), run(seed, SMALL));
        assert_eq!(one.unwrap(), other.unwrap(), "seed {seed}");
    }
}
