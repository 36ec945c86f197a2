//! `larder up`, running, and a registry for its nodes to pull from.

use larder_testkit::image::{Image, Recipe};
use larder_testkit::{Auth, Link, Registry, Throttle};
use rustix::process::Signal;
use serde_json::json;

use crate::larder::{Ended, Larder, Running, ended, exit_code, send};

/// Everything on this machine. The nodes are node-1, which may be the machine's own runtime, and node-2, which is a folder:
/// tests pull onto node-2 alone.
pub(crate) struct Up {
    pub(crate) larder: Larder,
    pub(crate) process: Running,
    pub(crate) said: String,
}

impl Up {
    pub(crate) async fn start() -> Self {
        Self::start_in(Larder::new()).await
    }

    /// Starts it, or starts it again, and waits until it says that everything is ready.
    pub(crate) async fn start_in(larder: Larder) -> Self {
        let mut process = Running::start(&larder, &["up", "--nodes", "2", "--data", "data"]);
        let said = process.read_until("KUBECONFIG=").await;
        Self { larder, process, said }
    }

    /// Runs a command against it.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        let kubeconfig = ["--kubeconfig", "data/kubeconfig"];
        self.larder.run(&[arguments, &kubeconfig].concat()).await
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.run(&[arguments, &["-o", "json"]].concat()).await.well();
        serde_json::from_str(&text).unwrap()
    }

    /// Puts labels on a node, as kubectl does.
    pub(crate) async fn label(&self, node: &str, labels: &[&str]) {
        self.kubectl(&[&["label", "node", node], labels].concat()).await;
    }

    /// kubectl, which has to succeed.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut kubectl = self.larder.command("kubectl");
        kubectl.args(["--kubeconfig", "data/kubeconfig"]).args(arguments);
        ended(kubectl).await.well()
    }

    /// A Secret with the login of the user tiger for this registry, in a file.
    pub(crate) fn write_secret(&self, name: &str, registry: &str, password: &str) {
        let config = json!({ "auths": { registry: { "username": "tiger", "password": password } } }).to_string();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": config },
        });
        self.larder.write(&format!("{name}.yaml"), &secret.to_string());
    }

    /// Ctrl-C, and its exit code.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        send(&self.process.child, Signal::INT);
        exit_code(&mut self.process.child).await
    }

    /// Kills it in the middle of whatever it does, and starts it again.
    pub(crate) async fn kill_and_start(mut self) -> Self {
        self.process.child.kill().await.unwrap();
        Self::start_in(self.larder).await
    }
}

/// A real registry behind a line that can be slow.
pub(crate) struct Source {
    pub(crate) registry: Registry,
    pub(crate) line: Throttle,
}

impl Source {
    pub(crate) async fn start() -> Self {
        Self::start_for(Auth::Open).await
    }

    /// For one user alone.
    pub(crate) async fn private(user: &str, password: &str) -> Self {
        let (user, password) = (user.to_owned(), password.to_owned());
        Self::start_for(Auth::Basic { user, password }).await
    }

    async fn start_for(auth: Auth) -> Self {
        let registry = Registry::start(auth).await.unwrap();
        let line = Throttle::start(registry.address()).await.unwrap();
        Self { registry, line }
    }

    /// So slow that a pull of a sample image is still under way when others have done what they wanted.
    pub(crate) fn slow_down(&self) {
        self.line.set(Link::bytes_per_second(50_000));
    }

    /// Slow enough for bytes to be counted: a pull that is over at once is not measured.
    pub(crate) fn walk(&self) {
        self.line.set(Link::bytes_per_second(200_000));
    }

    /// Pushes two sample images of two layers each, of which they share one.
    pub(crate) async fn offer_two_that_share_a_layer(&self) -> [String; 2] {
        for (repository, seed) in [("first", 7), ("second", 8)] {
            let image: Image = Recipe::random(seed, 2, 300_000).build();
            self.registry.push(&image, repository, "v1").await.unwrap();
        }
        ["first", "second"].map(|repository| format!("{}/{repository}:v1", self.line.host()))
    }

    /// Pushes a sample image and says how the nodes name it.
    pub(crate) async fn offer(&self, repository: &str) -> String {
        let image: Image = Recipe::random(7, 2, 300_000).build();
        self.registry.push(&image, repository, "v1").await.unwrap();
        format!("{}/{repository}:v1", self.line.host())
    }
}

/// The part of a job that keeps it off this machine's own runtime.
pub(crate) const ON_NODE_2: &str = "  selector:\n    names: [node-2]\n";
