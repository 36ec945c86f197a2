//! run, status, why and plan against `larder up`, in a pipe.

use std::time::Duration;

use larder_testkit::{Link, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::larder::{exit_code, send};
use crate::up::{ON_NODE_2, Source, Up};

/// Ports, names that are drawn, times and sizes of the machine's disk.
const FILTERS: [(&str, &str); 4] = [
    (r"127\.0\.0\.1:\d+", "[registry]"),
    (r"-[a-z0-9]{5}\b( +)", "-[drawn]$1"),
    (r"\d+\.\d GiB", "[disk]"),
    (r"\d+ s ago", "[time] ago"),
];

macro_rules! assert_golden {
    ($name:literal, $text:expr) => {{
        let text = $text;
        insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!($name, text) });
    }};
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_succeeds() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    assert_eq!(up.run(&["status"]).await.well(), "There are no jobs.\n");
    let image = source.offer("app").await;
    source.walk();
    up.larder.write_job("web", &image, ON_NODE_2);

    let said = up.run(&["run", "-f", "web.yaml", "--nodes"]).await.well();
    // Two watches tell of it, and either may be first.
    assert!(
        said.contains("imagepulljob/web: Complete, 1/1 done, 0 failed; job has completed\n"),
        "{said}"
    );
    assert!(said.contains("  node-2: Succeeded, 589.4 KiB\n"), "{said}");

    assert_golden!("status", up.run(&["status"]).await.well());
    assert_golden!("status_of_all_namespaces", up.run(&["status", "-A"]).await.well());
    assert_golden!("status_of_one_job", up.run(&["status", "web"]).await.well());
    assert_golden!("status_as_yaml", up.run(&["status", "-o", "yaml"]).await.well());
    assert_golden!("why", up.run(&["why", "web"]).await.well());
    let jobs = up.json(&["status"]).await;
    let job = &jobs["jobs"][0];
    assert_eq!(
        [
            &job["kind"],
            &job["namespace"],
            &job["name"],
            &job["phase"],
            &job["message"]
        ],
        ["ImagePullJob", "default", "web", "Complete", "job has completed"]
    );
    assert_eq!(
        [&job["desired"], &job["active"], &job["succeeded"], &job["failed"]],
        [1, 0, 1, 0]
    );
    let why = up.json(&["why", "imagepulljob/web", "node-1"]).await;
    assert_eq!(
        why,
        json!({"job": "imagepulljob/web", "nodes": [{"node": "node-1", "state": "NotSelected", "reason": null, "explanation": "The job does not select this node."}]})
    );

    let again = up.run(&["run", "-f", "web.yaml"]).await.badly(2);
    assert_eq!(
        again,
        "web.yaml: creating ImagePullJob web: it exists already; delete it, or give the job another name"
    );
    let node = up.run(&["why", "web", "node-9"]).await.badly(2);
    assert_eq!(
        node,
        "there is no node node-9; kubectl get nodes lists the ones there are"
    );
    let job = up.run(&["why", "gone"]).await.badly(2);
    assert_eq!(job, "there is no job gone; larder status lists the ones there are");
    assert_eq!(up.run(&["status", "gone"]).await.badly(2), job);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_which_one_image_is_missing() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    source.walk();
    let list = format!(
        "apiVersion: apps.kruise.io/v1beta1\nkind: ImageListPullJob\nmetadata: {{name: both}}\n\
         spec:\n  images: ['{image}', '{image}.2']\n{ON_NODE_2}"
    );
    up.larder.write("both.yaml", &list);
    let ended = up.run(&["run", "-f", "both.yaml", "-o", "json"]).await;
    let jobs: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        [&jobs["jobs"][0]["phase"], &jobs["jobs"][0]["kind"]],
        ["Failed", "ImageListPullJob"]
    );
    let sentence = ended.badly(1);
    assert!(
        sentence.starts_with("imagelistpulljob/both failed on 1 of 2"),
        "{sentence}"
    );
    assert!(
        sentence.ends_with("; see: larder why imagelistpulljob/both"),
        "{sentence}"
    );
    assert_golden!("status_of_a_list", up.run(&["status", "both"]).await.well());
    assert_golden!("why_of_a_list", up.run(&["why", "both"]).await.well());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_takes_longer_than_anybody_waits() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    source.line.set(Link::Stalled);
    up.larder.write_job("slow", &image, ON_NODE_2);
    let late = up.run(&["run", "-f", "slow.yaml", "--timeout", "1s"]).await;
    assert!(late.stdout.contains("imagepulljob/slow: Running"), "{}", late.stdout);
    assert_eq!(
        late.badly(4),
        "not finished after 1 s; the jobs go on, see: larder status"
    );
    let why = up.json(&["why", "slow", "node-2"]).await;
    let state = why["nodes"][0]["state"].as_str().unwrap();
    assert!(["Pulling", "Ordered"].contains(&state), "{why}");

    up.larder.write_job("slow-too", &image, ON_NODE_2);
    let mut waiting = up
        .larder
        .larder(&["run", "-f", "slow-too.yaml", "--kubeconfig", "data/kubeconfig"])
        .spawn()
        .unwrap();
    wait_until(Duration::from_secs(30), "the job is there", async || {
        up.run(&["status", "slow-too"]).await.code == Some(0)
    })
    .await
    .unwrap();
    send(&waiting, Signal::INT);
    assert_eq!(exit_code(&mut waiting).await, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_tells_what_would_be_pulled_and_leaves_nothing_behind() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    up.larder.write_job("web", &image, ON_NODE_2);
    let plan = up.run(&["plan", "-f", "web.yaml", "-o", "json"]).await;
    let answer: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(answer["images"], json!([image]));
    let node = &answer["nodes"][0];
    let bytes = node["bytesToPull"].as_u64().unwrap();
    assert!((600_000..700_000).contains(&bytes), "{answer}");
    assert_eq!((&node["node"], &node["bytesPresent"]), (&json!("node-2"), &json!(0)));
    assert!(node["bytesFree"].as_u64().unwrap() > 0, "{answer}");
    // Whether it fits depends on this machine's disk; the exit code says the same as the verdict.
    let code = i32::from(node["verdict"] != "Fits");
    assert_eq!(plan.code, Some(code), "{answer}");
    let images = std::fs::read_to_string(up.larder.home.path().join("data/nodes/node-2/images/index.json"));
    assert!(!images.unwrap_or_default().contains(&image), "nothing was pulled");
    assert_eq!(questions(&up).await, 0);

    up.larder.write_job("typo", &format!("{image}.2"), ON_NODE_2);
    let missing = up.run(&["plan", "-f", "typo.yaml"]).await;
    assert!(missing.stdout.contains("NotFound"), "{}", missing.stdout);
    assert_eq!(missing.badly(1), "it cannot be pulled on 1 of 1 node: NotFound");
    assert_eq!(questions(&up).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_interrupted_leaves_nothing_behind() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    source.line.set(Link::Stalled);
    up.larder.write_job("web", &image, ON_NODE_2);
    let mut plan = up
        .larder
        .larder(&["plan", "-f", "web.yaml", "--kubeconfig", "data/kubeconfig"])
        .spawn()
        .unwrap();
    wait_until(Duration::from_secs(30), "the question is asked", async || {
        questions(&up).await == 1
    })
    .await
    .unwrap();
    send(&plan, Signal::INT);
    assert_eq!(exit_code(&mut plan).await, Some(130));
    assert_eq!(questions(&up).await, 0);

    let late = up.run(&["plan", "-f", "web.yaml", "--timeout", "1s"]).await;
    assert!(late.stdout.contains("Unresponsive"), "{}", late.stdout);
    assert_eq!(late.badly(4), "1 of 1 node did not answer within 1 s");
    assert_eq!(questions(&up).await, 0);
}

/// dryRun entries in NodeImages.
async fn questions(up: &Up) -> usize {
    let mut kubectl = up.larder.command("kubectl");
    kubectl.args(["--kubeconfig", "data/kubeconfig", "get", "nodeimages", "-o", "yaml"]);
    crate::larder::ended(kubectl)
        .await
        .well()
        .matches("dryRun: true")
        .count()
}
