//! One node: a Node object that is Ready, a real containerd, a real agent with a token bound to the node.

use std::net::SocketAddr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use larder_testkit::{Access, Containerd, ContainerdVersion, CriProxy, Lifetime, Port, Process, Program, Scratch};
use serde_json::{Value, json};

use crate::programs::program;
use crate::{SOON, Setup};

/// A node of the cluster.
pub struct TestNode {
    /// Its name.
    pub name: String,
    /// Its runtime.
    pub containerd: Containerd,
    /// Its agent.
    pub agent: Process,
    /// What the agent asked of the runtime, if that is recorded.
    pub recorder: Option<CriProxy>,
    /// With it one has the permissions of the agent.
    pub kubeconfig: PathBuf,
    state: PathBuf,
    health: Health,
}

/// Where an agent answers questions about itself.
pub(crate) struct Health {
    address: SocketAddr,
    /// Reserved as long as the agent is there.
    _port: Option<Port>,
}

impl Health {
    /// At an address that nobody else can have.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, _port: None }
    }

    pub(crate) fn on_loopback() -> Self {
        let port = Port::reserve().unwrap();
        Self {
            address: port.address(),
            _port: Some(port),
        }
    }
}

/// The way to the API: a flag for the agent, and how its program is changed to go that way.
pub(crate) struct Way<'a> {
    pub(crate) flag: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) health: Health,
    pub(crate) change: &'a (dyn Fn(Program) -> Program + Sync),
}

impl TestNode {
    /// The Node object must be there.
    pub(crate) async fn start(access: &Access, scratch: &Scratch, name: &str, setup: &Setup) -> Self {
        let token = access
            .service_account_token("larder-system", "larder-agent", Some(name))
            .await
            .unwrap();
        let kubeconfig = access.write_kubeconfig(scratch.path(), name, &token).unwrap();
        let way = Way {
            flag: format!("--kubeconfig={}", kubeconfig.display()),
            kubeconfig,
            health: Health::on_loopback(),
            change: &|program| program,
        };
        Self::start_on(way, scratch, name, setup).await
    }

    /// The same by another way to the API.
    pub(crate) async fn start_on(way: Way<'_>, scratch: &Scratch, name: &str, setup: &Setup) -> Self {
        let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
        let recorder = setup.recorded.then(|| CriProxy::start(&containerd.socket()).unwrap());
        let socket = recorder
            .as_ref()
            .map_or_else(|| containerd.socket(), |recorder| recorder.socket().to_owned());
        let state = scratch.path().join(format!("state-{name}"));
        std::fs::create_dir(&state).unwrap();
        let mut args = vec![
            format!("--node-name={name}"),
            way.flag,
            format!("--runtime-endpoint=unix://{}", socket.display()),
            format!("--state-dir={}", state.display()),
            format!("--listen={}", way.health.address),
            format!("--hosts-dir={}", containerd.hosts_folder().display()),
            "--log=info,kube_client=off,kube_runtime=off,larder_agent=debug".to_owned(),
        ];
        args.extend_from_slice(&setup.agent);
        let program = Program {
            name: "larder-agent",
            path: program("larder-agent").await,
            args,
            env: vec![],
            log: scratch.path().join(format!("agent-{name}.log")),
            lifetime: Lifetime::Handle,
        };
        Self {
            name: name.to_owned(),
            containerd,
            agent: Process::start((way.change)(program)).unwrap(),
            recorder,
            kubeconfig: way.kubeconfig,
            state,
            health: way.health,
        }
    }

    /// Takes the agent away with everything it keeps on disk, its key too, and starts one anew.
    pub async fn reinstall_agent(&mut self) {
        self.agent.kill().unwrap();
        std::fs::remove_dir_all(&self.state).unwrap();
        std::fs::create_dir(&self.state).unwrap();
        self.agent.restart().unwrap();
        self.wait_until_ready().await;
    }

    /// Waits until the agent is ready.
    pub async fn wait_until_ready(&mut self) {
        let url = format!("http://{}/readyz", self.health.address);
        self.agent
            .wait_ready(SOON, async || crate::cluster::answers(&url).await)
            .await
            .unwrap();
    }

    /// Whether the runtime has this reference, with this digest.
    pub async fn has_image(&self, reference: &str, digest: &str) -> bool {
        let output = self.containerd.ctr(["images", "ls"]).await.unwrap();
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        listed
            .lines()
            .any(|line| line.starts_with(&format!("{reference} ")) && line.contains(digest))
    }
}

/// Creates a Node that is Ready and has no taints.
pub(crate) async fn create(access: &Access, name: &str, labels: &Value) {
    create_with_taints(access, name, labels, &Value::Null).await;
}

/// Creates a Node that is Ready and has had these taints from the beginning.
pub(crate) async fn create_with_taints(access: &Access, name: &str, labels: &Value, taints: &Value) {
    let nodes = Api::<Node>::all(access.client().unwrap());
    let mut all = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
    all.as_object_mut()
        .unwrap()
        .extend(labels.as_object().cloned().unwrap_or_default());
    let node = json!({ "metadata": { "name": name, "labels": all }, "spec": { "taints": taints } });
    let node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let now = "2026-01-01T00:00:00Z";
    let ready = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }] } });
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(ready))
        .await
        .unwrap();
    // The API server taints every new Node until a controller of Kubernetes sees it; there is none here.
    let tainted = Patch::Merge(json!({ "spec": { "taints": taints } }));
    nodes.patch(name, &PatchParams::default(), &tainted).await.unwrap();
}
