//! What is missing below Kubernetes 1.30 is reported. These tests run on such versions alone.

use crate::doctor::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_that_the_policy_on_agents_cannot_be_enforced() {
    let findings = Cluster::start().await.findings().await;
    let begin = "problem policy: The policy larder-agent-own-node cannot be enforced below Kubernetes 1.30";
    assert!(
        findings.iter().any(|finding| finding.starts_with(begin)),
        "{findings:#?}"
    );
}
