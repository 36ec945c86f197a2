//! Pull secrets: sealed to the nodes that need them, waited for when they are missing, read again after a refusal.

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use larder_api::NodeImage;
use larder_model::{ImageRef, NodeName, Reason};
use larder_seal::{Binding, KeyPair, Sealed, open};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::fleet::{Agent, Fleet, QUICK};
use crate::stage::{Stage, condition};

const IMAGE: &str = "registry.example/team/app:1";

fn config(password: &str) -> serde_json::Value {
    let auths = json!({"auths": {"registry.example": {"username": "ann", "password": password}}});
    json!({".dockerconfigjson": auths.to_string()})
}

async fn create(stage: &Stage, password: &str) {
    let secret = json!({
        "metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson", "stringData": config(password),
    });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets = Api::<Secret>::namespaced(stage.client.clone(), &stage.namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
}

fn key() -> (tempfile::TempDir, KeyPair) {
    let folder = tempfile::tempdir().unwrap();
    let pair = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    (folder, pair)
}

/// The password that a node can read for a job.
fn password(object: &NodeImage, pair: &KeyPair, claim_uid: &str) -> Option<String> {
    let entry = object.entry("registry.example/team/app", "1")?;
    let sealed = larder_api::contract::credentials(&object.spec, entry).ok()?;
    let [sealed] = sealed.as_slice() else { return None };
    let binding = Binding {
        node: &NodeName::parse("node-0").unwrap(),
        node_image_uid: object.metadata.uid.as_deref()?,
        image: &ImageRef::parse(IMAGE).unwrap(),
        claim_uid,
    };
    let sealed = Sealed {
        id: sealed.id.clone(),
        key: sealed.key.clone(),
        data: sealed.data.clone(),
    };
    let logins = open(pair, &binding, &sealed).ok()?;
    Some(logins.first()?.password.expose_secret().to_owned())
}

#[tokio::test]
async fn a_missing_secret_is_waited_for_and_then_sealed_to_the_node() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    fleet.add("node-0", QUICK, json!({})).await;
    let job = stage
        .submit("job", json!({"image": IMAGE, "pullSecrets": ["pull"]}))
        .await;
    let waiting = stage
        .job_becomes("job", "waiting", |job| {
            condition(job, "Progressing").as_deref() == Some("SecretMissing")
        })
        .await;
    let status = waiting.status.unwrap();
    assert!(
        status
            .message
            .unwrap()
            .contains(&format!("{}/pull does not exist", stage.namespace))
    );
    assert_eq!(status.progress.reasons["SecretMissing"], 1);
    assert_eq!(fleet.all_pulls(), 0);

    create(&stage, "s3cret").await;
    let job_uid = job.metadata.uid.unwrap();
    let object = stage
        .node_becomes("node-0", "given the credentials", |object| {
            password(object, &pair, &job_uid).is_some()
        })
        .await;
    assert_eq!(password(&object, &pair, &job_uid).as_deref(), Some("s3cret"));
    let text = serde_json::to_string(&object).unwrap();
    assert!(!text.contains("s3cret"));
    assert_eq!(stage.job_ends("job").await.status.unwrap().succeeded, 1);
}

#[tokio::test]
async fn a_rotated_secret_is_picked_up_after_a_refusal() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    fleet.add("node-0", Agent::Hangs, json!({})).await;
    create(&stage, "old").await;
    let job = stage
        .submit("job", json!({"image": IMAGE, "pullSecrets": ["pull"]}))
        .await;
    let job_uid = job.metadata.uid.unwrap();
    stage
        .node_becomes("node-0", "ordered", |object| {
            password(object, &pair, &job_uid).as_deref() == Some("old")
        })
        .await;
    let secrets = Api::<Secret>::namespaced(stage.client.clone(), &stage.namespace);
    let rotated = json!({"stringData": config("new")});
    secrets
        .patch("pull", &PatchParams::default(), &Patch::Merge(rotated))
        .await
        .unwrap();
    fleet.set("node-0", QUICK);
    let denied = json!({"status": {"imageStatuses": {"registry.example/team/app": {"tags": [
        {"tag": "1", "version": 0, "phase": "Failed", "reason": Reason::AuthDenied.as_str(), "completionTime": "2026-01-01T00:00:00Z"},
    ]}}}});
    stage
        .node_images()
        .patch_status("node-0", &PatchParams::default(), &Patch::Merge(denied))
        .await
        .unwrap();
    let ended = stage.job_ends("job").await;
    assert_eq!(ended.status.unwrap().succeeded, 1);
    let object = stage.node_images().get("node-0").await.unwrap();
    assert_eq!(object.entry("registry.example/team/app", "1").unwrap().version, 1);
}

#[tokio::test]
async fn a_refusal_with_the_present_secret_is_final() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    fleet.add("node-0", Agent::Fails(Reason::AuthDenied), json!({})).await;
    create(&stage, "wrong").await;
    stage
        .submit("job", json!({"image": IMAGE, "pullSecrets": ["pull"]}))
        .await;
    let ended = stage.job_ends("job").await;
    assert_eq!(ended.status.unwrap().progress.reasons["AuthDenied"], 1);
    assert_eq!(fleet.all_pulls(), 1);
}

#[tokio::test]
async fn a_new_key_is_sealed_for_again() {
    let stage = Stage::new().await;
    let ((_one, old), (_two, new)) = (key(), key());
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&old.public().to_string());
    fleet.add("node-0", Agent::Hangs, json!({})).await;
    create(&stage, "s3cret").await;
    let job = stage
        .submit("job", json!({"image": IMAGE, "pullSecrets": ["pull"]}))
        .await;
    let job_uid = job.metadata.uid.unwrap();
    stage
        .node_becomes("node-0", "ordered", |object| password(object, &old, &job_uid).is_some())
        .await;
    let published = json!({"status": {"agent": {"publicKey": new.public().to_string()}}});
    stage
        .node_images()
        .patch_status("node-0", &PatchParams::default(), &Patch::Merge(published))
        .await
        .unwrap();
    let object = stage
        .node_becomes("node-0", "sealed anew", |object| {
            password(object, &new, &job_uid).is_some()
        })
        .await;
    assert_eq!(object.spec.sealed_credentials.len(), 1);
}

#[tokio::test]
async fn a_hand_written_entry_gets_credentials_from_two_namespaces_only() {
    let stage = Stage::new().await;
    let (_folder, pair) = key();
    let fleet = Fleet::new(&stage.client);
    fleet.publish_key(&pair.public().to_string());
    fleet.add("node-0", Agent::Hangs, json!({})).await;
    create(&stage, "not for you").await;
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(stage.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "larder-system"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let secret = json!({"metadata": {"name": "pull"}, "stringData": config("for the node")});
    let secrets = Api::<Secret>::namespaced(stage.client.clone(), "larder-system");
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();

    let write = async |namespace: &str| {
        let image = json!({
            "pullSecrets": [{"namespace": namespace, "name": "pull"}],
            "tags": [{"tag": "1", "pullPolicy": {"ttlSecondsAfterFinished": 9_000}}],
        });
        let patch = Patch::Merge(json!({"spec": {"images": {"registry.example/team/app": image}}}));
        stage
            .node_images()
            .patch("node-0", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    stage
        .node_becomes("node-0", "there", |object| object.status.is_some())
        .await;
    write(&stage.namespace).await;
    stage
        .node_becomes("node-0", "looked at", |object| {
            object
                .entry("registry.example/team/app", "1")
                .is_some_and(|entry| entry.created_at.is_some())
        })
        .await;
    write("larder-system").await;
    let object = stage
        .node_becomes("node-0", "given credentials", |object| {
            !object.spec.sealed_credentials.is_empty()
        })
        .await;
    let uid = object.metadata.uid.clone().unwrap();
    assert_eq!(password(&object, &pair, &uid).as_deref(), Some("for the node"));
}

#[tokio::test]
async fn a_secret_that_the_controller_may_not_read_is_named_in_the_job() {
    let mut stage = Stage::without_controller().await;
    let fleet = Fleet::of(&stage.client, &[QUICK]).await;
    create(&stage, "secret").await;
    let everything = stage.client.clone();
    stage.client = Client::new(
        tower::service_fn(move |request: http::Request<Body>| {
            let client = everything.clone();
            async move {
                if !request.uri().path().contains("/secrets/") {
                    return client.send(request).await;
                }
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                    "message": "secrets \"pull\" is forbidden", "code": 403});
                let answer = http::Response::builder().status(403);
                Ok(answer.body(Body::from(status.to_string().into_bytes())).unwrap())
            }
        }),
        "default",
    );
    stage.start_controller(|_| {});
    stage
        .submit("job", json!({"image": IMAGE, "pullSecrets": ["pull"]}))
        .await;
    let says = format!(
        "does not let the controller read the pull secret {}/pull",
        stage.namespace
    );
    let names_it = |job: &larder_api::ImagePullJob| {
        let message = job.status.as_ref().and_then(|status| status.message.clone());
        message.is_some_and(|message| message.contains(&says))
    };
    stage.job_becomes("job", "held by its Secret", names_it).await;
    assert_eq!(fleet.all_pulls(), 0);
}
