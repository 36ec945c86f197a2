//! The life of `larder up`: ready, killed, started again, stopped; and who else may use its folder and port.

use std::net::TcpListener;
use std::time::Duration;

use larder_testkit::{Link, wait_until};
use rustix::process::Signal;

use crate::larder::{Larder, exit_code, send};
use crate::up::{ON_NODE_2, Source, Up};

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_mid_pull_it_goes_on_where_it_was() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    source.slow_down();
    up.larder.write_job("web", &image, ON_NODE_2);
    up.larder
        .write_job("done", &image, "  selector:\n    names: [nobody]\n");
    up.run(&["run", "-f", "web.yaml", "--timeout", "1s"]).await.badly(4);
    up.run(&["run", "-f", "done.yaml", "--timeout", "1s"]).await.badly(4);
    let before = up.json(&["status"]).await;

    let up = up.kill_and_start().await;
    let after = up.json(&["status"]).await;
    let names = |jobs: &serde_json::Value| {
        jobs["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    source.line.set(Link::Open);
    wait_until(Duration::from_mins(1), "the job ends", async || {
        up.json(&["status", "web"]).await["jobs"][0]["phase"] == "Complete"
    })
    .await
    .unwrap();
    let index = up.larder.home.path().join("data/nodes/node-2/images/index.json");
    assert!(std::fs::read_to_string(index).unwrap().contains(&image));

    // And again, with nothing to do.
    let mut up = up.kill_and_start().await;
    assert_eq!(up.json(&["status", "web"]).await["jobs"][0]["phase"], "Complete");
    assert_eq!(up.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_it_says_so_everything_is_ready() {
    let mut up = Up::start().await;
    let data = up.larder.home.path().join("data").canonicalize().unwrap();
    let last = format!("KUBECONFIG={}", data.join("kubeconfig").display());
    assert_eq!(up.said.lines().last(), Some(last.as_str()));
    let mut kubectl = up.larder.command("kubectl");
    kubectl.args(["--kubeconfig", "data/kubeconfig", "get", "nodeimages", "-o"]);
    kubectl.arg("jsonpath={range .items[*]}{.metadata.name} {.status.agent.publicKey}{\"\\n\"}{end}");
    let nodes = crate::larder::ended(kubectl).await.well();
    let keys: Vec<&str> = nodes
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, key)| key)
        .collect();
    assert_eq!(keys.len(), 2, "{nodes}");
    assert!(keys.iter().all(|key| !key.is_empty()), "{nodes}");
    let log = std::fs::read_to_string(data.join("larder.log")).unwrap();
    assert!(log.contains("larder_controller"), "{log}");
    assert_eq!(up.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_folder_has_one_user() {
    let up = Up::start().await;
    let sentence = up.larder.run(&["up", "--data", "data"]).await.badly(2);
    assert!(sentence.starts_with("another larder is running on /"), "{sentence}");
    assert!(
        sentence.ends_with("/data; stop it, or choose another folder with --data"),
        "{sentence}"
    );
}

#[tokio::test]
async fn a_port_that_is_taken_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let larder = Larder::new();
    let sentence = larder
        .run(&["up", "--data", "data", "--listen", &address])
        .await
        .badly(2);
    assert_eq!(
        sentence,
        format!(
            "the embedded API server cannot listen: listening on {address}: Address already in use (os error 98); \
             choose another address with --listen"
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_stop_while_it_starts_it_ends_well() {
    for signal in [Signal::INT, Signal::TERM] {
        let larder = Larder::new();
        let mut child = larder
            .larder(&["up", "--nodes", "3", "--data", "data"])
            .spawn()
            .unwrap();
        let lock = larder.home.path().join("data/lock");
        wait_until(Duration::from_secs(30), "it has begun", async || lock.exists())
            .await
            .unwrap();
        send(&child, signal);
        assert_eq!(exit_code(&mut child).await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn told_twice_to_stop_it_ends_at_once() {
    let mut up = Up::start().await;
    send(&up.process.child, Signal::INT);
    send(&up.process.child, Signal::TERM);
    assert_eq!(exit_code(&mut up.process.child).await, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_says_log_in_again() {
    let up = Up::start().await;
    let kubeconfig = up.larder.home.path().join("data/kubeconfig");
    let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    config["users"][0]["user"]["token"] = "expired".into();
    up.larder.write("old", &config.to_string());
    up.larder.write_job("web", "nginx:1", "");
    let refused = "the API server does not accept the credentials; they may have expired, log in again";
    for (arguments, doing) in [
        (&["status"][..], "reading jobs"),
        (&["why", "web"], "reading jobs"),
        (&["run", "-f", "web.yaml"], "web.yaml: creating ImagePullJob web"),
        (&["plan", "-f", "web.yaml"], "web.yaml: creating ImagePullJob web"),
        (&["doctor"], "asking the API server for its version"),
    ] {
        let arguments = [arguments, &["--kubeconfig", "old"]].concat();
        assert_eq!(up.larder.run(&arguments).await.badly(3), format!("{doing}: {refused}"));
    }
}
