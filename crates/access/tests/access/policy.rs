//! The policy judges every writer, also those whom RBAC lets do anything.

use larder_access::{CLOUD_CORE_USER, KubeEdge, Settings};
use larder_testkit::{Access, ControlPlane, Options, unique_name};

use crate::cluster::{forbidden, install, node, shared, write_status};

/// Somebody with all permissions, by any name.
fn all_powerful(access: &Access, user: &str) -> kube::Client {
    access.client_as(user, &["system:masters"]).unwrap()
}

#[tokio::test]
async fn an_administrator_is_no_node() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let name = node(&admin, &unique_name("node")).await;
    let sentence = forbidden(write_status(&admin, &name).await);
    assert!(sentence.contains("the token of admin names no node"), "{sentence}");
}

#[tokio::test]
async fn the_nodes_own_identity_writes_its_own_status() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let name = node(&admin, &unique_name("node")).await;
    let other = node(&admin, &unique_name("other")).await;
    let identity = all_powerful(&access, &format!("system:node:{name}"));
    write_status(&identity, &name).await.unwrap();
    let sentence = forbidden(write_status(&identity, &other).await);
    let wanted = format!("system:node:{name} may write the status of its own NodeImage alone, not of {other}");
    assert!(sentence.contains(&wanted), "{sentence}");
}

#[tokio::test]
async fn the_controller_is_let_through() {
    let access = shared().await;
    let name = node(&access.client().unwrap(), &unique_name("node")).await;
    let controller = all_powerful(&access, "system:serviceaccount:larder-system:larder-controller");
    write_status(&controller, &name).await.unwrap();
    let namesake = all_powerful(&access, "system:serviceaccount:default:larder-controller");
    forbidden(write_status(&namesake, &name).await);
}

#[tokio::test]
async fn cloud_core_is_told_what_to_turn_on() {
    let access = shared().await;
    let name = node(&access.client().unwrap(), &unique_name("node")).await;
    let sentence = forbidden(write_status(&all_powerful(&access, CLOUD_CORE_USER), &name).await);
    assert!(sentence.contains("turn on the authorization of CloudHub"), "{sentence}");
}

/// On a control plane of its own, because the policy is another one.
#[tokio::test]
async fn cloud_core_writes_where_it_was_accepted() {
    let options = Options {
        crds: larder_api::crds(),
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let settings = Settings {
        kube_edge: KubeEdge::CloudCore,
        ..Settings::default()
    };
    install(plane.access(), &settings).await;
    let name = node(&plane.client().unwrap(), &unique_name("node")).await;
    write_status(&all_powerful(plane.access(), CLOUD_CORE_USER), &name)
        .await
        .unwrap();
    forbidden(write_status(&all_powerful(plane.access(), "system:node:other"), &name).await);
}
