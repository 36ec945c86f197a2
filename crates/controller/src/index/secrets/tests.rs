//! When Secrets are read, and what follows from it.

use larder_api::NodeImage;
use larder_registry::docker_config::DockerConfig;
use larder_seal::KeyPair;
use serde_json::{Value, json};

use super::*;
use crate::facts::NodeFacts;
use crate::index::objects::JobStatus;
use crate::index::{Kind, Limits, NodeAction, NodeAnswer, Seen};
use crate::merge::json_of;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn named() -> SecretKey {
    SecretKey {
        namespace: LARDER_NAMESPACE.to_owned(),
        name: "pull".to_owned(),
    }
}

/// The Secret with a login for a registry, in one of its states.
fn present(registry: &str, source: &str) -> SecretAnswer {
    let config = json!({"auths": {registry: {"username": "ann", "password": "word"}}}).to_string();
    SecretAnswer::Present {
        source: source.to_owned(),
        entries: DockerConfig::from_config_json(config.as_bytes()).unwrap().entries,
    }
}

/// A NodeImage with an entry that somebody wrote, and what the node says to it.
fn by_hand(key: &str, spec: &Value, results: &Value, generation: i64) -> Box<NodeImage> {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
        "metadata": {"name": "node-0", "uid": "u", "generation": generation},
        "spec": spec,
        "status": {"agent": {"publicKey": key}, "imageStatuses": {"registry.example/app": {"tags": results}}},
    });
    Box::new(serde_json::from_value(object).unwrap())
}

fn entry() -> Value {
    json!({"images": {"registry.example/app": {
        "pullSecrets": [{"namespace": LARDER_NAMESPACE, "name": "pull"}],
        "tags": [{
            "tag": "1", "createdAt": "2026-01-01T00:00:00Z",
            "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 3, "ttlSecondsAfterFinished": 60},
        }],
    }}})
}

/// An index that knows one node with such an entry, and the node's key.
fn stage() -> (Index, String) {
    let folder = tempfile::tempdir().unwrap();
    let pair = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    let key = pair.public().to_string();
    let mut index = Index::new(Limits {
        max_active_pulls: None,
        pause: false,
        serve_jobs: true,
    });
    let node = NodeFacts {
        name: "node-0".to_owned(),
        ready: true,
        ..NodeFacts::default()
    };
    index.observe(&Kind::Node, Seen::Node(node), at(0));
    index.observe(
        &Kind::NodeImage,
        Seen::NodeImage(by_hand(&key, &entry(), &json!([]), 1)),
        at(0),
    );
    for kind in Kind::CLUSTER_WIDE {
        index.observe(&kind, Seen::Begin, at(0));
        if let Some(keys) = index.listing.get_mut(&kind) {
            keys.insert("/node-0".to_owned());
        }
        index.observe(&kind, Seen::Complete, at(0));
    }
    (index, key)
}

#[test]
fn a_secret_that_a_hand_written_entry_waits_for_is_looked_for_until_it_comes() {
    let (mut index, _) = stage();
    let key = named();
    assert_eq!(index.next_node_write(at(0)), None);
    assert_eq!(index.next_secret().as_ref(), Some(&key));
    index.secret_read(&key, SecretAnswer::Missing, at(1));
    assert_eq!(index.next_node_write(at(1)), None);
    assert_eq!(index.next_secret(), None);

    let wake = index.next_wake().unwrap();
    assert_eq!(wake, at(16));
    index.decide(wake);
    assert_eq!(index.next_node_write(wake), None);
    assert_eq!(index.next_secret().as_ref(), Some(&key));
    index.secret_read(&key, SecretAnswer::Missing, at(17));
    assert!(
        !index.has_nodes_to_look_at(),
        "the fleet is looked at although nothing is new"
    );

    let wake = index.next_wake().unwrap();
    index.decide(wake);
    assert_eq!(index.next_node_write(wake), None);
    let wake = index.next_wake().unwrap();
    assert_eq!(wake, at(32));
    index.decide(wake);
    assert_eq!(index.next_node_write(wake), None);
    assert_eq!(index.next_secret().as_ref(), Some(&key));
    index.secret_read(&key, present("registry.example", "first"), at(32));
    let Some((_, NodeAction::Patch(patch))) = index.next_node_write(at(32)) else {
        panic!("the node is not given what it waits for");
    };
    assert!(patch.to_string().contains("sealedCredentials"), "{patch}");
}

#[test]
fn a_rotated_secret_reaches_a_hand_written_entry_that_was_denied() {
    let (mut index, key) = stage();
    assert_eq!(index.next_node_write(at(0)), None);
    assert_eq!(index.next_secret(), Some(named()));
    index.secret_read(&named(), present("registry.example", "first"), at(1));
    let Some((node, NodeAction::Patch(first))) = index.next_node_write(at(1)) else {
        panic!("the node is given nothing");
    };
    let spec = |index: &Index| json_of(&index.nodes[&node].image.as_ref().unwrap().spec);
    let written = |patch: &Value, spec: &Value, generation: i64| {
        let mut object = json!({"metadata": {"generation": generation}, "spec": spec});
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        object["spec"].clone()
    };
    let first = written(&first, &spec(&index), 1);
    index.node_written(&node, NodeAnswer::Object(by_hand(&key, &first, &json!([]), 2)), at(1));
    assert_eq!(index.next_node_write(at(2)), None);

    let denied =
        json!([{"tag": "1", "phase": "Failed", "reason": "AuthDenied", "completionTime": "2026-01-01T00:00:05Z"}]);
    let seen = Seen::NodeImage(by_hand(&key, &first, &denied, 2));
    index.observe(&Kind::NodeImage, seen, at(5));
    assert_eq!(index.next_node_write(at(5)), None);
    assert_eq!(
        index.next_secret(),
        Some(named()),
        "the Secret is not read again at once"
    );
    index.secret_read(&named(), present("registry.example", "second"), at(6));
    let Some((_, NodeAction::Patch(second))) = index.next_node_write(at(6)) else {
        panic!("the node is not given the new login");
    };
    assert!(second.to_string().contains("sealedCredentials"), "{second}");

    // It is read once for a refusal, and not for ever.
    let second = written(&second, &first, 2);
    index.node_written(&node, NodeAnswer::Object(by_hand(&key, &second, &denied, 3)), at(6));
    assert_eq!(index.next_node_write(at(20)), None);
    assert_eq!(index.next_secret(), None);
}

#[test]
fn a_secret_without_a_login_for_the_image_is_named_by_the_job() {
    let (mut index, _) = stage();
    let job = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": LARDER_NAMESPACE, "uid": "u"},
        "spec": {"image": "registry.example/app:1", "pullSecrets": ["pull"]},
    });
    index.see_job(serde_json::from_value(job).unwrap(), at(0));
    let message = |index: &mut Index| {
        let record = index.jobs.values_mut().next().unwrap();
        let JobState::Running(running) = &mut record.state else {
            panic!("the job does not run");
        };
        let JobStatus::Pull(status) = running.status(&record.object, None, at(1)) else {
            panic!("this is no ImagePullJob");
        };
        status.message.unwrap()
    };
    index.hold_for(0, at(0));
    assert!(
        !message(&mut index).contains("no login"),
        "nothing is known of the Secret yet"
    );
    index.secret_read(&named(), present("other.example", "first"), at(1));
    let told = message(&mut index);
    assert!(
        told.contains("the pull secret larder-system/pull holds no login for registry.example"),
        "{told}"
    );
    index.secret_read(&named(), present("registry.example", "second"), at(2));
    assert!(!message(&mut index).contains("no login"));
}

#[test]
fn a_secret_that_is_as_it_was_has_no_node_looked_at_again() {
    let present = |source: &str| present("registry.example", source);
    let mut record = Record::default();
    let mut is_news = |answer| record.take_in(answer, Timestamp::UNIX_EPOCH);
    assert!(is_news(SecretAnswer::Missing));
    assert!(!is_news(SecretAnswer::Missing));
    assert!(!is_news(SecretAnswer::Failed));
    assert!(is_news(SecretAnswer::Unreadable));
    assert!(is_news(present("first")));
    assert!(!is_news(present("first")));
    assert!(!is_news(SecretAnswer::Forbidden));
    assert!(is_news(present("second")));
    assert!(is_news(SecretAnswer::Missing));
}

#[test]
fn an_image_pull_job_reaches_no_secret_of_another_namespace() {
    let mut index = Index::new(Limits {
        max_active_pulls: None,
        pause: false,
        serve_jobs: true,
    });
    let job = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": "team", "uid": "u"},
        "spec": {"image": "nginx", "pullSecrets": ["others/pull"]},
    });
    index.see_job(serde_json::from_value(job).unwrap(), Timestamp::UNIX_EPOCH);
    let named: Vec<SecretKey> = index.jobs.keys().flat_map(|job| index.secrets_of(*job)).collect();
    let of_its_own = SecretKey {
        namespace: "team".to_owned(),
        name: "others/pull".to_owned(),
    };
    assert_eq!(named, [of_its_own]);
}
