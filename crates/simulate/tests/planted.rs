//! Bugs that are planted are found, and within how many seeds.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, and says what it saw"
)]

use std::thread::available_parallelism;

use larder_simulate::{Options, PlantedBug, sweep};

fn seeds_until_found(bug: PlantedBug, most: u64) {
    let options = Options {
        largest_fleet: 12,
        planted: Some(bug),
        last_events: 60,
    };
    let cores = available_parallelism().map_or(1, usize::from);
    let swept = sweep(1, most, cores, options, |swept| swept.failures.is_empty());
    let failure = swept.failures.first().expect("the planted bug is found");
    println!("{bug:?} after {} seeds: {}", swept.runs, failure.violation);
}

#[test]
fn a_leaked_slot_is_found() {
    seeds_until_found(PlantedBug::LeakedSlot, 50);
}

#[test]
fn a_missing_requeue_is_found() {
    seeds_until_found(PlantedBug::MissingRequeue, 50);
}

#[test]
fn a_lost_wake_up_is_found() {
    seeds_until_found(PlantedBug::LostWakeUp, 50);
}

#[test]
fn ignored_windows_are_found() {
    seeds_until_found(PlantedBug::IgnoredWindows, 200);
}

#[test]
fn a_response_that_is_matched_by_name_is_found() {
    seeds_until_found(PlantedBug::ResponseMatchedByName, 1_000);
}

#[test]
fn a_gate_that_opens_early_is_found() {
    seeds_until_found(PlantedBug::OpenGate, 1_000);
}

#[test]
fn a_gate_that_stays_closed_is_found() {
    seeds_until_found(PlantedBug::ClosedGate, 50);
}
