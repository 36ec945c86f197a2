//! Whether an installation works: the CRDs hold what Larder writes, a controller leads, and on every node that is ready an
//! agent has answered. It waits for what is still starting, and says in a sentence what did not come.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use larder_api::NodeImage;
use larder_api::names::{NODE_TYPE_LABEL, VIRTUAL_KUBELET_VALUE};
use larder_controller::crd_check::shortcoming;
use larder_controller::run::LEASE;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::errand::{ErrandError, ask};

const LOOK: Duration = Duration::from_secs(2);

/// Names of nodes in a sentence.
const NAMED: usize = 10;

pub(crate) async fn run(client: Client, namespace: &str, timeout: Duration) -> Result<(), ErrandError> {
    let deadline = Instant::now() + timeout;
    loop {
        let trouble = match trouble(&client, namespace).await {
            Ok(None) => return Ok(()),
            Ok(Some(trouble)) => ErrandError::NotReached(trouble),
            Err(error) => error,
        };
        if Instant::now() > deadline {
            return Err(trouble);
        }
        sleep(LOOK).await;
    }
}

/// The first thing that is not as it should be.
async fn trouble(client: &Client, namespace: &str) -> Result<Option<String>, ErrandError> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for ours in larder_api::crds() {
        let name = ours.name_any();
        let theirs = ask(format!("read the CRD {name}"), definitions.get_opt(&name)).await?;
        if let Some(wrong) = shortcoming(&ours, theirs.as_ref()) {
            return Ok(Some(wrong));
        }
    }
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let lease = ask("read the lease", leases.get_opt(LEASE)).await?;
    let holder = lease
        .and_then(|lease| lease.spec?.holder_identity)
        .filter(|holder| !holder.is_empty());
    let Some(holder) = holder else {
        return Ok(Some(format!(
            "no controller leads: look at the pods of the Deployment larder-controller in namespace {namespace}"
        )));
    };
    let nodes = ask(
        "list nodes",
        Api::<Node>::all(client.clone()).list(&ListParams::default()),
    )
    .await?;
    let wanted: BTreeSet<String> = nodes
        .items
        .iter()
        .filter(|node| needs_agent(node))
        .map(ResourceExt::name_any)
        .collect();
    let node_images = Api::<NodeImage>::all(client.clone());
    let answered = ask("list NodeImages", node_images.list(&ListParams::default())).await?;
    let answered: BTreeSet<String> = answered
        .items
        .iter()
        .filter(|one| has_agent(one))
        .map(ResourceExt::name_any)
        .collect();
    let missing: Vec<&str> = wanted.difference(&answered).map(String::as_str).collect();
    if missing.is_empty() {
        info!(
            leader = holder,
            agents = wanted.len(),
            "CRDs, controller and agents are well"
        );
        return Ok(None);
    }
    let named = missing.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    Ok(Some(format!(
        "no agent answers on {} of {} ready nodes ({named}): look at the pods of the DaemonSet larder-agent in namespace {namespace}",
        missing.len(),
        wanted.len()
    )))
}

fn needs_agent(node: &Node) -> bool {
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready
        && label("kubernetes.io/os").is_none_or(|os| os == "linux")
        && label(NODE_TYPE_LABEL) != Some(VIRTUAL_KUBELET_VALUE)
        && label("eks.amazonaws.com/compute-type") != Some("fargate")
}

fn has_agent(node_image: &NodeImage) -> bool {
    node_image.status.as_ref().is_some_and(|status| status.agent.is_some())
}
