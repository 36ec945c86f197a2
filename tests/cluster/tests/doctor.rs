//! `larder doctor` on an installation by Helm: well, ill in one way after another, and well again after an upgrade.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::panic, reason = "the same")]

use larder_cluster::{Cluster, SOON, build_larder};
use larder_testkit::{NodeOptions, wait_for};
use serde_json::Value;

/// Not the usual namespace, so that it has to be found.
const VALUES: [&str; 3] = [
    "installation.namespace=pantry",
    "installation.createNamespace=true",
    "controller.replicas=1",
];

/// Waits until the doctor finds exactly what begins like this, each as `level area: sentence`, and ends accordingly.
async fn assert_finds(cluster: &Cluster, expected: &[&str]) {
    let found = wait_for(SOON, format!("{expected:?}"), async || {
        let output = cluster.larder(&["doctor", "-o", "json"]).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let report: Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {output:?}"))?;
        let areas = report["areas"].as_array().unwrap().iter();
        let findings: Vec<String> = areas
            .flat_map(|area| area["findings"].as_array().unwrap().iter().map(move |one| (area, one)))
            .map(|(area, one)| {
                format!(
                    "{} {}: {}",
                    text(&one["level"]),
                    text(&area["area"]),
                    text(&one["says"])
                )
            })
            .collect();
        let same = findings.len() == expected.len()
            && findings
                .iter()
                .zip(expected)
                .all(|(found, begin)| found.starts_with(begin));
        let healthy = !expected.iter().any(|finding| finding.starts_with("problem"));
        let code = i32::from(!healthy);
        if same && report["healthy"] == healthy && output.status.code() == Some(code) {
            Ok(())
        } else {
            Err(format!("{:?}: {findings:#?}", output.status))
        }
    });
    if let Err(error) = found.await {
        panic!("{error}\n{}", cluster.logs().await);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Has the agents' pods ask for a node with this hostname, as JSON.
async fn select_hostname(cluster: &Cluster, hostname: &str) {
    let selector = format!("{{\"kubernetes.io/hostname\": {hostname}}}");
    let patch = format!("{{\"spec\": {{\"template\": {{\"spec\": {{\"nodeSelector\": {selector}}}}}}}}}");
    let patch = [
        "patch",
        "daemonset",
        "larder-agent",
        "--namespace=pantry",
        "--patch",
        &patch,
    ];
    cluster.kubectl(&patch).await.unwrap();
}

#[tokio::test]
async fn the_doctor_finds_what_is_wrong_with_an_installation_and_an_upgrade_mends_it() {
    build_larder().await;
    let cluster = Cluster::start([NodeOptions::default(), NodeOptions::default()]).await;
    cluster.install(&VALUES).await;
    // The API server may take a moment to enforce a new policy.
    assert_finds(&cluster, &[]).await;
    let output = cluster.kubectl_larder(&["doctor"]).await;
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("leads, in namespace pantry."), "{said}");
    assert!(said.contains("An agent answers on all 2 nodes."), "{said}");
    assert!(
        said.contains("A status is refused to whoever is not its node; tried."),
        "{said}"
    );
    let elsewhere = cluster.larder(&["doctor", "--system-namespace", "larder-system"]).await;
    assert_eq!(elsewhere.status.code(), Some(1));
    let elsewhere = String::from_utf8_lossy(&elsewhere.stdout).into_owned();
    assert!(
        elsewhere.contains("installed in another namespace than larder-system: pantry."),
        "{elsewhere}"
    );

    // The policy goes.
    let binding = "validatingadmissionpolicybinding/larder-agent-own-node";
    cluster.kubectl(&["delete", binding]).await.unwrap();
    assert_finds(
        &cluster,
        &["problem policy: The policy larder-agent-own-node has no binding, and is not enforced"],
    )
    .await;

    // Agents are kept off a node by the chart's own values: the node is left out.
    let one_node = [&VALUES[..], &["agent.nodeSelector.kubernetes\\.io/hostname=node-0"]].concat();
    cluster.upgrade(&one_node).await;
    assert_finds(&cluster, &[]).await;

    // Agents are kept off a node, and the controller was not told.
    cluster.upgrade(&VALUES).await;
    select_hostname(&cluster, "\"node-0\"").await;
    assert_finds(
        &cluster,
        &["problem agents: An agent has answered and its pod is gone on 1 node: node-1."],
    )
    .await;

    // A CRD goes.
    cluster
        .kubectl(&[
            "delete",
            "crd",
            "imageprepulljobs.operations.kubeedge.io",
            "--timeout=50s",
        ])
        .await
        .unwrap();
    assert_finds(
        &cluster,
        &[
            "problem crds: 1 of 4 CRDs are not installed: imageprepulljobs.operations.kubeedge.io.",
            "note controller: The pod larder-controller-",
            "problem agents: An agent has answered and its pod is gone on 1 node: node-1.",
        ],
    )
    .await;

    // An upgrade brings back what is missing. What somebody added to the DaemonSet, Helm leaves alone.
    select_hostname(&cluster, "null").await;
    cluster.upgrade(&VALUES).await;
    assert_finds(&cluster, &[]).await;
}
