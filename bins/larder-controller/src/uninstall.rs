//! Leaves a cluster in order before Larder goes: no order that nobody carries out, no pin that nobody removes, no
//! finalizer that nobody takes off, no job that seems to run. Jobs themselves and the CRDs stay; they are the user's.
//!
//! 1. The controller is stopped and its Lease held, so that it hands out nothing anew.
//! 2. All orders are withdrawn. The agents, which still run, give up their pulls and remove their pins.
//! 3. When they have answered, or their time is over, the NodeImages are deleted.
//! 4. Jobs lose the finalizers of the software they were written for, and those under way say that they wait.
//!
//! A node that does not answer keeps its pins; it is named in the log, and the uninstall goes on.
//!
//! While OpenKruise serves its kinds, orders and finalizers of these are OpenKruise's: they stay as they are, and only the
//! ImagePrePullJobs, which OpenKruise does not know, are released. So it is after an install that was refused for that reason
//! and is taken back.

mod jobs;
mod nodes;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use larder_api::names::KRUISE_GROUP;
use larder_controller::crd_check::conflicting_installs;
use larder_controller::lease::{Candidacy, Elector, Timing};
use larder_controller::run::LEASE;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::errand::{ErrandError, ask};

/// Until the controller has given its Lease back, or, killed, has let it expire.
const STOPPED: Duration = Duration::from_mins(1);

/// The controller's Deployment, unless the chart gives it another name.
pub(crate) const DEPLOYMENT: &str = "larder-controller";

pub(crate) async fn run(
    client: Client,
    namespace: &str,
    deployment: &str,
    identity: String,
    timeout: Duration,
) -> Result<(), ErrandError> {
    stop_controller(&client, namespace, deployment).await?;
    let in_the_way = ask(
        "look whether OpenKruise serves these kinds",
        conflicting_installs(&client),
    )
    .await?;
    if !in_the_way.is_empty() {
        let sentence = in_the_way.join("; ");
        warn!(sentence, "its jobs and NodeImages are left to it as they are");
    }
    let elector = Elector::new(
        client.clone(),
        Candidacy {
            namespace: namespace.to_owned(),
            lease: LEASE.to_owned(),
            identity: format!("uninstall_{identity}"),
            timing: Timing::default(),
        },
    );
    let mut leadership = elector.leadership();
    let stop = CancellationToken::new();
    let electing = tokio::spawn(elector.run(stop.clone()));
    // What it gives back is a lock on the channel, which the election writes to.
    let leads = async { leadership.wait_for(|now| now.term().is_some()).await.is_ok() };
    let leads = tokio::time::timeout(STOPPED, leads).await.unwrap_or(false);
    let outcome = if leads {
        clean_up(&client, timeout, !in_the_way.is_empty()).await
    } else {
        Err(ErrandError::NotReached(format!(
            "a controller still holds the lease {namespace}/{LEASE}, and would hand out anew what is withdrawn here: stop it"
        )))
    };
    stop.cancel();
    // Its task ends after it gave the lease back; if it died, the lease expires.
    electing.await.ok();
    outcome?;
    delete_lease(client, namespace).await
}

async fn delete_lease(client: Client, namespace: &str) -> Result<(), ErrandError> {
    let leases = Api::<Lease>::namespaced(client, namespace);
    match ask("delete the lease", leases.delete(LEASE, &DeleteParams::default())).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

async fn stop_controller(client: &Client, namespace: &str, deployment: &str) -> Result<(), ErrandError> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let none = json!({ "spec": { "replicas": 0 } });
    let parameters = PatchParams::default();
    let patch = Patch::Merge(&none);
    match ask(
        "stop the controller",
        deployments.patch_scale(deployment, &parameters, &patch),
    )
    .await
    {
        Ok(_) => {
            info!(deployment, "the controller is told to stop");
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

async fn clean_up(client: &Client, timeout: Duration, openkruise_serves: bool) -> Result<(), ErrandError> {
    if openkruise_serves {
        return jobs::release(client, |group| group != KRUISE_GROUP).await;
    }
    nodes::clear(client, timeout).await?;
    jobs::release(client, |_| true).await
}
