//! An agent writes the status of its node, and can do nothing else. That it is only its own node is up to the policy.

use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use larder_api::{ImagePullJob, NodeImage};
use larder_testkit::unique_name;
use serde_json::json;

use crate::cluster::{NAMESPACE, agent_in_pod_on, agent_of, forbidden, node, shared, write_status};

#[tokio::test]
async fn writes_the_status_of_its_own_node() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let mine = node(&admin, &unique_name("mine")).await;
    write_status(&agent_of(&access, &mine).await, &mine).await.unwrap();
    write_status(&agent_in_pod_on(&access, &mine).await, &mine)
        .await
        .unwrap();
    let written = Api::<NodeImage>::all(admin).get(&mine).await.unwrap();
    assert!(written.status.unwrap().agent.is_some());
}

#[tokio::test]
async fn reads_node_images_and_nothing_else() {
    let access = shared().await;
    let mine = node(&access.client().unwrap(), &unique_name("mine")).await;
    let agent = agent_of(&access, &mine).await;
    let orders = Api::<NodeImage>::all(agent.clone());
    orders.get(&mine).await.unwrap();
    orders.list(&ListParams::default()).await.unwrap();

    let secrets = Api::<Secret>::namespaced(agent.clone(), NAMESPACE);
    forbidden(secrets.get("any").await);
    forbidden(secrets.list(&ListParams::default()).await);
    forbidden(Api::<Secret>::all(agent.clone()).list(&ListParams::default()).await);
    let nodes = Api::<Node>::all(agent.clone());
    forbidden(nodes.list(&ListParams::default()).await);
    forbidden(nodes.get(&mine).await);
    let jobs = Api::<ImagePullJob>::all(agent);
    forbidden(jobs.list(&ListParams::default()).await);
}

#[tokio::test]
async fn changes_no_spec_and_creates_nothing() {
    let access = shared().await;
    let mine = node(&access.client().unwrap(), &unique_name("mine")).await;
    let agent = agent_of(&access, &mine).await;
    let orders = Api::<NodeImage>::all(agent.clone());
    let spec = Patch::Merge(json!({ "spec": { "images": {} } }));
    forbidden(orders.patch(&mine, &PatchParams::default(), &spec).await);
    forbidden(orders.delete(&mine, &DeleteParams::default()).await);
    let mut another = orders.get(&mine).await.unwrap();
    another.metadata.name = Some(unique_name("another"));
    another.metadata.resource_version = None;
    forbidden(orders.create(&PostParams::default(), &another).await);
    create_is_forbidden::<ImagePullJob>(
        &agent,
        &json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ImagePullJob",
            "metadata": { "name": "job" },
            "spec": { "image": "nginx:1.27", "completionPolicy": {} },
        }),
    )
    .await;
    create_is_forbidden::<Event>(&agent, &json!({ "metadata": { "name": "event" }, "eventTime": null })).await;
}

/// The spec stays as it is even when it travels with a status that may be written.
#[tokio::test]
async fn a_spec_beside_the_status_is_dropped() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let mine = node(&admin, &unique_name("mine")).await;
    let agent = agent_of(&access, &mine).await;
    let both = Patch::Merge(json!({
        "metadata": { "labels": { "stolen": "yes" } },
        "spec": { "images": { "nginx": { "tags": [{ "tag": "1.27" }] } } },
        "status": { "agent": { "version": "1" } },
    }));
    let orders = Api::<NodeImage>::all(agent);
    orders
        .patch_status(&mine, &PatchParams::default(), &both)
        .await
        .unwrap();
    let after = Api::<NodeImage>::all(admin).get(&mine).await.unwrap();
    assert!(after.spec.images.is_empty());
    assert_eq!(after.metadata.labels, None);
}

async fn create_is_forbidden<K>(client: &Client, object: &serde_json::Value)
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + serde::de::DeserializeOwned
        + serde::Serialize
        + Clone
        + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object.clone()).unwrap();
    let api = Api::<K>::namespaced(client.clone(), "default");
    forbidden(api.create(&PostParams::default(), &object).await);
}
