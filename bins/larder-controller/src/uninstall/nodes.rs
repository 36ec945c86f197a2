//! Takes back what nodes were told.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use larder_api::NodeImage;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::errand::{ErrandError, ask};

/// Requests at once.
const AT_ONCE: usize = 16;

/// How often to look whether nodes have answered.
const LOOK: Duration = Duration::from_secs(1);

/// An agent reports that an order is gone at the moment in which it also tells the runtime to drop the pin.
const PINS_GO: Duration = Duration::from_secs(5);

/// Names of nodes in a log line.
const NAMED: usize = 20;

pub(super) async fn clear(client: &Client, timeout: Duration) -> Result<(), ErrandError> {
    let api = Api::<NodeImage>::all(client.clone());
    let all = list(&api).await?;
    let ordered: Vec<String> = all
        .iter()
        .filter(|one| has_orders(one))
        .map(ResourceExt::name_any)
        .collect();
    info!(nodes = ordered.len(), "withdrawing all orders");
    for_each(&ordered, |name| withdraw(&api, name)).await?;
    let silent = wait_for_answers(&api, timeout).await?;
    if !silent.is_empty() {
        let named: Vec<&str> = silent.iter().take(NAMED).map(String::as_str).collect();
        warn!(
            nodes = silent.len(),
            named = named.join(", "),
            "nodes have not answered; images pinned there stay pinned until Larder is installed again or they are removed \
             by hand"
        );
    }
    if !ordered.is_empty() {
        sleep(PINS_GO).await;
    }
    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    for_each(&names, |name| delete(&api, name)).await
}

async fn for_each<'a, F>(names: &'a [String], act: impl Fn(&'a str) -> F) -> Result<(), ErrandError>
where
    F: Future<Output = Result<(), ErrandError>>,
{
    stream::iter(names)
        .map(|name| act(name))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn list(api: &Api<NodeImage>) -> Result<Vec<NodeImage>, ErrandError> {
    match ask("list NodeImages", api.list(&ListParams::default())).await {
        Ok(list) => Ok(list.items),
        // The CRD is gone, and everything with it.
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn has_orders(node_image: &NodeImage) -> bool {
    !node_image.spec.images.is_empty() || !node_image.spec.sealed_credentials.is_empty()
}

async fn withdraw(api: &Api<NodeImage>, name: &str) -> Result<(), ErrandError> {
    let nothing = json!({ "spec": { "images": null, "sealedCredentials": null } });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(&nothing));
    let request = api.patch(name, &parameters, &patch);
    gone_is_fine(
        ask(format!("withdraw the orders of node {name}"), request)
            .await
            .map(drop),
    )
}

async fn delete(api: &Api<NodeImage>, name: &str) -> Result<(), ErrandError> {
    let parameters = DeleteParams::default();
    let request = api.delete(name, &parameters);
    gone_is_fine(ask(format!("delete the NodeImage {name}"), request).await.map(drop))
}

fn gone_is_fine(outcome: Result<(), ErrandError>) -> Result<(), ErrandError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// Waits until no agent shows results any more; gives back the nodes that still do.
async fn wait_for_answers(api: &Api<NodeImage>, timeout: Duration) -> Result<BTreeSet<String>, ErrandError> {
    let deadline = Instant::now() + timeout;
    loop {
        let unanswered: BTreeSet<String> = list(api)
            .await?
            .iter()
            .filter(|one| still_shows(one))
            .map(ResourceExt::name_any)
            .collect();
        if unanswered.is_empty() || Instant::now() >= deadline {
            return Ok(unanswered);
        }
        sleep(LOOK).await;
    }
}

/// Where no agent ever answered, nothing was pinned.
fn still_shows(node_image: &NodeImage) -> bool {
    node_image
        .status
        .as_ref()
        .is_some_and(|status| status.agent.is_some() && !status.image_statuses.is_empty())
}
