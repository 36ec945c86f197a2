//! What is missing below Kubernetes 1.30, as docs/kubernetes.md says it: the policy on agents cannot be had. These tests run
//! on such versions alone.

use larder_access::{AGENT, manifests};
use larder_testkit::unique_name;

use crate::cluster::{NAMESPACE, POLICY_FILE, node, shared, write_status};

#[tokio::test]
async fn the_api_server_does_not_know_the_policy() {
    let access = shared().await;
    let client = access.client().unwrap();
    let all = manifests(&larder_access::Settings::default());
    let policy = all.iter().find(|manifest| manifest.file == POLICY_FILE).unwrap();
    let version = policy.objects[0]["apiVersion"].as_str().unwrap();
    let served = client.list_api_group_resources(version).await.unwrap();
    let kinds: Vec<&str> = served.resources.iter().map(|resource| &*resource.kind).collect();
    assert!(!kinds.contains(&"ValidatingAdmissionPolicy"), "{kinds:?}");
}

#[tokio::test]
async fn an_agent_can_write_the_status_of_another_node() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let other = node(&admin, &unique_name("other")).await;
    let token = access.service_account_token(NAMESPACE, AGENT, None).await.unwrap();
    let agent = access.client_with_token(&token).unwrap();
    write_status(&agent, &other).await.unwrap();
}
