//! Larder's own parts: the controller's Lease and pods, the agents' pods, what agents say of themselves.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Namespace, Node as NodeObject, Pod as PodObject};
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use larder_access::CONTROLLER;
use larder_api::{ImageListPullJob, ImagePullJob, NodeImage};

use larder_controller::feature_gates::FeatureGates;
use tokio::time::{Instant, sleep};

use super::see;
use crate::commands::doctor::facts::{Accounts, Agent, Lease, Node, Pod, Seen, System};
use crate::fleet::controller_settings;

/// A Lease whose last renewal is this far from now by our clock, which may be another than its holder's, is looked at for a
/// while.
const FRESH: SignedDuration = SignedDuration::from_secs(15);

/// A living holder renews its Lease within this time.
const WATCHED: Duration = Duration::from_secs(12);

/// Jobs of each kind that are looked at.
const JOBS: u32 = 500;

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_secs(1);

pub(super) async fn system(client: &Client, namespace: &str, elsewhere: Vec<String>, accounts: Accounts) -> System {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let pods: Api<PodObject> = Api::namespaced(client.clone(), namespace);
    let all = ListParams::default();
    let (exists, lease, pods) = futures::join!(
        see(namespaces.get_opt(namespace)),
        lease(client, namespace),
        see(pods.list(&all))
    );
    let of = |account: &str| Ok(of_account(&pods.as_ref().map_err(Clone::clone)?.items, account));
    System {
        namespace: namespace.to_owned(),
        elsewhere,
        exists: exists.map(|found| found.is_some()),
        lease,
        controllers: of(&accounts.controller),
        agents: of(&accounts.agent),
        accounts,
    }
}

/// The controller's pods; none if they cannot be listed.
pub(super) async fn controllers(client: &Client, namespace: &str, account: &str) -> Vec<Pod> {
    let pods: Api<PodObject> = Api::namespaced(client.clone(), namespace);
    let pods = see(pods.list(&ListParams::default())).await;
    pods.map_or_else(|_| Vec::new(), |pods| of_account(&pods.items, account))
}

/// A job with `nodeGate`, if one is among the first few hundred. None if they cannot be listed.
pub(super) async fn gating_job(client: &Client) -> Option<String> {
    let some = ListParams::default().limit(JOBS);
    let jobs: Api<ImagePullJob> = Api::all(client.clone());
    let lists: Api<ImageListPullJob> = Api::all(client.clone());
    let (jobs, lists) = futures::join!(see(jobs.list(&some)), see(lists.list(&some)));
    let name = |object: &ObjectMeta| {
        let namespace = object.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}", object.name.as_deref().unwrap_or_default())
    };
    // Lists first: people know them, and not their children.
    let lists = lists.iter().flatten().map(|list| (&list.metadata, &list.spec.template));
    let jobs = jobs.iter().flatten().map(|job| (&job.metadata, &job.spec.template));
    let mut gating = lists
        .chain(jobs)
        .filter(|(_, template)| template.node_gate == Some(true));
    gating.next().map(|(metadata, _)| name(metadata))
}

/// The pods that run as an account of Larder's.
fn of_account(pods: &[PodObject], account: &str) -> Vec<Pod> {
    let is_ours = |pod: &&PodObject| {
        let spec = pod.spec.as_ref();
        let ends = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
        // `helm test` runs as the controller does, and its pod stays when it fails.
        let tests = pod
            .labels()
            .get("app.kubernetes.io/component")
            .is_some_and(|part| part == "test");
        !ends && !tests && spec.and_then(|spec| spec.service_account_name.as_deref()) == Some(account)
    };
    pods.iter().filter(is_ours).map(pod).collect()
}

async fn lease(client: &Client, namespace: &str) -> Seen<Option<Lease>> {
    let leases: Api<LeaseObject> = Api::namespaced(client.clone(), namespace);
    let Some(first) = see(leases.get_opt(CONTROLLER)).await? else {
        return Ok(None);
    };
    let spec = first.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let age = spec.renew_time.map(|time| now().duration_since(time.0).abs());
    let mut renewed = age.is_some_and(|age| age <= FRESH);
    let begun = Instant::now();
    while !renewed && holder.is_some() && begun.elapsed() < WATCHED {
        sleep(LOOK).await;
        let next = see(leases.get_opt(CONTROLLER)).await?;
        renewed = next.is_some_and(|next| next.resource_version() != first.resource_version());
    }
    Ok(Some(Lease { holder, renewed }))
}

fn pod(object: &PodObject) -> Pod {
    let spec = object.spec.as_ref();
    let container = spec.and_then(|spec| spec.containers.first());
    let status = object.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let flags = container.map(flags).unwrap_or_default();
    let gates: Vec<String> = values_of(&flags, "feature-gates");
    let is_set = |name| values_of(&flags, name).last().is_some_and(|value| value != "false");
    Pod {
        name: object.name_any(),
        node: spec.and_then(|spec| spec.node_name.clone()),
        ready,
        trouble: if ready { None } else { trouble(object) },
        version: container.and_then(|container| tag(container.image.as_deref()?)),
        gate_off: FeatureGates::read(&gates).is_ok_and(|(gates, _)| !gates.image_pull_jobs),
        paused: is_set("pause"),
        accepts_no_policy: is_set("accept-unenforced-node-policy"),
        gates_nodes: is_set("node-gate"),
    }
}

/// Flags and their environment variables as `name=value`; flags last, as they count more.
fn flags(container: &Container) -> Vec<String> {
    let variable = |name: &str| {
        name.strip_prefix("LARDER_")
            .map(|name| name.to_ascii_lowercase().replace('_', "-"))
    };
    let env = container.env.iter().flatten();
    let env = env.filter_map(|env| Some(format!("{}={}", variable(&env.name)?, env.value.as_deref()?)));
    let words = container
        .command
        .iter()
        .flatten()
        .chain(container.args.iter().flatten());
    let words: Vec<&String> = words.collect();
    let flag = |(position, word): (usize, &&String)| {
        let name = word.strip_prefix("--")?;
        let next = words.get(position + 1).filter(|next| !next.starts_with("--"));
        match (name.contains('='), next) {
            (true, _) => Some(name.to_owned()),
            (false, Some(next)) => Some(format!("{name}={next}")),
            (false, None) => Some(format!("{name}=true")),
        }
    };
    env.chain(words.iter().enumerate().filter_map(flag)).collect()
}

fn values_of(flags: &[String], name: &str) -> Vec<String> {
    let value = |flag: &String| flag.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
    flags.iter().filter_map(value).collect()
}

fn tag(image: &str) -> Option<String> {
    let name = image.split('@').next()?;
    let last = name.rsplit('/').next()?;
    last.split_once(':').map(|(_, tag)| tag.to_owned())
}

/// Why a pod is not ready: what its containers wait for, else how they ended, else why it is nowhere.
fn trouble(object: &PodObject) -> Option<String> {
    let status = object.status.as_ref()?;
    let containers = status.init_container_statuses.iter().flatten();
    let containers = containers.chain(status.container_statuses.iter().flatten());
    let words = |reason: Option<&String>, message: Option<&String>| {
        let parts: Vec<&str> = [reason, message]
            .into_iter()
            .flatten()
            .map(|text| text.trim())
            .collect();
        let text = parts
            .iter()
            .filter(|text| !text.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(": ");
        (!text.is_empty()).then_some(text)
    };
    let waits = |container: &ContainerStatus| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let ended = container
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let ended = ended
            .map(|ended| format!("; it ended with code {}", ended.exit_code))
            .unwrap_or_default();
        words(waiting.reason.as_ref(), waiting.message.as_ref()).map(|why| format!("{why}{ended}"))
    };
    let found = containers.clone().find_map(waits);
    let nowhere = || {
        let conditions = status.conditions.iter().flatten();
        let mut wrong = conditions.filter(|condition| condition.status != "True" && condition.type_ != "Ready");
        wrong.find_map(|condition| words(condition.reason.as_ref(), condition.message.as_ref()))
    };
    let unready = || {
        let mut running = containers.clone().filter(|container| !container.ready);
        running
            .next()
            .map(|container| format!("the container {} runs and its readiness probe fails", container.name))
    };
    let said = words(status.reason.as_ref(), status.message.as_ref());
    found.or(said).or_else(unready).or_else(nowhere)
}

pub(super) async fn nodes(client: &Client) -> Seen<Vec<Node>> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let node_images: Api<NodeImage> = Api::all(client.clone());
    let all = ListParams::default();
    let (nodes, node_images) = futures::join!(see(nodes.list(&all)), see(node_images.list(&all)));
    // Without the CRD there are none; that the CRD is missing is said elsewhere.
    let node_images = node_images.map(|list| list.items).unwrap_or_default();
    let agents = controller_settings(client).await.agent_nodes;
    // Where no agent is to run, none is missed.
    let has_agent = |node: &&NodeObject| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
        let no_agent = agents.without_agent(&node.name_any(), node.labels(), taints.unwrap_or_default());
        no_agent.is_none()
    };
    let node = |node: &NodeObject| {
        let name = node.name_any();
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let image = node_images.iter().find(|image| image.name_any() == name);
        let agent = image.and_then(|image| image.status.as_ref()?.agent.as_ref());
        Node {
            ready: conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            has_node_image: image.is_some(),
            agent: agent.map(|agent| Agent {
                version: agent.version.clone(),
                runtime: agent.runtime.clone(),
                has_key: agent.public_key.is_some(),
                conflicts_with: agent.conflicts_with.clone(),
            }),
            name,
        }
    };
    Ok(nodes?.iter().filter(has_agent).map(node).collect())
}

#[expect(
    clippy::disallowed_methods,
    reason = "only to see at once that a Lease is fresh; one that seems old is watched"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests;
