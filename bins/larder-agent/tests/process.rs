//! The agent as a process: killed in the middle of a pull, stopped in good order, started wrongly.

#![expect(clippy::unwrap_used, reason = "what tests share fails by panicking, as tests do")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use larder_api::crds;
use larder_api::node_image::{ImageTagStatus, NodeImage, NodeImageSpec};
use larder_model::{ImageRef, NodeName, Phase};
use larder_seal::{Binding, Login, PublicKey, seal};
use larder_testkit::image::Recipe;
use larder_testkit::{
    Access, Auth, Containerd, ContainerdVersion, ControlPlane, CriProxy, Lifetime, Link, Port, Process, Program,
    Registry, Throttle, unique_name, wait_for, wait_until,
};
use rstest::rstest;
use serde_json::json;

const SOON: Duration = Duration::from_mins(1);
const MIB: usize = 1 << 20;

/// One node with an agent that is a process.
struct Node {
    name: String,
    images: Api<NodeImage>,
    agent: Process,
    listen: Port,
    folder: tempfile::TempDir,
}

impl Node {
    async fn start(access: &Access, reach: &Access, socket: &Path) -> Self {
        Self::start_logging(access, reach, socket, "info").await
    }

    async fn start_logging(access: &Access, reach: &Access, socket: &Path, log: &str) -> Self {
        let name = unique_name("node");
        let images = Api::<NodeImage>::all(access.client().unwrap());
        let empty = NodeImage::new(&name, NodeImageSpec::default());
        images.create(&PostParams::default(), &empty).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = reach
            .write_kubeconfig(folder.path(), "agent", access.admin_token())
            .unwrap();
        let listen = Port::reserve().unwrap();
        let args = [
            ("--node-name", name.clone()),
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--runtime-endpoint", format!("unix://{}", socket.display())),
            ("--state-dir", folder.path().join("state").display().to_string()),
            ("--listen", listen.address().to_string()),
            ("--log", log.to_owned()),
        ];
        let program = Program {
            name: "larder-agent",
            path: env!("CARGO_BIN_EXE_larder-agent").into(),
            args: args
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value])
                .collect(),
            env: vec![],
            log: folder.path().join("agent.log"),
            lifetime: Lifetime::Handle,
        };
        let agent = Process::start(program).unwrap();
        Self {
            name,
            images,
            agent,
            listen,
            folder,
        }
    }

    async fn order(&self, reference: &str) -> ImageRef {
        let image = ImageRef::parse(reference).unwrap();
        let policy = json!({"timeoutSeconds": 60, "backoffLimit": 0, "ttlSecondsAfterFinished": 3600});
        let tags = json!([{"tag": image.tag_text(), "pullPolicy": policy, "progressSeconds": 1}]);
        let patch = json!({"spec": {"images": {image.name(): {"tags": tags}}}});
        self.images
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        image
    }

    async fn until(&self, image: &ImageRef, what: &str, good: impl Fn(&ImageTagStatus) -> bool) -> ImageTagStatus {
        let question = async || {
            let object = self.images.get(&self.name).await.map_err(|error| error.to_string())?;
            match object.result(image.name(), &image.tag_text()) {
                Some(status) if good(status) => Ok(status.clone()),
                other => Err(format!("{other:?}; {}", self.agent.log_tail())),
            }
        };
        wait_for(SOON, what, question).await.unwrap()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.listen.address());
        match reqwest::get(url).await {
            Ok(answer) => (answer.status().as_u16(), answer.text().await.unwrap_or_default()),
            Err(error) => (0, error.to_string()),
        }
    }
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn killed_in_mid_pull_it_takes_the_pull_up_again(#[case] version: ContainerdVersion) {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let line = Throttle::start(registry.address()).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 4 * MIB).build(), "app", "1")
        .await
        .unwrap();
    line.set(Link::bytes_per_second(500_000));
    let containerd = Containerd::start(version).await.unwrap();
    let mut node = Node::start(&access, &access, &containerd.socket()).await;
    let image = node.order(&format!("{}/app:1", line.host())).await;
    node.until(&image, "the first bytes", |status| status.bytes_done > Some(0))
        .await;
    node.agent.kill().unwrap();
    line.set(Link::Open);
    node.agent.restart().unwrap();
    let status = node
        .until(&image, "an answer", |status| status.phase().is_final())
        .await;
    assert_eq!((status.phase(), status.digest), (Phase::Succeeded, Some(pushed.digest)));
    assert_eq!(
        status.attempts,
        Some(1),
        "the try that was killed is not the image's fault"
    );
}

#[tokio::test]
async fn killed_after_the_pull_it_reports_once_the_api_is_back_and_does_not_pull_again() {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let line = Throttle::start(access.address()).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let slow = Throttle::start(registry.address()).await.unwrap();
    registry
        .push(&Recipe::random(1, 1, MIB).build(), "app", "1")
        .await
        .unwrap();
    slow.set(Link::bytes_per_second(500_000));
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let proxy = CriProxy::start(&containerd.socket()).unwrap();
    let mut node = Node::start(&access, &access.through(line.address()).unwrap(), proxy.socket()).await;
    let image = node.order(&format!("{}/app:1", slow.host())).await;
    wait_until(SOON, "the pull", async || !proxy.calls_of("PullImage").is_empty())
        .await
        .unwrap();
    line.set(Link::Refused);
    let finished = async || node.agent.log_tail().contains("pull succeeded");
    wait_until(SOON, "the end of the pull", finished).await.unwrap();
    node.agent.kill().unwrap();
    node.agent.restart().unwrap();
    wait_until(SOON, "the outage to be noticed", async || {
        node.get("/readyz").await.1.contains("api: ")
    })
    .await
    .unwrap();
    line.set(Link::Open);
    let status = node
        .until(&image, "an answer", |status| status.phase().is_final())
        .await;
    assert_eq!((status.phase(), status.attempts), (Phase::Succeeded, Some(1)));
    assert_eq!(
        proxy.calls_of("PullImage").len(),
        1,
        "a finished image is not pulled again"
    );
}

/// The first moment at which the API shows the image as there.
async fn shown(node: &Node, image: &ImageRef) {
    let config = watcher::Config::default().fields(&format!("metadata.name={}", node.name));
    let changes = watcher(node.images.clone(), config).default_backoff().applied_objects();
    let there = changes.filter_map(async |change| {
        let object = change.ok()?;
        let status = object.result(image.name(), &image.tag_text())?;
        (status.phase() == Phase::Succeeded).then_some(())
    });
    let seen = tokio::time::timeout(SOON, std::pin::pin!(there).next()).await;
    assert_eq!(seen, Ok(Some(())), "{}", node.agent.log_tail());
}

#[tokio::test]
async fn killed_the_moment_a_result_shows_it_pulls_nothing_twice() {
    const ROUNDS: usize = 5;
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let proxy = CriProxy::start(&containerd.socket()).unwrap();
    let mut node = Node::start(&access, &access, proxy.socket()).await;
    for round in 0..ROUNDS {
        let built = Recipe::random(round as u64, 1, 1000).build();
        let pushed = registry.push(&built, &format!("app-{round}"), "1").await.unwrap();
        let image = node.order(&pushed.reference).await;
        shown(&node, &image).await;
        node.agent.kill().unwrap();
        node.agent.restart().unwrap();
        wait_until(SOON, "the next life", async || node.get("/readyz").await.0 == 200)
            .await
            .unwrap();
    }
    let log = std::fs::read_to_string(node.folder.path().join("agent.log")).unwrap();
    assert_eq!(proxy.calls_of("PullImage").len(), ROUNDS, "{log}");
}

#[tokio::test]
async fn it_serves_health_and_metrics_and_stops_in_good_order() {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let mut node = Node::start(&access, &access, &containerd.socket()).await;
    wait_until(SOON, "readiness", async || node.get("/readyz").await.0 == 200)
        .await
        .unwrap();
    let image = node.order(&pushed.reference).await;
    node.until(&image, "success", |status| status.phase() == Phase::Succeeded)
        .await;
    assert_eq!(node.get("/healthz").await, (200, "ok\n".to_owned()));
    let (_, metrics) = node.get("/metrics").await;
    assert!(
        metrics.contains("larder_agent_pulls_total{result=\"succeeded\",reason=\"\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("larder_agent_api_writes_total{result=\"ok\"}"),
        "{metrics}"
    );
    let key = std::fs::metadata(node.folder.path().join("state/node.key")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777,
        0o600
    );

    send(&node.agent, rustix::process::Signal::TERM);
    wait_until(SOON, "the end of the agent", async || node.get("/healthz").await.0 == 0)
        .await
        .unwrap();
    assert!(
        node.agent.log_tail().contains("told to stop"),
        "{}",
        node.agent.log_tail()
    );
    node.agent.kill().unwrap();
}

fn send(agent: &Process, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(agent.pid().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The controller withdraws an order that is not answered, and tries the node again when it sees a sign of life.
#[tokio::test]
async fn stopped_and_resumed_it_writes_though_its_order_was_withdrawn_meanwhile() {
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::start(&access, &access, &containerd.socket()).await;
    let last_seen = async || {
        let status = node.images.get(&node.name).await.unwrap().status;
        status.and_then(|status| status.agent?.last_seen)
    };
    wait_until(SOON, "readiness", async || {
        node.get("/readyz").await.0 == 200 && last_seen().await.is_some()
    })
    .await
    .unwrap();
    // Its first words are all written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = last_seen().await;
    send(&node.agent, rustix::process::Signal::STOP);
    node.order("127.0.0.1:1/nothing:1").await;
    let withdrawn = json!([{"op": "add", "path": "/spec/images", "value": {}}]);
    let withdrawn: Patch<NodeImage> = Patch::Json(serde_json::from_value(withdrawn).unwrap());
    node.images
        .patch(&node.name, &PatchParams::default(), &withdrawn)
        .await
        .unwrap();
    // The time in the status has whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    send(&node.agent, rustix::process::Signal::CONT);
    wait_until(SOON, "a sign of life", async || last_seen().await != before)
        .await
        .unwrap();
    let withdrawn = async || {
        let status = node.images.get(&node.name).await.unwrap().status.unwrap();
        (status.desired, status.image_statuses.len()) == (0, 0)
    };
    wait_until(SOON, "an empty status", withdrawn).await.unwrap();
}

/// What the controller would seal for this node, object and image, on behalf of the object itself.
async fn seal_for(node: &Node, image: &ImageRef, password: &str) -> serde_json::Value {
    let published = async || {
        let object = node.images.get(&node.name).await.map_err(|error| error.to_string())?;
        let key = object.status.and_then(|status| status.agent?.public_key);
        key.zip(object.metadata.uid).ok_or("no key yet".to_owned())
    };
    let (key, uid) = wait_for(SOON, "the node's public key", published).await.unwrap();
    let binding = Binding {
        node: &NodeName::parse(&node.name).unwrap(),
        node_image_uid: &uid,
        image,
        claim_uid: &uid,
    };
    let logins = [Login::new("ann", password)];
    let sealed = seal(&PublicKey::parse(&key).unwrap(), &binding, "test", &logins).unwrap();
    json!({"id": sealed.id, "key": sealed.key, "data": sealed.data})
}

#[tokio::test]
async fn its_log_names_the_node_and_no_secret_however_much_it_says() {
    const PASSWORD: &str = "s3cret-enough";
    let access = ControlPlane::shared(&crds()).await.unwrap();
    let registry = Registry::start(Auth::basic("ann", PASSWORD)).await.unwrap();
    let pushed = registry
        .push(&Recipe::random(1, 1, 1000).build(), "app", "1")
        .await
        .unwrap();
    let containerd = Containerd::start(ContainerdVersion::V2).await.unwrap();
    let node = Node::start_logging(&access, &access, &containerd.socket(), "trace").await;
    let image = ImageRef::parse(&pushed.reference).unwrap();
    let sealed = seal_for(&node, &image, PASSWORD).await;
    let policy = json!({"timeoutSeconds": 60, "backoffLimit": 0, "ttlSecondsAfterFinished": 3600});
    // With a check, so that the agent itself asks the registry too.
    let tag = json!({"tag": "1", "pullPolicy": policy, "credentials": [sealed["id"]], "checks": ["disk"]});
    let patch = json!({"spec": {"images": {image.name(): {"tags": [tag]}}, "sealedCredentials": [sealed]}});
    node.images
        .patch(&node.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    node.until(&image, "success", |status| status.phase() == Phase::Succeeded)
        .await;
    let log = std::fs::read_to_string(node.folder.path().join("agent.log")).unwrap();
    let begins = log.lines().find(|line| line.contains("pull begins")).unwrap();
    assert!(begins.contains(&format!("node={}", node.name)), "{begins}");
    let encoded = base64_of(&format!("ann:{PASSWORD}"));
    for secret in [PASSWORD, &encoded] {
        let told = log.lines().find(|line| line.contains(secret));
        assert_eq!(told, None, "the log tells {secret}");
    }
}

/// As it stands in an `Authorization` header.
fn base64_of(text: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", "printf %s \"$0\" | base64 -w0", text])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[rstest]
#[case::no_name(&[], "the name of this node is not known")]
#[case::no_such_kubeconfig(&["--node-name", "a", "--kubeconfig", "/nowhere"], "cannot use the kubeconfig /nowhere")]
#[case::two_apis(&["--node-name", "a", "--kubeconfig", "/nowhere", "--server", "http://127.0.0.1:1"], "cannot be used with")]
#[case::no_node_name(&["--node-name", "Not A Name"], "Not A Name")]
#[case::no_socket(&["--node-name", "a", "--runtime-endpoint", "tcp://1.2.3.4"], "is no runtime endpoint")]
#[case::no_pulls(&["--node-name", "a", "--max-concurrent-pulls", "0"], "max-concurrent-pulls")]
#[case::plugins_without_folder(&["--node-name", "a", "--image-credential-provider-config", "/x"], "image-credential-provider-bin-dir")]
#[case::no_such_plugins(&["--node-name", "a", "--server", "http://127.0.0.1:1", "--image-credential-provider-config", "/nowhere", "--image-credential-provider-bin-dir", "/"], "cannot read /nowhere")]
fn a_wrong_configuration_is_one_sentence_and_exit_code_2(#[case] args: &[&str], #[case] says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_larder-agent"))
        .args(args)
        .args(["--listen", "127.0.0.1:0", "--state-dir"])
        .arg(folder.path())
        .env_remove("NODE_NAME")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(says), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
