//! Processes end when they should: with their handle, or with the process they are bound to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use larder_testkit::{Lifetime, Process, Program, Scratch, is_running, wait_until};

const SOON: Duration = Duration::from_secs(10);

/// Sleeps for longer than any test, in two processes.
fn sleeper(scratch: &Scratch, lifetime: Lifetime) -> Program {
    shell(scratch, lifetime, "sleep 10000 & echo $! >child; echo started; wait")
}

fn shell(scratch: &Scratch, lifetime: Lifetime, script: &str) -> Program {
    let script = format!("cd {}; {script}", scratch.path().display());
    Program {
        name: "sleeper",
        path: "/bin/sh".into(),
        args: vec!["-c".into(), script],
        env: vec![],
        log: scratch.join("log"),
        lifetime,
    }
}

/// The ids of both processes of a sleeper.
async fn pids(process: &Process, scratch: &Scratch) -> [u32; 2] {
    wait_until(SOON, "the start", async || process.log_tail().ends_with("started"))
        .await
        .unwrap();
    let child = std::fs::read_to_string(scratch.join("child")).unwrap();
    [process.pid().unwrap(), child.trim().parse().unwrap()]
}

async fn ended(pids: [u32; 2]) {
    wait_until(SOON, "the end", async || !pids.iter().any(|pid| is_running(*pid)))
        .await
        .unwrap();
}

#[tokio::test]
async fn ends_with_its_handle_and_takes_its_children_along() {
    let scratch = Scratch::create("test").unwrap();
    let process = Process::start(sleeper(&scratch, Lifetime::Handle)).unwrap();
    let pids = pids(&process, &scratch).await;
    assert!(pids.iter().all(|pid| is_running(*pid)));
    drop(process);
    assert!(!is_running(pids[0]), "dropping returns when it is gone");
    ended(pids).await;
}

#[tokio::test]
async fn ends_with_the_process_it_is_bound_to() {
    let scratch = Scratch::create("test").unwrap();
    let mut owner = Command::new("/bin/sleep")
        .arg("10000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let process = Process::start(sleeper(&scratch, Lifetime::Process(owner.id()))).unwrap();
    let pids = pids(&process, &scratch).await;
    process.release();
    assert!(pids.iter().all(|pid| is_running(*pid)));
    owner.kill().unwrap();
    owner.wait().unwrap();
    ended(pids).await;
}

#[tokio::test]
async fn a_restart_is_another_process() {
    let scratch = Scratch::create("test").unwrap();
    let mut process = Process::start(sleeper(&scratch, Lifetime::Handle)).unwrap();
    let before = pids(&process, &scratch).await;
    process.restart().unwrap();
    assert_ne!(process.pid(), Some(before[0]));
    ended(before).await;
}

#[tokio::test]
async fn an_early_end_is_told_with_the_log() {
    let scratch = Scratch::create("test").unwrap();
    let mut process = Process::start(shell(&scratch, Lifetime::Handle, "echo out of salt; exit 7")).unwrap();
    let error = process
        .wait_ready(SOON, async || Err("never ready".into()))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "sleeper ended by itself (exit status: 7); the end of its log:\nout of salt"
    );
}

#[tokio::test]
async fn a_server_that_is_not_ready_in_time_is_told_with_the_log() {
    let scratch = Scratch::create("test").unwrap();
    let mut process = Process::start(sleeper(&scratch, Lifetime::Handle)).unwrap();
    let pids = pids(&process, &scratch).await;
    let late = process.wait_ready(Duration::from_millis(50), async || Err("no answer yet".into()));
    let error = late.await.unwrap_err().to_string();
    assert_eq!(
        error,
        "waited 50ms for sleeper to be ready: no answer yet; the end of its log:\nstarted"
    );
    drop(process);
    ended(pids).await;
}

#[test]
fn a_folder_goes_with_its_handle() {
    let scratch = Scratch::create("test").unwrap();
    let file = scratch.write("file", "content").unwrap();
    assert!(file.exists());
    let folder = scratch.path().to_owned();
    drop(scratch);
    assert!(!Path::new(&folder).exists());
}

#[tokio::test]
async fn a_frozen_process_can_still_be_ended() {
    let scratch = Scratch::create("test").unwrap();
    let process = Process::start(sleeper(&scratch, Lifetime::Handle)).unwrap();
    let pids = pids(&process, &scratch).await;
    process.freeze().unwrap();
    drop(process);
    ended(pids).await;
}
