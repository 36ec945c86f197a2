//! Kills parts of a cluster, or puts etcd back to an older copy, at random moments of running jobs, round after round:
//! `make soak`.
//!
//! What must hold in every round is in `larder_e2e::Storm`. The seed that is printed repeats a run: `make soak SEED=N`, or
//! `cargo run -p larder-e2e --example soak -- kills|restores ROUNDS SEED`.

#![allow(clippy::unwrap_used, reason = "a run that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::collections::BTreeMap;
use std::time::Duration;

use larder_e2e::{Part, Round, STORM_NODES, Storm, seed};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let rounds: usize = arguments.next().map_or(20, |text| text.parse().unwrap());
    let seed: u64 = arguments.next().map_or_else(seed, |text| text.parse().unwrap());
    println!("soak: {rounds} rounds of {what}, seed {seed}");
    let storm = Storm::start(seed).await;
    match what.as_str() {
        "kills" => kills(storm, rounds).await,
        "restores" => restores(storm, rounds).await,
        _ => panic!("usage: soak kills|restores [ROUNDS [SEED]]"),
    }
}

async fn kills(mut storm: Storm, rounds: usize) {
    let mut table = BTreeMap::<Part, Vec<Round>>::new();
    for number in 0..rounds {
        for part in Part::ALL {
            let round = storm.round(part).await;
            println!(
                "soak: round {number}, {part:?} killed with {} of {STORM_NODES} nodes done, job ended {:.1} s later",
                round.done_before,
                round.took.as_secs_f64()
            );
            table.entry(part).or_default().push(round);
        }
    }
    println!("soak: part, kills, of them before the job was done, slowest end after a kill");
    for (part, rounds) in table {
        let early = rounds.iter().filter(|round| round.done_before < STORM_NODES).count();
        let slowest = slowest(rounds.iter().map(|round| round.took));
        println!("soak: {part:?} {} {early} {slowest:.1} s", rounds.len());
    }
}

async fn restores(mut storm: Storm, rounds: usize) {
    let mut all = Vec::new();
    for number in 0..rounds {
        let round = storm.restore_round().await;
        println!(
            "soak: round {number}, etcd put back from {} to {} of {STORM_NODES} nodes done, both jobs ended {:.1} s later",
            round.done_before,
            round.done_in_copy,
            round.took.as_secs_f64()
        );
        all.push(round);
    }
    let early = all.iter().filter(|round| round.done_in_copy < STORM_NODES).count();
    let slowest = slowest(all.iter().map(|round| round.took));
    println!(
        "soak: {} restores, {early} of them into a running job, slowest end {slowest:.1} s",
        all.len()
    );
}

fn slowest(times: impl Iterator<Item = Duration>) -> f64 {
    times.max().unwrap_or(Duration::ZERO).as_secs_f64()
}
