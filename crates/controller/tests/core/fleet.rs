//! Nodes whose agents do as they are told by the test: they take up orders, pull for so long, and answer.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt as _};
use larder_api::NodeImage;
use larder_model::Reason;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// What an agent does with an order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Agent {
    /// Pulls for so long, and has the image.
    Pulls(Duration),
    /// Fails at once.
    Fails(Reason),
    /// Fails at once for one image, and has all others.
    Lacks(&'static str, Reason),
    /// Says that it pulls, and nothing more.
    Hangs,
    /// Was there once, and says nothing.
    Mute,
    /// Never was there.
    Never,
}

/// Stands for all images together.
const ALL: &str = "";

/// An agent that needs no time at all.
pub(crate) const QUICK: Agent = Agent::Pulls(Duration::ZERO);

/// Nodes and their agents.
pub(crate) struct Fleet {
    client: Client,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    agents: BTreeMap<String, Agent>,
    /// Last version taken up, by node, image and tag.
    seen: BTreeMap<(String, String, String), i64>,
    /// By node and image.
    pulls: BTreeMap<(String, String), usize>,
    /// By image: now, and the most there ever were.
    at_once: BTreeMap<String, (usize, usize)>,
    public_key: Option<String>,
}

impl Fleet {
    pub(crate) fn new(client: &Client) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let task = tokio::spawn(follow(client.clone(), Arc::clone(&shared)));
        Self {
            client: client.clone(),
            shared,
            task,
        }
    }

    /// Nodes `node-0`, `node-1`, …, each with an agent.
    pub(crate) async fn of(client: &Client, agents: &[Agent]) -> Self {
        let fleet = Self::new(client);
        for (number, agent) in agents.iter().enumerate() {
            fleet.add(&format!("node-{number}"), *agent, json!({})).await;
        }
        fleet
    }

    /// Agents publish this key from now on.
    pub(crate) fn publish_key(&self, key: &str) {
        self.shared.lock().unwrap().public_key = Some(key.to_owned());
    }

    pub(crate) async fn add(&self, name: &str, agent: Agent, labels: Value) {
        self.shared.lock().unwrap().agents.insert(name.to_owned(), agent);
        let node = json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let node: Node = serde_json::from_value(node).unwrap();
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
        self.set_ready(name, true).await;
    }

    pub(crate) async fn set_ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let nodes = Api::<Node>::all(self.client.clone());
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Changes what an agent does with its next order.
    pub(crate) fn set(&self, name: &str, agent: Agent) {
        self.shared.lock().unwrap().agents.insert(name.to_owned(), agent);
    }

    pub(crate) fn pulls(&self, name: &str) -> usize {
        self.count(|node, _| node == name)
    }

    pub(crate) fn pulls_of(&self, wanted: &str) -> usize {
        self.count(|_, image| image == wanted)
    }

    pub(crate) fn all_pulls(&self) -> usize {
        self.count(|_, _| true)
    }

    fn count(&self, is: impl Fn(&str, &str) -> bool) -> usize {
        let shared = self.shared.lock().unwrap();
        let counted = shared.pulls.iter().filter(|((node, image), _)| is(node, image));
        counted.map(|(_, pulls)| pulls).sum()
    }

    /// The most pulls of one image that were under way at the same moment.
    pub(crate) fn most_at_once_of(&self, image: &str) -> usize {
        self.shared
            .lock()
            .unwrap()
            .at_once
            .get(image)
            .map_or(0, |(_, most)| *most)
    }

    /// The most pulls that were under way at the same moment, of all images together.
    pub(crate) fn most_at_once(&self) -> usize {
        self.shared
            .lock()
            .unwrap()
            .at_once
            .get(ALL)
            .map_or(0, |(_, most)| *most)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, shared: Arc<Mutex<Shared>>) {
    let api = Api::<NodeImage>::all(client.clone());
    let mut objects = pin!(
        watcher(api.clone(), Config::default())
            .default_backoff()
            .applied_objects()
    );
    while let Some(object) = objects.next().await {
        let Ok(object) = object else { continue };
        let name = object.name_any();
        let Some(agent) = shared.lock().unwrap().agents.get(&name).copied() else {
            continue;
        };
        if matches!(agent, Agent::Never) {
            continue;
        }
        if object.status.is_none() {
            let key = shared.lock().unwrap().public_key.clone();
            say(
                &api,
                &name,
                json!({"desired": 0, "agent": {"version": "test", "publicKey": key}}),
            )
            .await;
        }
        for (image, spec) in &object.spec.images {
            for entry in &spec.tags {
                let key = (name.clone(), image.clone(), entry.tag.clone());
                let news = {
                    let mut shared = shared.lock().unwrap();
                    let before = shared.seen.insert(key, entry.version);
                    before != Some(entry.version)
                };
                if news {
                    let (api, shared) = (api.clone(), Arc::clone(&shared));
                    let order = (name.clone(), image.clone(), entry.tag.clone(), entry.version);
                    tokio::spawn(async move { carry_out(&api, &shared, agent, order).await });
                }
            }
        }
        shared
            .lock()
            .unwrap()
            .seen
            .retain(|(node, image, tag), _| *node != name || object.entry(image, tag).is_some());
        forget(&api, &object).await;
    }
}

/// A status entry goes with the order that it answers.
async fn forget(api: &Api<NodeImage>, object: &NodeImage) {
    let Some(status) = &object.status else { return };
    let gone = status
        .image_statuses
        .keys()
        .filter(|image| !object.spec.images.contains_key(*image));
    let gone: serde_json::Map<String, Value> = gone.map(|image| (image.clone(), Value::Null)).collect();
    if !gone.is_empty() {
        say(api, &object.name_any(), json!({"imageStatuses": gone})).await;
    }
}

async fn carry_out(
    api: &Api<NodeImage>,
    shared: &Mutex<Shared>,
    agent: Agent,
    (node, image, tag, version): (String, String, String, i64),
) {
    let result = |phase: &str, more: Value| {
        let mut entry = json!({"tag": tag, "version": version, "phase": phase});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"imageStatuses": {image.clone(): {"tags": [entry]}}})
    };
    let now = || k8s_openapi::jiff::Timestamp::UNIX_EPOCH.to_string();
    let agent = match agent {
        Agent::Lacks(lacking, reason) if lacking == image => Agent::Fails(reason),
        Agent::Lacks(..) => QUICK,
        agent => agent,
    };
    match agent {
        Agent::Pulls(time) => {
            begin(shared, &node, &image);
            if !time.is_zero() {
                say(api, &node, result("Pulling", json!({}))).await;
                tokio::time::sleep(time).await;
            }
            end(shared, &image);
            let success = json!({"completionTime": now(), "lastSucceeded": {"version": version}, "reason": null, "message": null});
            say(api, &node, result("Succeeded", success)).await;
        }
        Agent::Fails(reason) => {
            begin(shared, &node, &image);
            end(shared, &image);
            let failure = json!({"completionTime": now(), "reason": reason.as_str(), "message": "it did not work"});
            say(api, &node, result("Failed", failure)).await;
        }
        Agent::Hangs => say(api, &node, result("Pulling", json!({}))).await,
        Agent::Mute | Agent::Never | Agent::Lacks(..) => {}
    }
}

fn begin(shared: &Mutex<Shared>, node: &str, image: &str) {
    let mut shared = shared.lock().unwrap();
    *shared.pulls.entry((node.to_owned(), image.to_owned())).or_default() += 1;
    for key in [image, ALL] {
        let (now, most) = shared.at_once.entry(key.to_owned()).or_default();
        *now += 1;
        *most = (*most).max(*now);
    }
}

fn end(shared: &Mutex<Shared>, image: &str) {
    let mut shared = shared.lock().unwrap();
    for key in [image, ALL] {
        shared.at_once.entry(key.to_owned()).or_default().0 -= 1;
    }
}

/// An agent reports until somebody hears it, at most for a minute.
async fn say(api: &Api<NodeImage>, node: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    for _ in 0..600 {
        match api.patch_status(node, &PatchParams::default(), &patch).await {
            Ok(_) => return,
            // A node that is gone has nobody to tell.
            Err(kube::Error::Api(error)) if error.is_not_found() => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("nobody heard what {node} has to say");
}
