//! A test process that is killed leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use larder_testkit::{
    Auth, ContainerRuntime, Containerd, ContainerdOptions, ContainerdVersion, ControlPlane, Node, NodeOptions, Options,
    Registry, RuntimeKind,
};
use larder_testkit::{is_running, wait_until};

/// Set in the second process, which is this same test and is killed by the first.
const VICTIM: &str = "LARDER_TESTKIT_VICTIM";

#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "the variable tells the second process what it is"
)]
async fn servers_and_folders_end_with_a_killed_test() {
    if std::env::var_os(VICTIM).is_some() {
        return victim().await;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers_and_folders_end_with_a_killed_test", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(victim.stdout.take().unwrap());
    let ready = output
        .lines()
        .map(Result::unwrap)
        .find(|line| line.contains("ready "))
        .unwrap();
    let words: Vec<_> = ready
        .split_whitespace()
        .skip_while(|word| *word != "ready")
        .skip(1)
        .collect();
    let (pids, folders): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.parse::<u32>().is_ok());
    let pids: Vec<u32> = pids.iter().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 12 && pids.iter().all(|pid| is_running(*pid)), "{ready}");
    assert!(
        folders.len() > 3 && folders.iter().all(|folder| Path::new(folder).exists()),
        "{ready}"
    );

    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until(Duration::from_secs(20), "the end of the servers", async || {
        !pids.iter().any(|pid| is_running(*pid))
    })
    .await
    .unwrap();
    wait_until(Duration::from_secs(20), "the end of their folders", async || {
        !folders.iter().any(|folder| Path::new(folder).exists())
    })
    .await
    .unwrap();
}

#[allow(clippy::print_stdout, reason = "the first process reads it")]
async fn victim() {
    let plane = ControlPlane::start(Options {
        nodes: vec!["node-0".into()],
        ..Options::default()
    })
    .await
    .unwrap();
    let node = Node::start(plane.access(), "node-0", NodeOptions::default())
        .await
        .unwrap();
    let registry = Registry::start(Auth::Open).await.unwrap();
    let options = ContainerdOptions {
        disk_size: Some(64 << 20),
        ..ContainerdOptions::new(ContainerdVersion::V1_6)
    };
    let containerd = Containerd::start_with(options).await.unwrap();
    let others = [
        ContainerRuntime::start(RuntimeKind::CriO).await.unwrap(),
        ContainerRuntime::start(RuntimeKind::Docker).await.unwrap(),
    ];
    let mut pids = plane.pids();
    pids.extend(registry.pid());
    pids.extend(containerd.pid());
    pids.extend(node.pids());
    pids.extend(others.iter().flat_map(ContainerRuntime::pids));
    let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
    let mut folders = vec![plane.kubeconfig().to_owned(), containerd.root(), node.path("/run")];
    folders.extend(node.cgroups());
    folders.extend(others.iter().map(ContainerRuntime::root));
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    println!("ready {} {}", pids.join(" "), folders.join(" "));
    std::future::pending::<()>().await;
}
