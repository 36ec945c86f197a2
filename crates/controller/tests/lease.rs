//! The election on a real kube-apiserver, with its real times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use larder_controller::lease::{Candidacy, Elector, Leadership, Timing};
use larder_testkit::{ControlPlane, unique_name, wait_for};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Replica {
    leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(client: Client, lease: &str, identity: &str) -> Self {
        let candidacy = Candidacy {
            namespace: "default".into(),
            lease: lease.into(),
            identity: identity.into(),
            timing: Timing::default(),
        };
        let elector = Elector::new(client, candidacy);
        let stop = CancellationToken::new();
        Self {
            leadership: elector.leadership(),
            task: tokio::spawn(elector.run(stop.clone())),
            stop,
        }
    }

    fn may_write(&self) -> bool {
        self.leadership.borrow().may_write(Instant::now())
    }
}

async fn three(lease: &str) -> (Client, Vec<Replica>) {
    let client = ControlPlane::shared(&[]).await.unwrap().client().unwrap();
    let replicas = ["a", "b", "c"].map(|identity| Replica::start(client.clone(), lease, identity));
    (client, replicas.into())
}

/// Waits until one of them may write, asks all the while that no second one may, and says which.
async fn the_writer(replicas: &[Replica], deadline: Duration) -> usize {
    wait_for(deadline, "one of the replicas to lead", async || {
        let writers: Vec<usize> = (0..replicas.len()).filter(|one| replicas[*one].may_write()).collect();
        assert!(writers.len() < 2, "{writers:?} write at once");
        writers.first().copied().ok_or("none does")
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn another_one_leads_within_twenty_seconds_of_a_kill() {
    let lease = unique_name("kill");
    let (client, mut replicas) = three(&lease).await;
    let first = the_writer(&replicas, Duration::from_secs(10)).await;
    let killed = replicas.remove(first);
    let gone = Instant::now();
    killed.task.abort();
    let until = match *killed.leadership.borrow() {
        Leadership::Leader { may_write_until, .. } => may_write_until,
        Leadership::Follower => gone,
    };
    let second = the_writer(&replicas, Duration::from_secs(20)).await;
    assert!(
        until + Duration::from_secs(5) < Instant::now(),
        "writes of the dead may still arrive"
    );
    let written = Api::<Lease>::default_namespaced(client)
        .get(&lease)
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(written.lease_transitions, Some(1));
    assert_eq!(written.lease_duration_seconds, Some(15));
    assert_ne!(written.holder_identity.as_deref(), ["a", "b", "c"].get(first).copied());
    assert!(replicas[second].may_write());
}

#[tokio::test]
async fn a_lease_that_was_given_back_is_taken_at_the_next_look() {
    let (_, mut replicas) = three(&unique_name("release")).await;
    let first = the_writer(&replicas, Duration::from_secs(10)).await;
    let leaving = replicas.remove(first);
    leaving.stop.cancel();
    leaving.task.await.unwrap();
    assert_eq!(*leaving.leadership.borrow(), Leadership::Follower);
    the_writer(&replicas, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_leader_whose_lease_was_taken_stops() {
    let lease = unique_name("taken");
    let (client, replicas) = three(&lease).await;
    let first = the_writer(&replicas, Duration::from_secs(10)).await;
    let term = replicas[first].leadership.borrow().term();
    assert_eq!(term, Some(1));
    let stolen = Patch::Merge(json!({ "spec": { "holderIdentity": "thief" } }));
    let leases = Api::<Lease>::default_namespaced(client);
    leases.patch(&lease, &PatchParams::default(), &stolen).await.unwrap();
    wait_for(
        Duration::from_secs(10),
        "the leader to step down",
        async || match replicas[first].leadership.borrow().term() {
            None => Ok(()),
            Some(_) => Err("it still leads"),
        },
    )
    .await
    .unwrap();
}
