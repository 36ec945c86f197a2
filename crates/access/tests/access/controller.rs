//! The controller can do what it has to, and cannot go looking for Secrets.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::{Client, Resource as _};
use larder_access::CONTROLLER;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use larder_testkit::{Access, unique_name};
use serde_json::json;

use crate::cluster::{NAMESPACE, forbidden, node, shared, write_status};

async fn controller(access: &Access) -> Client {
    let token = access.service_account_token(NAMESPACE, CONTROLLER, None).await.unwrap();
    access.client_with_token(&token).unwrap()
}

#[tokio::test]
async fn gets_a_secret_by_name_and_lists_none() {
    let access = shared().await;
    let name = unique_name("pull");
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    let created = Api::<Secret>::namespaced(access.client().unwrap(), "default");
    created.create(&PostParams::default(), &secret).await.unwrap();

    let controller = controller(&access).await;
    let secrets = Api::<Secret>::namespaced(controller.clone(), "default");
    secrets.get(&name).await.unwrap();
    forbidden(secrets.list(&ListParams::default()).await);
    forbidden(Api::<Secret>::all(controller).list(&ListParams::default()).await);
    forbidden(secrets.watch(&WatchParams::default(), "0").await.map(drop));
    forbidden(secrets.delete(&name, &DeleteParams::default()).await);
    let data = Patch::Merge(json!({ "stringData": { "a": "b" } }));
    forbidden(secrets.patch(&name, &PatchParams::default(), &data).await);
}

#[tokio::test]
async fn reads_what_it_decides_from() {
    let access = shared().await;
    let controller = controller(&access).await;
    let all = ListParams::default();
    Api::<Node>::all(controller.clone()).list(&all).await.unwrap();
    Api::<Pod>::all(controller.clone()).list(&all).await.unwrap();
    Api::<NodeImage>::all(controller.clone()).list(&all).await.unwrap();
    Api::<ImagePullJob>::all(controller.clone()).list(&all).await.unwrap();
    Api::<ImageListPullJob>::all(controller.clone())
        .list(&all)
        .await
        .unwrap();
    Api::<ImagePrePullJob>::all(controller.clone())
        .list(&all)
        .await
        .unwrap();

    let definitions = Api::<CustomResourceDefinition>::all(controller);
    let ours = ListParams::default().fields("metadata.name=nodeimages.apps.kruise.io");
    assert_eq!(definitions.list(&ours).await.unwrap().items.len(), 1);
    forbidden(definitions.list(&all).await);
}

#[tokio::test]
async fn writes_orders_and_job_status_but_no_node_status() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let name = node(&admin, &unique_name("node")).await;
    let controller = controller(&access).await;
    let orders = Api::<NodeImage>::all(controller.clone());
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "zone": "a" } } }));
    orders.patch(&name, &PatchParams::default(), &labels).await.unwrap();
    forbidden(write_status(&controller, &name).await);
    orders.delete(&name, &DeleteParams::default()).await.unwrap();

    let job: ImagePullJob = serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "ImagePullJob",
        "metadata": { "name": unique_name("job") },
        "spec": { "image": "nginx:1.27", "completionPolicy": {} },
    }))
    .unwrap();
    let jobs = Api::<ImagePullJob>::namespaced(controller.clone(), "default");
    let job = jobs.create(&PostParams::default(), &job).await.unwrap();
    let job = job.metadata.name.unwrap();
    let status = Patch::Merge(json!({ "status": { "desired": 1 } }));
    jobs.patch_status(&job, &PatchParams::default(), &status).await.unwrap();
    jobs.delete(&job, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn holds_its_lease_and_no_other() {
    let access = shared().await;
    let controller = controller(&access).await;
    let leases = Api::<Lease>::namespaced(controller.clone(), NAMESPACE);
    let mine: Lease = serde_json::from_value(json!({ "metadata": { "name": CONTROLLER } })).unwrap();
    let mine = leases.create(&PostParams::default(), &mine).await.unwrap();
    leases.replace(CONTROLLER, &PostParams::default(), &mine).await.unwrap();
    forbidden(leases.get("another").await);
    forbidden(leases.delete(CONTROLLER, &DeleteParams::default()).await);
    let elsewhere = Api::<Lease>::namespaced(controller, "default");
    forbidden(elsewhere.get(CONTROLLER).await);
}

/// With this right it tries whether the node policy is enforced. It must not be able to speak for a node.
#[tokio::test]
async fn acts_as_the_agents_account_and_as_nobody_else() {
    let access = shared().await;
    let controller = controller(&access).await;
    let mine = node(&access.client().unwrap(), &unique_name("mine")).await;
    let read_as = async |headers: &[(&'static str, &str)]| {
        let path = NodeImage::url_path(&(), None);
        let mut request = kube::core::Request::new(path)
            .get(&mine, &GetParams::default())
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        controller.request::<NodeImage>(request).await
    };
    let agent = format!("system:serviceaccount:{NAMESPACE}:larder-agent");
    read_as(&[("impersonate-user", &agent)]).await.unwrap();
    let claim = (
        "impersonate-extra-authentication.kubernetes.io%2fnode-name",
        mine.as_str(),
    );
    forbidden(read_as(&[("impersonate-user", &agent), claim]).await);
    for other in [
        "system:admin",
        "system:node:a",
        "system:serviceaccount:kube-system:larder-agent",
    ] {
        forbidden(read_as(&[("impersonate-user", other)]).await);
    }
}
