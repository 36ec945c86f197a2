//! The cluster as a whole.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use kube::Client;
use larder_testkit::{
    Access, ControlPlane, Kubectl, KubernetesVersion, Lifetime, Options, Port, Process, Program, Scratch, kubectl,
    wait_until,
};
use serde_json::{Value, json};

use crate::node::{TestNode, create, create_with_taints};
use crate::programs::program;
use crate::{SOON, Setup};

/// A control plane, a controller and nodes.
pub struct Cluster {
    /// The nodes, `node-0` first.
    pub nodes: Vec<TestNode>,
    /// The controller.
    pub controller: Process,
    /// The control plane.
    pub plane: ControlPlane,
    pub(crate) scratch: Scratch,
    setup: Setup,
    port: Port,
}

impl Cluster {
    /// Starts everything and waits until controller and agents are ready. Node N carries the label `e2e/number: "N"`.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(Setup::nodes(nodes)).await
    }

    /// The same with something special about it.
    pub async fn start_with(setup: Setup) -> Self {
        let options = Options {
            crds: larder_api::crds(),
            controller_manager: true,
            ..Options::default()
        };
        let plane = ControlPlane::start(options).await.unwrap();
        let scratch = Scratch::create("e2e").unwrap();
        let rbac = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
        let mut files: Vec<PathBuf> = std::fs::read_dir(&rbac)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        // Kubernetes has what the policy needs from 1.30 on.
        let has_policy = KubernetesVersion::tested().enforces_node_policy();
        files.retain(|file| has_policy || !file.ends_with("30-agent-own-node.yaml"));
        let files = files.iter().flat_map(|file| [OsStr::new("-f"), file.as_os_str()]);
        let arguments = [OsStr::new("apply")].into_iter().chain(files);
        let applied = kubectl(Kubectl::Current, plane.kubeconfig(), arguments).await.unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
        for object in &setup.objects {
            apply(plane.kubeconfig(), &scratch, object).await.unwrap();
        }

        let port = Port::reserve().unwrap();
        let controller = start_controller(plane.access(), &scratch, "controller", &port, &setup.controller).await;
        let mut cluster = Self {
            nodes: Vec::new(),
            controller,
            plane,
            scratch,
            setup,
            port,
        };
        for number in 0..cluster.setup.nodes {
            let labels = json!({ "e2e/number": number.to_string() });
            let name = format!("node-{number}");
            create(cluster.plane.access(), &name, &labels).await;
            cluster.join(&name).await;
        }
        cluster.wait_until_ready().await;
        cluster
    }

    /// One more Node, on which nothing runs yet.
    pub async fn create_node(&self, name: &str) {
        create(self.plane.access(), name, &json!({})).await;
    }

    /// One more Node with these labels, on which nothing runs yet.
    pub async fn create_labelled_node(&self, name: &str, labels: &Value) {
        create(self.plane.access(), name, labels).await;
    }

    /// One more Node that registers with these taints, on which nothing runs yet.
    pub async fn create_tainted_node(&self, name: &str, taints: &Value) {
        create_with_taints(self.plane.access(), name, &json!({}), taints).await;
    }

    /// Runtime and agent of a Node that is there, ready.
    pub async fn add_node(&mut self, name: &str) {
        self.join(name).await;
        self.wait_until_ready().await;
    }

    pub(crate) async fn join(&mut self, name: &str) {
        let node = TestNode::start(self.plane.access(), &self.scratch, name, &self.setup).await;
        self.nodes.push(node);
    }

    /// Kills the controller and starts it with these flags instead of those it had.
    pub async fn restart_controller(&mut self, flags: &[&str]) {
        self.controller.kill().unwrap();
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.controller = start_controller(self.plane.access(), &self.scratch, "controller", &self.port, &flags).await;
        self.wait_until_ready().await;
    }

    /// One more replica of the controller, ready, that reaches the API server this way.
    pub async fn replica(&self, name: &str, access: &Access) -> Process {
        let port = Port::reserve().unwrap();
        let mut replica = start_controller(access, &self.scratch, name, &port, &[]).await;
        let url = format!("http://{}/readyz", port.address());
        replica.wait_ready(SOON, async || answers(&url).await).await.unwrap();
        replica
    }

    /// Whether the controller is ready; otherwise what it says.
    pub async fn controller_is_ready(&self) -> Result<(), String> {
        answers(&format!("http://{}/readyz", self.port.address())).await
    }

    /// What the controller counts.
    pub async fn controller_metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.port.address());
        reqwest::get(&url).await.unwrap().text().await.unwrap()
    }

    /// Waits until the controller and all agents are ready.
    pub async fn wait_until_ready(&mut self) {
        let url = format!("http://{}/readyz", self.port.address());
        self.controller
            .wait_ready(SOON, async || answers(&url).await)
            .await
            .unwrap();
        for node in &mut self.nodes {
            node.wait_until_ready().await;
        }
        for node in &self.nodes {
            wait_until(
                SOON,
                format!("the agent of {} to introduce itself", node.name),
                async || {
                    let status = self.find_node_image(&node.name).await.and_then(|found| found.status);
                    status.is_some_and(|status| status.agent.is_some())
                },
            )
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.logs()));
        }
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.plane.client().unwrap()
    }

    /// The ends of all logs, for a test that fails.
    pub fn logs(&self) -> String {
        let agents = self
            .nodes
            .iter()
            .map(|node| format!("--- agent {}\n{}", node.name, node.agent.log_tail()));
        let controller = format!("--- controller\n{}", self.controller.log_tail());
        std::iter::once(controller).chain(agents).collect::<Vec<_>>().join("\n")
    }

    /// kubectl with all permissions; its output if it succeeds.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl_as(self.plane.kubeconfig(), arguments).await
    }

    /// kubectl with the permissions of this kubeconfig file; its output if it succeeds, else its errors.
    pub async fn kubectl_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String, String> {
        run_kubectl(kubeconfig, arguments).await
    }

    /// Applies an object as a person does, from a file.
    pub async fn apply(&self, object: &Value) {
        self.try_apply(object).await.unwrap();
    }

    /// The same; what kubectl says, either way.
    pub async fn try_apply(&self, object: &Value) -> Result<String, String> {
        apply(self.plane.kubeconfig(), &self.scratch, object).await
    }
}

async fn apply(kubeconfig: &Path, scratch: &Scratch, object: &Value) -> Result<String, String> {
    let file = scratch
        .path()
        .join(format!("{}.json", larder_testkit::unique_name("apply")));
    std::fs::write(&file, object.to_string()).unwrap();
    run_kubectl(kubeconfig, &["apply", "-f", file.to_str().unwrap()]).await
}

/// Its output if it succeeds, else its errors.
async fn run_kubectl(kubeconfig: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = kubectl(Kubectl::Current, kubeconfig, arguments).await.unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

async fn start_controller(access: &Access, scratch: &Scratch, name: &str, port: &Port, flags: &[String]) -> Process {
    let token = access
        .service_account_token("larder-system", "larder-controller", None)
        .await
        .unwrap();
    let kubeconfig = access.write_kubeconfig(scratch.path(), name, &token).unwrap();
    let mut args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--listen={}", port.address()),
        "--log=info,kube_client=off,kube_runtime=off,larder_controller=debug".to_owned(),
    ];
    args.extend_from_slice(flags);
    Process::start(Program {
        name: "larder-controller",
        path: program("larder-controller").await,
        args,
        env: vec![],
        log: scratch.path().join(format!("{name}.log")),
        lifetime: Lifetime::Handle,
    })
    .unwrap()
}

/// Whether this address answers with success; otherwise what it says.
pub(crate) async fn answers(url: &str) -> Result<(), String> {
    let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
    if answer.status().is_success() {
        return Ok(());
    }
    Err(answer.text().await.unwrap_or_default())
}
