//! Looks at a cluster. What may not be looked at is a fact too; only a server that does not answer at all is an error.

mod parts;
mod place;
mod rights;
mod surroundings;

use std::time::Duration;

use kube::Client;
use larder_controller::error_chain::chain;
use tokio::time::timeout;

use self::place::Place;
use super::facts::{Facts, Probe, Seen, Server};
use crate::failure::Failure;

/// Longest time of one request.
const REQUEST: Duration = Duration::from_secs(10);

/// Everything that the diagnosis needs. Without a namespace, Larder is looked for.
pub(super) async fn gather(client: &Client, namespace: Option<&str>) -> Result<Facts, Failure> {
    let server = server(client).await?;
    let Place {
        namespace,
        elsewhere,
        accounts,
    } = place::find(client, namespace).await;
    let (crds, rivals, nodes, system) = futures::join!(
        surroundings::crds(client),
        surroundings::rivals(client),
        parts::nodes(client),
        parts::system(client, &namespace, elsewhere, accounts.clone()),
    );
    let some_node = nodes.iter().flatten().find(|node| node.has_node_image);
    let some_node = some_node.map(|node| node.name.clone());
    let (policy, rights, gating_job) = futures::join!(
        surroundings::policy(client, some_node.as_deref(), &namespace, &accounts),
        rights::rights(client, &namespace, &accounts),
        parts::gating_job(client),
    );
    Ok(Facts {
        server,
        crds,
        rivals,
        system,
        nodes,
        policy,
        rights,
        gating_job,
    })
}

/// Whether logins may be sealed to nodes, by the controller's rule: the policy on their keys is seen to be enforced, or the
/// controller is told to accept that it is not. `node`: one that has a NodeImage.
pub(crate) async fn may_seal(client: &Client, node: &str) -> bool {
    // The embedded API server has no policies, and serves the agents of one process.
    if server(client).await.is_ok_and(|server| server.embedded) {
        return true;
    }
    let Place {
        namespace, accounts, ..
    } = place::find(client, None).await;
    let (probe, controllers) = futures::join!(
        surroundings::probe(client, node, &namespace, &accounts),
        parts::controllers(client, &namespace, &accounts.controller),
    );
    let accepted = !controllers.is_empty() && controllers.iter().all(|pod| pod.accepts_no_policy);
    accepted || probe == Probe::Refused
}

async fn server(client: &Client) -> Result<Server, Failure> {
    let doing = "asking the API server for its version";
    let version = timeout(REQUEST, client.apiserver_version()).await;
    let version = version
        .map_err(|_| Failure::unreachable(format!("{doing}: it does not answer; check --kubeconfig and --context")))?
        .map_err(|error| Failure::from_api(doing, &error))?;
    // The version is public; whether the credentials are accepted shows only now.
    let served = timeout(REQUEST, client.list_core_api_versions()).await;
    if let Ok(Err(error)) = served {
        return Err(Failure::from_api(doing, &error));
    }
    // Some providers write `28+`.
    let minor = version.minor.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    Ok(Server {
        embedded: version.git_version.contains("+larder-"),
        minor: minor.parse().ok(),
        version: version.git_version,
    })
}

/// One call, with a limit, and its failure in words.
async fn see<T>(call: impl Future<Output = kube::Result<T>>) -> Seen<T> {
    match timeout(REQUEST, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("no answer within {} s", REQUEST.as_secs())),
    }
}
