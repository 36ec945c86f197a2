//! `larder plan`, against `larder up`.

use std::time::Duration;

use larder_testkit::{Link, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::larder::{exit_code, send};
use crate::up::{ON_NODE_2, Source, Up};

/// The answer to a plan, whatever its verdict: whether something fits depends on this machine's disk.
async fn plan(up: &Up, file: &str) -> Value {
    let plan = up.run(&["plan", "-f", file, "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&plan.stdout).unwrap_or_else(|_| panic!("{plan:?}"));
    let fits = answer["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .all(|node| node["verdict"] == "Fits");
    assert_eq!(plan.code, Some(i32::from(!fits)), "the code says the same: {answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_what_would_be_pulled_and_leaves_nothing_behind() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let image = source.offer("app").await;
    up.larder.write_job("web", &image, ON_NODE_2);
    let answer = plan(&up, "web.yaml").await;
    assert_eq!(answer["images"], json!([image]));
    let node = &answer["nodes"][0];
    let bytes = node["bytesToPull"].as_u64().unwrap();
    assert!((600_000..700_000).contains(&bytes), "{answer}");
    assert_eq!((&node["node"], &node["bytesPresent"]), (&json!("node-2"), &json!(0)));
    assert!(node["bytesFree"].as_u64().unwrap() > 0, "{answer}");
    let images = std::fs::read_to_string(up.larder.home.path().join("data/nodes/node-2/images/index.json"));
    assert!(!images.unwrap_or_default().contains(&image), "nothing was pulled");
    assert_nothing_left(&up).await;

    up.larder.write_job("typo", &format!("{image}.2"), ON_NODE_2);
    let missing = up.run(&["plan", "-f", "typo.yaml"]).await;
    assert!(missing.stdout.contains("NotFound"), "{}", missing.stdout);
    assert_eq!(missing.badly(1), "it cannot be pulled on 1 of 1 node: NotFound");
    assert_nothing_left(&up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_leaves_nothing_behind() {
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
        node_images(&up).await.matches("dryRun: true").count() == 1
    })
    .await
    .unwrap();
    send(&plan, Signal::INT);
    assert_eq!(exit_code(&mut plan).await, Some(130));
    assert_nothing_left(&up).await;

    let late = up.run(&["plan", "-f", "web.yaml", "--timeout", "1s"]).await;
    assert!(late.stdout.contains("Unresponsive"), "{}", late.stdout);
    assert_eq!(late.badly(4), "1 of 1 node did not answer within 1 s");
    assert_nothing_left(&up).await;
}

const PASSWORD: &str = "a-password-that-nobody-else-has";

#[tokio::test(flavor = "multi_thread")]
async fn a_private_image_is_asked_for_with_the_jobs_login() {
    let (up, source) = tokio::join!(Up::start(), Source::private("tiger", PASSWORD));
    let image = source.offer("app").await;
    let registry = image.split('/').next().unwrap().to_owned();
    let with_secret = |name: &str| format!("  pullSecrets: [{name}]\n{ON_NODE_2}");
    up.larder.write_job("open", &image, ON_NODE_2);
    up.larder.write_job("missing", &image, &with_secret("gone"));
    up.larder.write_job("right", &image, &with_secret("right-login"));
    up.larder.write_job("wrong", &image, &with_secret("wrong-login"));
    up.write_secret("right-login", &registry, PASSWORD);
    up.write_secret("wrong-login", &registry, "no");
    up.kubectl(&["apply", "-f", "right-login.yaml", "-f", "wrong-login.yaml"])
        .await;

    let right = plan(&up, "right.yaml").await;
    let bytes = right["nodes"][0]["bytesToPull"].as_u64().unwrap_or_default();
    assert!((600_000..700_000).contains(&bytes), "{right}");
    assert_nothing_left(&up).await;

    for (file, verdict) in [
        ("open.yaml", "Fails"),
        ("wrong.yaml", "Fails"),
        ("missing.yaml", "Unknown"),
    ] {
        let answer = plan(&up, file).await;
        let node = &answer["nodes"][0];
        assert_eq!(
            (&node["verdict"], &node["reason"]),
            (&json!(verdict), &json!("AuthDenied")),
            "{file}"
        );
    }
    let said = up.run(&["plan", "-f", "missing.yaml"]).await.stdout;
    assert!(
        said.contains("The Secret default/gone does not exist; the job would wait for it.\n"),
        "{said}"
    );
    assert_nothing_left(&up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_are_there_are_not_counted() {
    let (up, source) = tokio::join!(Up::start(), Source::start());
    let [first, second] = source.offer_two_that_share_a_layer().await;
    up.larder.write_job("first", &first, ON_NODE_2);
    up.larder.write_job("second", &second, ON_NODE_2);
    let before = plan(&up, "second.yaml").await;
    let total = before["nodes"][0]["bytesToPull"].as_u64().unwrap();
    up.run(&["run", "-f", "first.yaml"]).await.well();

    let after = plan(&up, "second.yaml").await;
    let node = &after["nodes"][0];
    let (to_pull, present) = (&node["bytesToPull"], &node["bytesPresent"]);
    let (to_pull, present) = (to_pull.as_u64().unwrap(), present.as_u64().unwrap());
    assert_eq!(to_pull + present, total, "{after}");
    assert!((290_000..310_000).contains(&present), "one layer of two: {after}");

    let whole = plan(&up, "first.yaml").await;
    assert_eq!(whole["nodes"][0]["bytesToPull"], 0, "{whole}");
    assert_nothing_left(&up).await;
}

async fn node_images(up: &Up) -> String {
    up.kubectl(&["get", "nodeimages", "-o", "yaml"]).await
}

/// No question, no login and no Event.
async fn assert_nothing_left(up: &Up) {
    let objects = node_images(up).await;
    assert!(!objects.contains("dryRun: true"), "{objects}");
    assert!(!objects.contains("sealedCredentials"), "{objects}");
    assert!(!objects.contains(PASSWORD), "{objects}");
    let events = up.kubectl(&["get", "events", "-A", "-o", "yaml"]).await;
    assert!(!events.contains("PullImageFailed"), "{events}");
}
