//! run, status, why and plan against `larder up`, in a pipe.

use std::time::Duration;

use larder_testkit::{Link, wait_until};
use rustix::process::Signal;
use serde_json::json;

use crate::larder::send;
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
    assert_eq!(job.get("nodes"), None, "only of one job");
    let one = up.json(&["status", "web"]).await;
    let node = &one["jobs"][0]["nodes"][0];
    assert_eq!(
        (&node["node"], &node["phase"], &node["attempts"], &node["bytesTotal"]),
        (&json!("node-2"), &json!("Succeeded"), &json!(1), &json!(603_524))
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
async fn a_job_with_a_schedule_says_when_it_refreshes() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    let schedule =
        "  completionPolicy: {type: Never}\n  refreshSchedule: '0 3 * * *'\n  refreshTimeZone: Asia/Shanghai\n";
    up.larder
        .write_job("nightly", &image, &format!("{ON_NODE_2}{schedule}"));
    // It never ends, and so the command does not wait for that.
    up.run(&["run", "-f", "nightly.yaml", "--timeout", "1s"]).await.badly(4);
    wait_until(Duration::from_mins(1), "the job to say when it refreshes", async || {
        let status = up.json(&["status", "nightly"]).await;
        let message = status["jobs"][0]["message"].as_str().unwrap_or_default();
        message.contains("next refresh ") && message.ends_with(" 03:00 Asia/Shanghai")
    })
    .await
    .unwrap();
    let why = up.json(&["why", "nightly", "node-2"]).await;
    let said = why["nodes"][0]["explanation"].as_str().unwrap();
    assert!(
        said.starts_with("The image is there; its next refresh is at "),
        "{said}"
    );
    assert!(said.contains(" Asia/Shanghai."), "{said}");
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
    let list = up.json(&["status", "both"]).await;
    assert_eq!(list["jobs"][0]["images"][1]["phase"], "Failed", "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_outlasts_the_timeout() {
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
    let waiting = up
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
    let interrupted = crate::larder::output_of(waiting).await.badly(130);
    assert_eq!(interrupted, "interrupted; the jobs go on, see: larder status");
}

/// A job of KubeEdge's kind; the nodes of `larder up` are no edge nodes until they have the label.
const EDGE_JOB: &str = "apiVersion: operations.kubeedge.io/v1alpha2\nkind: ImagePrePullJob\nmetadata: {name: edge}\n\
    spec:\n  imagePrePullTemplate:\n    images: ['IMAGE']\n    nodeNames: [node-2]\n    checkItems: []\n  \
    imagePrePullOverriders:\n  - nodeLabel: region=here\n    overriders:\n      imageOverriders:\n      \
    - {component: Tag, operator: replace, value: v1}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_pre_pull_job_is_planned_run_and_explained() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    let written = image.replace(":v1", ":written");
    source.walk();
    up.larder.write("edge.yaml", &EDGE_JOB.replace("IMAGE", &written));

    let refused = up.run(&["plan", "-f", "edge.yaml"]).await;
    assert!(refused.stdout.contains("NodeUnsuitable"), "{refused:?}");
    assert_eq!(refused.badly(1), "unknown for 1 of 1 node");

    up.label("node-2", &["node-role.kubernetes.io/edge=", "region=here"])
        .await;
    let plan = up.run(&["plan", "-f", "edge.yaml", "-o", "json"]).await;
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["images"], json!([image]), "{plan}");
    assert!(plan["nodes"][0]["bytesToPull"].as_u64().unwrap() > 600_000, "{plan}");

    assert_eq!(
        up.run(&["lint", "edge.yaml"]).await.well(),
        "edge.yaml: ImagePrePullJob edge: ok\n"
    );
    let said = up.run(&["run", "-f", "edge.yaml", "--nodes"]).await.well();
    assert!(
        said.contains("imageprepulljob/edge: Complete, 1/1 done, 0 failed"),
        "{said}"
    );
    assert!(said.contains("  node-2: Succeeded, 589.4 KiB\n"), "{said}");
    assert_golden!("status_of_a_pre_pull_job", up.run(&["status", "edge"]).await.well());
    assert_golden!("why_of_a_pre_pull_job", up.run(&["why", "edge"]).await.well());
    let status = up.json(&["status", "edge"]).await;
    assert_eq!(
        (&status["jobs"][0]["phase"], &status["jobs"][0]["nodes"][0]["phase"]),
        (&json!("Complete"), &json!("Successful")),
        "{status}"
    );
    let index = up.larder.home.path().join("data/nodes/node-2/images/index.json");
    let index = std::fs::read_to_string(index).unwrap();
    assert!(index.contains(&image) && index.contains(&written), "{index}");

    let typo = EDGE_JOB
        .replace("IMAGE", &written)
        .replace("value: v1", "value: v9")
        .replace("name: edge", "name: typo");
    up.larder.write("typo.yaml", &typo);
    let sentence = up.run(&["run", "-f", "typo.yaml"]).await.badly(1);
    assert_eq!(
        sentence,
        "imageprepulljob/typo failed on 1 of 1 (NotFound 1); see: larder why imageprepulljob/typo"
    );
    let why = up.json(&["why", "typo", "node-2"]).await;
    let node = &why["nodes"][0];
    assert_eq!(
        (&node["state"], &node["reason"]),
        (&json!("Failed"), &json!("NotFound")),
        "{why}"
    );
    let other = up.json(&["why", "typo", "node-1"]).await;
    assert_eq!(other["nodes"][0]["state"], "NotSelected", "{other}");
}
