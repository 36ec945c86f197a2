//! The private control plane: it is a real Kubernetes, keeps its data over restarts, and can be shared.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use larder_testkit::{ControlPlane, Kubectl, Link, Options, Throttle, is_running, kubectl, unique_name, wait_until};
use serde_json::json;

fn crd() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "jars.larder.invalid"},
        "spec": {
            "group": "larder.invalid",
            "scope": "Namespaced",
            "names": {"kind": "Jar", "plural": "jars", "singular": "jar", "listKind": "JarList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {
                    "litres": {"type": "integer", "default": 3, "minimum": 1},
                }}},
            }}}],
        },
    }))
    .unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("kept".to_owned(), "yes".to_owned())])),
        ..ConfigMap::default()
    }
}

fn namespace(name: &str) -> Namespace {
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}

fn jars(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("larder.invalid", "v1", "Jar");
    Api::namespaced_with(client, "default", &ApiResource::from_gvk_with_plural(&kind, "jars"))
}

fn jar(name: &str, spec: &serde_json::Value) -> DynamicObject {
    let object = json!({"apiVersion": "larder.invalid/v1", "kind": "Jar", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

#[tokio::test]
async fn restarts_keep_address_and_data() {
    let options = Options {
        crds: vec![crd()],
        ..Options::default()
    };
    let mut plane = ControlPlane::start(options).await.unwrap();
    let client = plane.client().unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.36.3");
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("before"))
        .await
        .unwrap();
    jars(client.clone())
        .create(&PostParams::default(), &jar("before", &json!({})))
        .await
        .unwrap();

    let old = plane.pids();
    plane.kill_api_server().unwrap();
    maps.get("before").await.unwrap_err();
    plane.restart_api_server().await.unwrap();
    assert_eq!(maps.get("before").await.unwrap().data, config_map("before").data);
    assert_eq!(jars(client).get("before").await.unwrap().data["spec"]["litres"], 3);

    plane.kill_etcd().unwrap();
    plane.restart_etcd().await.unwrap();
    maps.get("before").await.unwrap();
    maps.create(&PostParams::default(), &config_map("after")).await.unwrap();

    let new = plane.pids();
    assert_eq!((old.len(), new.len()), (2, 2));
    assert!(
        old.iter().all(|pid| !new.contains(pid) && !is_running(*pid)),
        "{old:?} {new:?}"
    );
    let folder = plane.kubeconfig().parent().unwrap().to_owned();
    drop(plane);
    assert!(new.iter().all(|pid| !is_running(*pid)), "{new:?} run on");
    assert!(!folder.exists(), "{} is left behind", folder.display());
}

#[tokio::test]
async fn controller_manager_deletes_namespaces_and_binds_tokens() {
    let options = Options {
        controller_manager: true,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let client = plane.client().unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces
        .create(&PostParams::default(), &namespace("short-lived"))
        .await
        .unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "short-lived");
    wait_until(Duration::from_secs(30), "the service account", async || {
        accounts.get("default").await.is_ok()
    })
    .await
    .unwrap();

    let node = Node {
        metadata: ObjectMeta {
            name: Some("shelf".into()),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    Api::<Node>::all(client)
        .create(&PostParams::default(), &node)
        .await
        .unwrap();
    let token = plane
        .access()
        .service_account_token("short-lived", "default", Some("shelf"))
        .await
        .unwrap();
    let account = plane.access().client_with_token(&token).unwrap();
    let refused = Api::<Node>::all(account)
        .list(&ListParams::default())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("system:serviceaccount:short-lived:default"),
        "{refused}"
    );

    namespaces
        .delete("short-lived", &DeleteParams::default())
        .await
        .unwrap();
    wait_until(Duration::from_secs(30), "the end of the namespace", async || {
        namespaces
            .get_opt("short-lived")
            .await
            .is_ok_and(|found| found.is_none())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn shared_plane_serves_the_crds() {
    let access = ControlPlane::shared(&[crd()]).await.unwrap();
    let api = jars(access.client().unwrap());
    let name = unique_name("jar");
    let made = api
        .create(&PostParams::default(), &jar(&name, &json!({"unknown": true})))
        .await
        .unwrap();
    assert_eq!(made.data["spec"], json!({"litres": 3}));
    let refused = api
        .create(&PostParams::default(), &jar(&unique_name("jar"), &json!({"litres": 0})))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("litres"), "{refused}");
    let stranger = jars(access.client_as("stranger", &[]).unwrap());
    assert!(stranger.get(&name).await.unwrap_err().to_string().contains("stranger"));
}

#[tokio::test]
async fn shared_plane_is_the_same_for_all_tests() {
    let first = ControlPlane::shared(&[crd()]).await.unwrap();
    let second = ControlPlane::shared(&[crd()]).await.unwrap();
    assert_eq!(first.base_url(), second.base_url());
    let spaces = Api::<Namespace>::all(first.client().unwrap())
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(spaces.iter().any(|space| space.name_any() == "kube-system"));
}

#[rstest::rstest]
#[case::debian(Kubectl::Debian, "v1.20")]
#[case::current(Kubectl::Current, "v1.36.3")]
#[tokio::test]
async fn kubectl_of_both_versions_works(#[case] which: Kubectl, #[case] version: &str) {
    let access = ControlPlane::shared(&[crd()]).await.unwrap();
    let output = kubectl(which, access.kubeconfig(), ["version", "-o", "json"])
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        answer["clientVersion"]["gitVersion"]
            .as_str()
            .unwrap()
            .starts_with(version),
        "{answer}"
    );
    assert_eq!(answer["serverVersion"]["gitVersion"], "v1.36.3");
}

#[tokio::test]
async fn a_server_that_ends_says_why() {
    let options = Options {
        api_server_args: vec!["--no-such-flag".into()],
        ..Options::default()
    };
    let error = ControlPlane::start(options).await.unwrap_err().to_string();
    assert!(error.starts_with("kube-apiserver ended by itself"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

#[tokio::test]
async fn a_line_to_the_control_plane_can_be_cut() {
    let access = ControlPlane::shared(&[crd()]).await.unwrap();
    let line = Throttle::start(access.address()).await.unwrap();
    let through = access.through(line.address()).unwrap();
    let mut config = through.config(through.admin_token()).unwrap();
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    client.apiserver_version().await.unwrap();
    line.set(Link::Refused);
    wait_until(Duration::from_secs(10), "a refusal", async || {
        client.apiserver_version().await.is_err()
    })
    .await
    .unwrap();
    access.client().unwrap().apiserver_version().await.unwrap();
    line.set(Link::Open);
    wait_until(Duration::from_secs(10), "an answer", async || {
        client.apiserver_version().await.is_ok()
    })
    .await
    .unwrap();
}
