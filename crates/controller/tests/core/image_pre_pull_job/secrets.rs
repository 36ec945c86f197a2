//! Pull secrets: each image with its own, sealed to the nodes that need it, waited for when it is missing.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use larder_api::NodeImage;
use larder_api::names::EDGE_NODE_LABEL;
use larder_model::{ImageRef, NodeName, Reason};
use larder_planner::secret::SecretNamespaces;
use larder_seal::{Binding, KeyPair, Sealed, open};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::scene::{condition, counts, message, phases};
use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::Stage;

fn key() -> (tempfile::TempDir, KeyPair) {
    let folder = tempfile::tempdir().unwrap();
    let pair = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    (folder, pair)
}

fn docker(registry: &str, password: &str) -> Value {
    let auths = json!({"auths": {registry: {"username": "ann", "password": password}}});
    json!({".dockerconfigjson": auths.to_string()})
}

async fn create(stage: &Stage, name: &str, data: Value) {
    let secret = json!({"metadata": {"name": name}, "stringData": data});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets = Api::<Secret>::namespaced(stage.client.clone(), &stage.namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

async fn edge(fleet: &Fleet, name: &str, agent: Agent, region: &str) {
    fleet
        .add(name, agent, json!({EDGE_NODE_LABEL: "", "region": region}))
        .await;
}

/// The passwords that a node can read for a job's image.
fn passwords(object: &NodeImage, pair: &KeyPair, claim_uid: &str, image: &str) -> Vec<String> {
    let image = ImageRef::parse(image).unwrap();
    let Some(entry) = object.entry(image.name(), &image.tag_text()) else {
        return Vec::new();
    };
    let node = NodeName::parse(object.metadata.name.as_deref().unwrap()).unwrap();
    let binding = Binding {
        node: &node,
        node_image_uid: object.metadata.uid.as_deref().unwrap(),
        image: &image,
        claim_uid,
    };
    let sealed = larder_api::contract::credentials(&object.spec, entry).unwrap_or_default();
    let read = |sealed: &larder_api::node_image::SealedCredential| {
        let sealed = Sealed {
            id: sealed.id.clone(),
            key: sealed.key.clone(),
            data: sealed.data.clone(),
        };
        open(pair, &binding, &sealed).unwrap()
    };
    let logins = sealed.into_iter().flat_map(read);
    logins.map(|login| login.password.expose_secret().to_owned()).collect()
}

#[tokio::test]
async fn each_image_gets_its_own_credentials_and_no_other() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    edge(&fleet, "node", Agent::Hangs, "east").await;
    create(&stage, "one", docker("one.example", "first")).await;
    let mut both = docker("one.example", "second")[".dockerconfigjson"]
        .as_str()
        .unwrap()
        .to_owned();
    both = both.replace(
        "}}}",
        "},\"two.example\":{\"username\":\"ann\",\"password\":\"third\"}}}",
    );
    create(&stage, "both", json!({".dockerconfigjson": both})).await;
    let namespace = &stage.namespace;
    let images = json!([
        {"registry": "one.example", "repo": "app", "tag": "1", "imageSecret": format!("{namespace}/one")},
        "two.example/app:1",
        "three.example/app:1",
    ]);
    let template = json!({"images": images, "nodeNames": ["node"], "imageSecrets": format!("{namespace}/both")});
    let job = stage.prepull("job", template).await;
    let uid = job.metadata.uid.unwrap();
    let object = stage
        .node_becomes("node", "ordered", |object| !object.spec.images.is_empty())
        .await;
    let read = |image: &str| passwords(&object, &pair, &uid, image);
    assert_eq!(read("one.example/app:1"), ["first"], "its own, not the job's");
    assert_eq!(read("two.example/app:1"), ["third"], "the job's, by registry");
    assert!(read("three.example/app:1").is_empty(), "nobody has any for it");
    let text = serde_json::to_string(&object).unwrap();
    assert!(
        ["first", "second", "third"]
            .iter()
            .all(|password| !text.contains(password))
    );
}

#[tokio::test]
async fn a_missing_secret_stops_only_the_nodes_that_need_it() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    edge(&fleet, "a", QUICK, "hangzhou").await;
    edge(&fleet, "b", QUICK, "shanghai").await;
    create(&stage, "pull", docker("one.example", "s3cret")).await;
    let namespace = &stage.namespace;
    let change = json!({"component": "SecretName", "operator": "replace", "value": "hangzhou"});
    let job = json!({
        "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "ImagePrePullJob", "metadata": {"name": "job"},
        "spec": {
            "imagePrePullTemplate": {
                "images": ["one.example/app:1"], "labelSelector": {}, "imageSecrets": format!("{namespace}/pull"),
            },
            "imagePrePullOverriders": [{"nodeLabel": "region=hangzhou", "overriders": {"secretOverriders": [change]}}],
        },
    });
    let job = serde_json::from_value(job).unwrap();
    stage.prepulls().create(&PostParams::default(), &job).await.unwrap();
    let status = stage
        .prepull_becomes("job", "waiting for one", |status| {
            counts(status) == (2, 1, 0) && condition(status, "Progressing").as_deref() == Some("SecretMissing")
        })
        .await;
    assert_eq!(phases(&status), [("a", "Pending"), ("b", "Successful")]);
    let wanted = unusable(&format!("{namespace}/hangzhou"));
    assert!(message(&status).ends_with(&wanted), "{}", message(&status));
    assert_eq!(status.progress.reasons, [("SecretMissing".to_owned(), 1)].into());
    assert_eq!(fleet.pulls("a"), 0, "never anonymously instead");
    create(&stage, "hangzhou", docker("one.example", "s3cret")).await;
    assert_eq!(counts(&stage.prepull_ends("job").await), (2, 2, 0));
}

#[tokio::test]
async fn a_secret_without_docker_configuration_is_named() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    edge(&fleet, "a", QUICK, "east").await;
    create(&stage, "pull", json!({"password": "s3cret"})).await;
    let secret = format!("{}/pull", stage.namespace);
    stage
        .prepull("job", json!({"nodeNames": ["a"], "imageSecrets": secret}))
        .await;
    let wanted = unusable(&secret);
    stage
        .prepull_becomes("job", "told", |status| message(status).ends_with(&wanted))
        .await;
    assert_eq!(fleet.all_pulls(), 0);
}

#[tokio::test]
async fn a_rotated_secret_is_picked_up_after_a_refusal() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    edge(&fleet, "a", Agent::Hangs, "east").await;
    create(&stage, "pull", docker("one.example", "old")).await;
    let secret = format!("{}/pull", stage.namespace);
    let template =
        json!({"images": ["one.example/app:1", "two.example/app:1"], "nodeNames": ["a"], "imageSecrets": secret});
    let job = stage.prepull("job", template).await;
    let uid = job.metadata.uid.unwrap();
    stage
        .node_becomes("a", "ordered", |object| {
            passwords(object, &pair, &uid, "one.example/app:1") == ["old"]
        })
        .await;
    let secrets = Api::<Secret>::namespaced(stage.client.clone(), &stage.namespace);
    let rotated = Patch::Merge(json!({"stringData": docker("one.example", "new")}));
    secrets.patch("pull", &PatchParams::default(), &rotated).await.unwrap();
    fleet.set("a", QUICK);
    stage.report_success("a", "two.example/app").await;
    let denied = json!({"status": {"imageStatuses": {"one.example/app": {"tags": [
        {"tag": "1", "version": 0, "phase": "Failed", "reason": Reason::AuthDenied.as_str(), "completionTime": "2026-01-01T00:00:00Z"},
    ]}}}});
    stage
        .node_images()
        .patch_status("a", &PatchParams::default(), &Patch::Merge(denied))
        .await
        .unwrap();
    assert_eq!(counts(&stage.prepull_ends("job").await), (1, 1, 0));
    assert_eq!(
        fleet.pulls_of("two.example/app"),
        0,
        "what is there is not asked for again"
    );
    let object = stage.node_images().get("a").await.unwrap();
    assert_eq!(passwords(&object, &pair, &uid, "one.example/app:1"), ["new"]);
}

/// The same sentence for a Secret that is missing, of another type, or not for this kind.
fn unusable(secret: &str) -> String {
    format!(
        "nodes wait: pull secrets cannot be used, because they do not exist, hold no docker configuration, or are in a namespace \
         that is closed to ImagePrePullJobs: {secret}"
    )
}

#[tokio::test]
async fn a_job_uses_secrets_of_open_namespaces_alone() {
    let mut stage = Stage::without_controller().await;
    let open = ["open".to_owned(), stage.namespace.clone()];
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    edge(&fleet, "node", Agent::Hangs, "east").await;
    create(&stage, "pull", docker("one.example", "s3cret")).await;
    let secret = format!("{}/pull", stage.namespace);
    let template = json!({"images": ["one.example/app:1"], "nodeNames": ["node"], "imageSecrets": secret});
    let job = stage.prepull("private", template).await;
    let uid = job.metadata.uid.unwrap();

    // Closed: as if the Secret did not exist, although a job of its own namespace has it read.
    stage.start_controller(|settings| {
        settings.pre_pull_secret_namespaces = SecretNamespaces::Only(["open".to_owned()].into());
    });
    let own = json!({"image": "one.example/own:1", "pullSecrets": ["pull"], "selector": {"names": ["node"]}});
    let own = stage.submit("own", own).await.metadata.uid.unwrap();
    stage
        .node_becomes("node", "given the login of the other job", |object| {
            passwords(object, &pair, &own, "one.example/own:1") == ["s3cret"]
        })
        .await;
    let status = stage
        .prepull_becomes("private", "told", |status| {
            let waits = status.progress.reasons == [("SecretMissing".to_owned(), 1)].into();
            waits && message(status).ends_with(&unusable(&secret))
        })
        .await;
    assert_eq!(phases(&status), [("node", "Pending")]);
    let object = stage.node_images().get("node").await.unwrap();
    assert!(passwords(&object, &pair, &uid, "one.example/app:1").is_empty());
    stage.stop_controller().await;

    // Open.
    stage.start_controller(|settings| {
        settings.pre_pull_secret_namespaces = SecretNamespaces::Only(open.into());
    });
    stage
        .node_becomes("node", "given the login", |object| {
            passwords(object, &pair, &uid, "one.example/app:1") == ["s3cret"]
        })
        .await;
}

/// Where CloudCore may write for every edge node, a published key may be anybody's.
#[tokio::test]
async fn where_cloudcore_is_accepted_edge_nodes_are_sent_no_credentials() {
    let stage = Stage::with(|settings| settings.accept_cloudcore = true).await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    edge(&fleet, "edge", Agent::Hangs, "east").await;
    fleet.add("cloud", Agent::Hangs, json!({})).await;
    create(&stage, "pull", docker("one.example", "s3cret")).await;
    let secret = format!("{}/pull", stage.namespace);
    let template = json!({"images": ["one.example/app:1"], "nodeNames": ["edge"], "imageSecrets": secret});
    stage.prepull("private", template).await;
    let job = stage
        .submit(
            "cloud",
            json!({"image": "one.example/app:1", "pullSecrets": ["pull"], "parallelism": 2}),
        )
        .await;
    let status = stage
        .prepull_becomes("private", "told", |status| {
            status.progress.reasons.contains_key("CredentialsUnreadable")
        })
        .await;
    assert_eq!(phases(&status), [("edge", "Pending")]);
    let uid = job.metadata.uid.unwrap();
    stage
        .node_becomes("cloud", "given credentials", |object| {
            passwords(object, &pair, &uid, "one.example/app:1") == ["s3cret"]
        })
        .await;
    let object = stage.node_images().get("edge").await.unwrap();
    assert!(object.spec.sealed_credentials.is_empty() && object.spec.images.is_empty());
    stage.prepull("open", json!({"nodeNames": ["edge"]})).await;
    stage
        .node_becomes("edge", "asked for what needs none", |object| {
            object.entry("nginx", "1").is_some()
        })
        .await;
}
