//! Several replicas: one leads, and another one when that is gone.

use std::time::Duration;

use larder_testkit::wait_until;

use crate::cluster::{Cluster, Replica};

async fn one_leads<'a>(replicas: impl Iterator<Item = &'a Replica> + Clone, within: Duration) {
    wait_until(within, "one of the controllers to lead", async || {
        for replica in replicas.clone() {
            if replica.leads().await {
                return true;
            }
        }
        false
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn ready_with_its_own_permissions_and_gone_when_told() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller("only").await;
    controller.wait_until_ready().await;
    assert_eq!(controller.get("/healthz").await.unwrap(), (200, "ok\n".to_owned()));
    one_leads([&controller].into_iter(), Duration::from_secs(10)).await;
    assert!(
        controller
            .get("/metrics")
            .await
            .unwrap()
            .1
            .contains("larder_controller_crds_fine 1\n")
    );
    assert!(cluster.holder().await.is_some());
    let log = controller.process.log_tail();
    assert!(!log.contains("forbidden") && !log.contains("WARN"), "{log}");
    assert!(controller.terminate().await);
    assert_eq!(cluster.holder().await, None, "the lease is given back");
}

#[tokio::test]
async fn another_one_leads_within_twenty_seconds_of_a_kill() {
    let cluster = Cluster::start().await;
    let mut first = cluster.controller("first").await;
    first.wait_until_ready().await;
    one_leads([&first].into_iter(), Duration::from_secs(10)).await;
    let mut others = [cluster.controller("second").await, cluster.controller("third").await];
    for other in &mut others {
        other.wait_until_ready().await;
        assert!(!other.leads().await);
    }
    let before = cluster.holder().await.unwrap();
    first.process.kill().unwrap();
    one_leads(others.iter(), Duration::from_secs(20)).await;
    assert_ne!(cluster.holder().await.unwrap(), before);
}
