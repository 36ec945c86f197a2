//! The policy applies to every writer: RBAC decides only who is an administrator. Kubernetes has what it needs from 1.30 on.

use std::time::Duration;

use kube::api::Api;
use larder_access::{BYPASS_VERB, CLOUD_CORE_USER, KubeEdge, Settings};
use larder_api::NodeImage;
use larder_testkit::{Access, ControlPlane, Options, unique_name, wait_for};
use serde_json::json;

use crate::cluster::{
    NAMESPACE, agent_in_pod_on, agent_of, apply, bind, forbidden, install, node, shared, write_status, writer,
};

/// A user with all permissions.
fn all_powerful(access: &Access, user: &str) -> kube::Client {
    access.client_as(user, &["system:masters"]).unwrap()
}

#[tokio::test]
async fn an_agent_does_not_write_the_status_of_another_node() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let mine = node(&admin, &unique_name("mine")).await;
    let other = node(&admin, &unique_name("other")).await;
    for agent in [agent_of(&access, &mine).await, agent_in_pod_on(&access, &mine).await] {
        let sentence = forbidden(write_status(&agent, &other).await);
        let wanted = format!(
            "the token of system:serviceaccount:larder-system:larder-agent is bound to node {mine} and may write only \
             the status of that NodeImage, not of {other}"
        );
        assert!(sentence.contains(&wanted), "{sentence}");
    }
    assert_eq!(Api::<NodeImage>::all(admin).get(&other).await.unwrap().status, None);
}

#[tokio::test]
async fn an_agent_without_a_node_in_its_token_is_told_how_to_get_one() {
    let access = shared().await;
    let mine = node(&access.client().unwrap(), &unique_name("mine")).await;
    let token = access
        .service_account_token(NAMESPACE, "larder-agent", None)
        .await
        .unwrap();
    let agent = access.client_with_token(&token).unwrap();
    let sentence = forbidden(write_status(&agent, &mine).await);
    assert!(sentence.contains("names no node"), "{sentence}");
    let command = format!("kubectl create token SERVICEACCOUNT --bound-object-kind Node --bound-object-name {mine}");
    assert!(sentence.contains(&command), "{sentence}");
}

/// For a repair by hand; administrators can read every Secret anyway.
#[tokio::test]
async fn an_administrator_writes_the_status_of_any_node() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let name = node(&admin, &unique_name("node")).await;
    write_status(&admin, &name).await.unwrap();
    // A pod's token names a node, and its account may still be an administrator's.
    let elsewhere = access.client_as("system:serviceaccount:default:repair", &["system:masters"]);
    write_status(&elsewhere.unwrap(), &name).await.unwrap();
}

#[tokio::test]
async fn who_may_patch_a_status_and_lacks_the_verb_is_refused() {
    let access = shared().await;
    let name = node(&access.client().unwrap(), &unique_name("node")).await;
    let sentence = forbidden(write_status(&writer(&access, "somebody"), &name).await);
    assert!(sentence.contains("the token of somebody names no node"), "{sentence}");
    assert!(
        sentence.contains("the verb bypass-node-check on nodeimages/status"),
        "{sentence}"
    );
}

#[tokio::test]
async fn the_verb_alone_makes_an_administrator() {
    let access = shared().await;
    let admin = access.client().unwrap();
    let (mine, other) = (unique_name("mine"), unique_name("other"));
    for name in [&mine, &other] {
        node(&admin, name).await;
    }
    let user = unique_name("repair");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": user },
        "rules": [{
            "apiGroups": ["apps.kruise.io"],
            "resources": ["nodeimages/status"],
            "resourceNames": [mine],
            "verbs": [BYPASS_VERB],
        }],
    });
    apply(&admin, serde_json::from_value(role).unwrap()).await;
    bind(&admin, &user, "User", &user, &user).await;
    let repair = writer(&access, &user);
    wait_for(Duration::from_secs(10), "the role is in force", async || {
        write_status(&repair, &mine).await.map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    forbidden(write_status(&repair, &other).await);
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
    let wanted = format!("system:node:{name} may write only the status of its own NodeImage, not of {other}");
    assert!(sentence.contains(&wanted), "{sentence}");
}

#[tokio::test]
async fn the_controller_is_let_through() {
    let access = shared().await;
    let name = node(&access.client().unwrap(), &unique_name("node")).await;
    let controller = all_powerful(&access, "system:serviceaccount:larder-system:larder-controller");
    write_status(&controller, &name).await.unwrap();
    let namesake = writer(&access, "system:serviceaccount:default:larder-controller");
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
