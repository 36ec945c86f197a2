//! When Secrets are read, and what follows from it.

use larder_api::contract::json_of;
use larder_api::names::LARDER_NAMESPACE;
use larder_planner::SecretRef;
use larder_registry::docker_config::DockerConfig;
use larder_seal::KeyPair;

use super::*;
use crate::engine::secrets::Secrets;

fn pull_secret() -> SecretRef {
    SecretRef {
        namespace: LARDER_NAMESPACE.to_owned(),
        name: "pull".to_owned(),
    }
}

/// The Secret with a login for a registry, in one of its states.
fn present(registry: &str, source: &str) -> SecretRead {
    let config = json!({"auths": {registry: {"username": "ann", "password": "word"}}}).to_string();
    SecretRead::Present {
        source: source.to_owned(),
        entries: DockerConfig::from_config_json(config.as_bytes()).unwrap().entries,
    }
}

/// A NodeImage with a hand-written entry, and what the node says to it.
fn by_hand(key: &str, spec: &Value, results: &Value, generation: i64) -> NodeImage {
    let status = json!({"agent": {"publicKey": key}, "imageStatuses": {"registry.example/app": {"tags": results}}});
    let mut object = node_image("node-0", spec, &status);
    object.metadata.generation = Some(generation);
    object
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

/// An engine that knows one node with such an entry, and the node's key.
fn one_node() -> (Engine, String) {
    let folder = tempfile::tempdir().unwrap();
    let pair = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    let key = pair.public().to_string();
    let mut engine = Engine::new(serving());
    let image = by_hand(&key, &entry(), &json!([]), 1);
    engine.show_all(vec![node("node-0"), shown(image)], at(0));
    (engine, key)
}

#[test]
fn a_secret_that_a_hand_written_entry_waits_for_is_looked_for_until_it_comes() {
    let (mut engine, _) = one_node();
    let secret = pull_secret();
    assert_eq!(engine.next_node_write(at(0)), None);
    assert_eq!(engine.next_secret().as_ref(), Some(&secret));
    engine.secret_read(&secret, SecretRead::Missing, at(1));
    assert_eq!(engine.next_node_write(at(1)), None);
    assert_eq!(engine.next_secret(), None);

    let wake = engine.next_wake().unwrap();
    assert_eq!(wake, at(16));
    engine.decide(wake);
    assert_eq!(engine.next_node_write(wake), None);
    assert_eq!(engine.next_secret().as_ref(), Some(&secret));
    engine.secret_read(&secret, SecretRead::Missing, at(17));
    assert!(
        !engine.has_queued_nodes(),
        "the fleet is looked at although nothing is new"
    );

    let wake = engine.next_wake().unwrap();
    engine.decide(wake);
    assert_eq!(engine.next_node_write(wake), None);
    let wake = engine.next_wake().unwrap();
    assert_eq!(wake, at(32));
    engine.decide(wake);
    assert_eq!(engine.next_node_write(wake), None);
    assert_eq!(engine.next_secret().as_ref(), Some(&secret));
    engine.secret_read(&secret, present("registry.example", "first"), at(32));
    let Some((_, NodeWrite::Patch(patch))) = engine.next_node_write(at(32)) else {
        panic!("the node is not given what it waits for");
    };
    assert!(patch.to_string().contains("sealedCredentials"), "{patch}");
}

#[test]
fn a_rotated_secret_reaches_a_hand_written_entry_that_was_denied() {
    let (mut engine, key) = one_node();
    assert_eq!(engine.next_node_write(at(0)), None);
    assert_eq!(engine.next_secret(), Some(pull_secret()));
    engine.secret_read(&pull_secret(), present("registry.example", "first"), at(1));
    let Some((node, NodeWrite::Patch(first))) = engine.next_node_write(at(1)) else {
        panic!("the node is given nothing");
    };
    let spec = |engine: &Engine| json_of(&engine.nodes.get(&node).unwrap().image.as_ref().unwrap().spec);
    let written = |patch: &Value, spec: &Value, generation: i64| {
        let mut object = json!({"metadata": {"uid": "node-0", "generation": generation}, "spec": spec});
        let patch: json_patch::Patch = parsed(patch.clone());
        json_patch::patch(&mut object, &patch).unwrap();
        object["spec"].clone()
    };
    let object = |spec: &Value, results: &Value, generation| {
        NodeWriteResult::Object(Box::new(by_hand(&key, spec, results, generation)))
    };
    let first = written(&first, &spec(&engine), 1);
    engine.node_written(&node, object(&first, &json!([]), 2), at(1));
    assert_eq!(engine.next_node_write(at(2)), None);

    let denied =
        json!([{"tag": "1", "phase": "Failed", "reason": "AuthDenied", "completionTime": "2026-01-01T00:00:05Z"}]);
    engine.show_event(shown(by_hand(&key, &first, &denied, 2)), at(5));
    assert_eq!(engine.next_node_write(at(5)), None);
    assert_eq!(
        engine.next_secret(),
        Some(pull_secret()),
        "the Secret is not read again at once"
    );
    engine.secret_read(&pull_secret(), present("registry.example", "second"), at(6));
    let Some((_, NodeWrite::Patch(second))) = engine.next_node_write(at(6)) else {
        panic!("the node is not given the new login");
    };
    assert!(second.to_string().contains("sealedCredentials"), "{second}");

    // It is read once for a refusal, and not for ever.
    let second = written(&second, &first, 2);
    engine.node_written(&node, object(&second, &denied, 3), at(6));
    assert_eq!(engine.next_node_write(at(20)), None);
    assert_eq!(engine.next_secret(), None);
}

/// The message that the only job would write at this moment.
fn message(engine: &mut Engine, now: Timestamp) -> String {
    engine.decide(now);
    let (target, JobWrite::Status(patch)) = engine.next_job_write(now).unwrap() else {
        panic!("the status is written");
    };
    engine.job_written(&target, JobWriteResult::Failed(String::new()), now);
    patch[1]["value"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_secret_without_a_login_for_the_image_is_named_by_the_job() {
    let (mut engine, _) = one_node();
    let job = job::<PullJobs>(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": LARDER_NAMESPACE, "uid": "u"},
        "spec": {"image": "registry.example/app:1", "pullSecrets": ["pull"]},
    }));
    engine.show_event(job, at(0));
    let first = message(&mut engine, at(0));
    assert!(
        !first.contains("no login"),
        "nothing is known of the Secret yet: {first}"
    );
    engine.secret_read(&pull_secret(), present("other.example", "first"), at(1));
    let told = message(&mut engine, at(20));
    let want = "the pull secret larder-system/pull holds no login for registry.example";
    assert!(told.contains(want), "{told}");
    engine.secret_read(&pull_secret(), present("registry.example", "second"), at(40));
    assert!(!message(&mut engine, at(60)).contains("no login"));
}

#[test]
fn a_node_without_a_key_takes_part_where_nothing_has_to_be_sealed() {
    let mut engine = Engine::new(serving());
    let job = job::<PullJobs>(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": LARDER_NAMESPACE, "uid": "u"},
        "spec": {"image": "registry.example/app:1", "pullSecrets": ["pull"]},
    }));
    engine.show_all(vec![node("node-0"), idle("node-0"), job], at(0));
    engine.decide(at(0));
    engine.secret_read(&pull_secret(), present("other.example", "first"), at(1));
    engine.decide(at(1));
    assert!(matches!(engine.next_node_write(at(1)), Some((_, NodeWrite::Patch(_)))));
}

#[test]
fn nodes_that_kruise_daemon_still_serves_are_named_at_once() {
    let mut engine = Engine::new(serving());
    let job = job::<PullJobs>(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "job", "namespace": LARDER_NAMESPACE, "uid": "u"},
        "spec": {"image": "registry.example/app:1", "pullSecrets": ["pull"], "completionPolicy": {"type": "Always"}},
    }));
    // kruise-daemon reports images and says nothing of itself; an agent of Larder without a key does.
    let by_kruise = node_image("kruise", &json!({}), &json!({"desired": 0, "imageStatuses": {}}));
    let by_larder = node_image("larder", &json!({}), &json!({"agent": {"version": "1"}}));
    let events = vec![node("kruise"), shown(by_kruise), node("larder"), shown(by_larder), job];
    engine.show_all(events, at(0));
    engine.decide(at(0));
    engine.secret_read(&pull_secret(), present("registry.example", "first"), at(1));
    let told = message(&mut engine, at(1));
    let want = "1 node cannot be sent the login, because another agent such as kruise-daemon serves the NodeImage there and no \
                Larder agent has reported: kruise";
    assert!(told.contains(want), "{told}");

    // The agent of Larder comes in its place.
    let folder = tempfile::tempdir().unwrap();
    let pair = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    let status = json!({"agent": {"version": "1", "publicKey": pair.public().to_string()}});
    engine.show_event(shown(node_image("kruise", &json!({}), &status)), at(40));
    let told = message(&mut engine, at(60));
    assert!(!told.contains("kruise-daemon"), "{told}");
}

#[test]
fn a_secret_that_is_as_it_was_is_no_news() {
    let present = |source: &str| present("registry.example", source);
    let mut secrets = Secrets::default();
    secrets.ask(&pull_secret(), jiff::SignedDuration::ZERO, at(0));
    let mut is_news = |read| secrets.was_read(&pull_secret(), read, at(0));
    assert!(is_news(SecretRead::Missing));
    assert!(!is_news(SecretRead::Missing));
    assert!(!is_news(SecretRead::Failed));
    assert!(is_news(SecretRead::Unreadable));
    assert!(is_news(present("first")));
    assert!(!is_news(present("first")));
    assert!(!is_news(SecretRead::Forbidden));
    assert!(is_news(present("second")));
    assert!(is_news(SecretRead::Missing));
}

#[test]
fn an_image_pull_job_reaches_no_secret_of_another_namespace() {
    let mut engine = Engine::new(serving());
    let spec = json!({"image": "nginx", "pullSecrets": ["others/pull"]});
    engine.show_all(vec![pull_job("job", &spec, &Value::Null)], at(0));
    engine.decide(at(0));
    let own = SecretRef {
        namespace: "team".to_owned(),
        name: "others/pull".to_owned(),
    };
    assert_eq!(engine.jobs.secrets_of(engine.id("job")), [own]);
}
