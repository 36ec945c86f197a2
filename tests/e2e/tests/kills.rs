//! Every part of a cluster is killed at random moments of running jobs, and etcd is put back to older copies. What must hold is
//! in `larder_e2e::Storm`; `make soak` does the same for longer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use larder_e2e::{Part, Storm, seed};
use rstest::rstest;

#[rstest]
#[case::of_the_control_plane(&[Part::ApiServer, Part::Etcd, Part::Controller, Part::ApiServer, Part::Etcd, Part::Controller])]
#[case::of_the_nodes(&[Part::Agent, Part::Containerd, Part::Registry, Part::Agent, Part::Containerd, Part::Agent, Part::Containerd])]
#[tokio::test]
async fn kills(#[case] parts: &[Part]) {
    let seed = seed();
    println!("LARDER_SEED={seed} repeats this");
    let mut storm = Storm::start(seed).await;
    for &part in parts {
        let round = storm.round(part).await;
        println!("{part:?} killed: {round:?}");
    }
}

#[tokio::test]
async fn restores_of_etcd() {
    let seed = seed();
    println!("LARDER_SEED={seed} repeats this");
    let mut storm = Storm::start(seed).await;
    for _ in 0..3 {
        let round = storm.restore_round().await;
        println!("etcd restored: {round:?}");
    }
}
