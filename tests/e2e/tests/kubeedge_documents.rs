//! KubeEdge's two documents, end to end: the guide from its first command to its last, and the proposal with two
//! regions whose registries want different passwords.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use larder_e2e::kubeedge::{phases, task, text};
use larder_e2e::{Cluster, SOON};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;

/// Whether all of `expected` is in `found`; times are compared by their form.
fn contains(found: &Value, expected: &Value) -> Result<(), String> {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => expected.iter().try_for_each(|(key, value)| {
            let other = found.get(key).ok_or_else(|| format!("{key} is missing"))?;
            if key == "time" && is_time(other) && is_time(value) {
                return Ok(());
            }
            contains(other, value).map_err(|why| format!("{key}: {why}"))
        }),
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let mut pairs = found.iter().zip(expected);
            pairs.try_for_each(|(found, expected)| contains(found, expected))
        }
        (found, expected) if found == expected => Ok(()),
        (found, expected) => Err(format!("{found} instead of {expected}")),
    }
}

/// `2024-04-26T18:51:41Z`
fn is_time(value: &Value) -> bool {
    let form: Option<String> = value
        .as_str()
        .map(|text| text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect());
    form.as_deref() == Some("0000-00-00T00:00:00Z")
}

#[tokio::test]
async fn the_guide_from_the_first_command_to_the_last() {
    let auth = Auth::basic("tiger", "pass1234");
    let registry = Registry::start(auth.clone()).await.unwrap();
    let recipe = Recipe::random(61, 3, MIB).build();
    let image = registry.push(&recipe, "jilimoxing/test", "nginx").await.unwrap();

    // 1. Preparation.
    let mut cluster = Cluster::start(0).await;
    cluster.create_node("cloud.kubeedge").await;
    cluster.create_edge_node("edge.kubeedge", &json!({})).await;
    cluster.add_node("edge.kubeedge").await;
    let nodes = cluster.kubectl(&["get", "node"]).await.unwrap();
    let edge = nodes.lines().find(|line| line.starts_with("edge.kubeedge")).unwrap();
    assert!(edge.contains("Ready") && edge.contains("agent,edge"), "{nodes}");

    // 2. The Secret.
    cluster
        .create_registry_secret("my-secret", &registry.host(), &auth)
        .await;
    let secrets = cluster.kubectl(&["get", "secret", "-A"]).await.unwrap();
    let line = secrets.lines().find(|line| line.contains("my-secret")).unwrap();
    assert!(line.contains("kubernetes.io/dockerconfigjson"), "{secrets}");

    // 3. The job.
    let yaml = format!(
        "apiVersion: operations.kubeedge.io/v1alpha1
kind: ImagePrePullJob
metadata:
  name: imageprepull-example
spec:
  imagePrePullTemplate:
    concurrency: 1
    failureTolerate: '0.1'
    images:
      - {}
    nodeNames:
      - edge.kubeedge
    imageSecrets: default/my-secret
    retryTimes: 1
    timeoutSeconds: 120
",
        image.reference
    );
    let history = cluster.watch_prepulls().await;
    cluster.apply_yaml(&yaml).await;
    let waited = [
        "wait",
        "--for=condition=Complete",
        "imageprepulljob/imageprepull-example",
        "--timeout=100s",
    ];
    if let Err(error) = cluster.kubectl(&waited).await {
        cluster.prepull_finished("imageprepull-example").await;
        panic!("{error}\n{}", cluster.logs());
    }
    let resource = "imageprepulljobs.operations.kubeedge.io";
    let ask = ["get", resource, "imageprepull-example", "-o", "jsonpath={.status}"];
    let status: Value = serde_json::from_str(&cluster.kubectl(&ask).await.unwrap()).unwrap();
    let shown_in_the_guide = json!({
        "action": "Success", "event": "Pull", "state": "Successful",
        "status": [{
            "imageStatus": [{ "image": image.reference, "state": "Successful" }],
            "nodeStatus": {
                "action": "Success", "event": "Pull", "nodeName": "edge.kubeedge", "state": "Successful",
                "time": "2024-04-26T18:51:41Z",
            },
        }],
        "time": "2024-04-26T18:51:41Z",
    });
    contains(&status, &shown_in_the_guide).unwrap_or_else(|why| panic!("{why}: {status}"));
    // The same by the newer version, which a current KubeEdge would show.
    let newer = json!({
        "phase": "Completed",
        "nodeStatus": [{
            "nodeName": "edge.kubeedge", "phase": "Successful",
            "actionFlow": [
                { "action": "Check", "status": "True", "time": "2024-04-26T18:51:41Z" },
                { "action": "Pull", "status": "True", "time": "2024-04-26T18:51:41Z" },
            ],
            "imageStatus": [{ "image": image.reference, "status": "True" }],
        }],
    });
    contains(&status, &newer).unwrap_or_else(|why| panic!("{why}: {status}"));
    let table = cluster.kubectl(&["get", "imageprepulljobs"]).await.unwrap();
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "PHASE", "NODES", "DONE", "FAILED", "AGE"]);
    let older = "imageprepulljobs.v1alpha1.operations.kubeedge.io";
    let table = cluster.kubectl(&["get", older]).await.unwrap();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row[..5],
        ["imageprepull-example", "Successful", "1", "1", "0"],
        "{table}"
    );

    // 4. The image on the node.
    assert!(cluster.nodes[0].has_image(&image.reference, &image.digest).await);

    for said in history.until_over("imageprepull-example", SOON).await {
        let (phase, state) = (said.status.phase.as_deref(), said.status.state.as_deref());
        assert!(
            phase != Some("Init") && state != Some("Init"),
            "CloudCore acts on {said:?}"
        );
    }
    let orders = cluster.kubectl(&["get", "nodeimages", "-o", "yaml"]).await.unwrap();
    assert!(!orders.contains("pass1234"), "a password in plain text");
}

#[tokio::test]
async fn the_guides_first_sample_with_two_images_on_two_nodes() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let mut images = Vec::new();
    for (seed, name) in [(62, "first/image1"), (63, "first/image2")] {
        let recipe = Recipe::random(seed, 1, MIB).build();
        images.push(registry.push(&recipe, name, "latest").await.unwrap());
    }
    let mut cluster = Cluster::start(0).await;
    for name in ["edgenode1", "edgenode2"] {
        cluster.create_edge_node(name, &json!({})).await;
        cluster.add_node(name).await;
    }
    // As printed, but for the full-width colons and a space that YAML wants.
    let yaml = format!(
        r#"apiVersion: operations.kubeedge.io/v1alpha1
kind: ImagePrePullJob
metadata:
  name: imageprepull-example
  labels:
    description: ImagePrePullLabel
spec:
  imagePrePullTemplate:
    images:
      - {}
      - {}
    nodes:
      - edgenode1
      - edgenode2
    checkItems:
      - "disk"
    failureTolerate: "0.3"
    concurrency: 2
    timeoutSeconds: 180
    retryTimes: 1
"#,
        images[0].reference, images[1].reference
    );
    cluster.apply_yaml(&yaml).await;
    let status = cluster.prepull_finished("imageprepull-example").await;
    assert_eq!(text(status.phase.as_ref()), "Completed", "{status:?}");
    assert_eq!((status.desired, status.succeeded, status.failed), (2, 2, 0));
    assert_eq!(
        phases(&status),
        [("edgenode1", "Successful"), ("edgenode2", "Successful")]
    );
    for node in &cluster.nodes {
        let said = &task(&status, &node.name).image_status;
        let order: Vec<&str> = said.iter().map(|image| text(image.image.as_ref())).collect();
        assert_eq!(
            order,
            [&images[0].reference, &images[1].reference],
            "the order of the job"
        );
        for image in &images {
            assert!(
                node.has_image(&image.reference, &image.digest).await,
                "{} on {}",
                image.reference,
                node.name
            );
        }
    }
}

#[tokio::test]
async fn the_proposal_with_two_regions() {
    let (home_auth, region_auth) = (Auth::basic("home", "hearth"), Auth::basic("hangzhou", "westlake"));
    let home = Registry::start(home_auth.clone()).await.unwrap();
    let region = Registry::start(region_auth.clone()).await.unwrap();
    // The region has another build under the same name, so that one can see which of them is on a node.
    let at_home = home
        .push(&Recipe::random(64, 2, MIB).build(), "jili/example", "v1.0.0")
        .await
        .unwrap();
    let in_region = region
        .push(&Recipe::random(65, 2, MIB).build(), "jili/example", "v1.0.0")
        .await
        .unwrap();
    let mut cluster = Cluster::start(0).await;
    for (name, labels) in [
        ("node1", json!({})),
        ("node2", json!({ "labelexample": "" })),
        ("node3", json!({ "broken": "true" })),
    ] {
        cluster.create_edge_node(name, &labels).await;
        cluster.add_node(name).await;
    }
    cluster.create_registry_secret("secret", &home.host(), &home_auth).await;
    cluster
        .create_registry_secret("hangzhou-secret", &region.host(), &region_auth)
        .await;
    // As printed, but for a legal name, images as a list, and a third node whose overrider makes no reference at all.
    let yaml = format!(
        r#"apiVersion: operations.kubeedge.io/v1alpha1
kind: ImagePrePullJob
metadata:
  name: imageprepullexample
  labels:
    description: ImagePrepullLabel
spec:
  imagePrePullTemplate:
    images:
      - name: image1
        registry: {home}
        respo: jili
        tag: example:v1.0.0
        imageSecret: default/secret
    nodes:
      - node1
      - node2
      - node3
    failureTolerate: "0.4"
    timeoutSeconds: 300
    retryTimes: 1
  imagePrePullOverriders:
    - imagePrePullOverrider:
        nodeLabel: "labelexample"
        overriders:
          imageOverriders:
            - component: "Registry"
              operator: "replace"
              value: "{region}"
          secretOverriders:
            - component: "SecretName"
              operator: "replace"
              value: "hangzhou-secret"
    - nodeLabel: "broken=true"
      overriders:
        imageOverriders:
          - component: "Repository"
            operator: "replace"
            value: "Not A Name"
"#,
        home = home.host(),
        region = region.host(),
    );
    cluster.apply_yaml(&yaml).await;
    let status = cluster.prepull_finished("imageprepullexample").await;
    assert_eq!(
        text(status.phase.as_ref()),
        "Completed",
        "{status:?}\n{}",
        cluster.logs()
    );
    assert_eq!(
        (status.desired, status.succeeded, status.failed),
        (3, 2, 1),
        "{status:?}"
    );

    let original = format!("{}/jili/example:v1.0.0", home.host());
    assert_eq!(original, at_home.reference);
    let first = &task(&status, "node1").image_status[0];
    assert_eq!(
        (text(first.image.as_ref()), &first.resolved_image),
        (original.as_str(), &None)
    );
    let second = &task(&status, "node2").image_status[0];
    assert_eq!(
        (text(second.image.as_ref()), text(second.resolved_image.as_ref())),
        (original.as_str(), in_region.reference.as_str())
    );
    let third = task(&status, "node3");
    assert_eq!(text(third.phase.as_ref()), "Failure");
    assert!(text(third.reason.as_ref()).contains("Not A Name"), "{third:?}");

    let [first, second, third] = [&cluster.nodes[0], &cluster.nodes[1], &cluster.nodes[2]];
    assert!(first.has_image(&original, &at_home.digest).await);
    assert!(!first.has_image(&in_region.reference, &in_region.digest).await);
    assert!(second.has_image(&in_region.reference, &in_region.digest).await);
    assert!(
        second.has_image(&original, &in_region.digest).await,
        "pods that start on the news look for the original name"
    );
    assert!(!third.has_image(&original, &at_home.digest).await);
    let orders = cluster.kubectl(&["get", "nodeimages", "-o", "yaml"]).await.unwrap();
    assert!(
        !orders.contains("hearth") && !orders.contains("westlake"),
        "a password in plain text"
    );
}
