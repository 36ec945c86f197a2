//! Kills parts of a cluster at random moments of running jobs, round after round: `make soak`.
//!
//! What must hold in every round is in `larder_e2e::Storm`. The seed that is printed repeats a run: `make soak SEED=N`, or
//! `cargo run -p larder-e2e --example soak -- ROUNDS SEED`.

#![allow(clippy::unwrap_used, reason = "a run that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::collections::BTreeMap;
use std::time::Duration;

use larder_e2e::{Part, Round, STORM_NODES, Storm, seed};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(20, |text| text.parse().unwrap());
    let seed: u64 = arguments.next().map_or_else(seed, |text| text.parse().unwrap());
    println!("soak: {rounds} rounds of each part, seed {seed}");
    let mut storm = Storm::start(seed).await;
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
        let slowest = rounds.iter().map(|round| round.took).max().unwrap_or(Duration::ZERO);
        println!("soak: {part:?} {} {early} {:.1} s", rounds.len(), slowest.as_secs_f64());
    }
}
