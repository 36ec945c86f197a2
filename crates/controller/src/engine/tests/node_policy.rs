//! No login is sent to a node while the node policy is not known to be enforced.

use larder_planner::node_policy::Probe;
use larder_registry::docker_config::DockerConfig;
use larder_seal::KeyPair;

use super::*;

fn present() -> SecretRead {
    let config = json!({"auths": {"registry.example": {"username": "ann", "password": "word"}}}).to_string();
    SecretRead::Present {
        source: "first".to_owned(),
        entries: DockerConfig::from_config_json(config.as_bytes()).unwrap().entries,
    }
}

/// An engine with one node, and a job whose Secret is known.
fn one_node(limits: Limits, job: &Value) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let key = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    let status = json!({"desired": 0, "agent": {"publicKey": key.public().to_string()}});
    let image = shown(node_image("node-0", &json!({}), &status));
    let mut engine = Engine::new(limits);
    engine.show_all(vec![node("node-0"), image, pull_job("job", job, &Value::Null)], at(0));
    engine.decide(at(0));
    while let Some(secret) = engine.next_secret() {
        engine.secret_read(&secret, present(), at(0));
    }
    engine.decide(at(0));
    engine
}

fn strict() -> Limits {
    Limits {
        accept_unenforced_node_policy: false,
        ..serving()
    }
}

fn private() -> Value {
    json!({"image": "registry.example/app:1", "pullSecrets": ["pull"]})
}

/// Tries the policy, and lets the engine decide.
fn probe(engine: &mut Engine, outcome: Probe, now: Timestamp) {
    engine.policy_changed();
    assert_eq!(engine.next_policy_probe(now).as_deref(), Some("node-0"));
    engine.policy_probed(outcome, now);
    engine.decide(now);
}

/// The patch that the node is sent now.
fn patch(engine: &mut Engine, now: Timestamp) -> Option<String> {
    match engine.next_node_write(now)? {
        (_, NodeWrite::Patch(patch)) => Some(patch.to_string()),
        (_, write) => panic!("{write:?}"),
    }
}

/// The status that the job is given now.
fn status(engine: &mut Engine, now: Timestamp) -> Value {
    let (target, JobWrite::Status(patch)) = engine.next_job_write(now).unwrap() else {
        panic!("the status is not written");
    };
    engine.job_written(&target, JobWriteResult::Failed(String::new()), now);
    patch[1]["value"].clone()
}

#[test]
fn nothing_is_sealed_until_the_policy_was_seen_to_be_enforced() {
    let mut engine = one_node(strict(), &private());
    assert_eq!(patch(&mut engine, at(0)), None, "sealed before the policy was tried");
    assert!(!engine.withholds_credentials(), "nothing is known yet");
    for outcome in [Probe::Accepted, Probe::Inconclusive] {
        probe(&mut engine, outcome, at(1));
        assert_eq!(patch(&mut engine, at(1)), None, "sealed after {outcome:?}");
        assert!(engine.withholds_credentials());
    }
    let told = status(&mut engine, at(2));
    assert_eq!(told["reasons"], json!({"NodePolicyNotEnforced": 1}), "{told}");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("larder-agent-own-node is not known to be enforced"),
        "{message}"
    );

    // The policy is restored.
    probe(&mut engine, Probe::Refused, at(3));
    assert!(!engine.withholds_credentials());
    let patch = patch(&mut engine, at(3)).unwrap();
    assert!(patch.contains("sealedCredentials"), "{patch}");
}

#[test]
fn a_job_waits_for_the_policy_without_end() {
    let mut engine = one_node(strict(), &private());
    probe(&mut engine, Probe::Accepted, at(0));
    for minutes in 1..60 {
        let now = at(60 * minutes);
        engine.resync_slice(now);
        engine.decide(now);
    }
    let told = status(&mut engine, at(3_600));
    assert_eq!(told["reasons"], json!({"NodePolicyNotEnforced": 1}), "{told}");
    assert_eq!(told["completionTime"], Value::Null, "{told}");
}

#[rstest::rstest]
#[case::no_secrets(json!({"image": "registry.example/app:1"}))]
#[case::no_login_for_the_registry(json!({"image": "other.example/app:1", "pullSecrets": ["pull"]}))]
fn a_job_without_logins_does_not_wait(#[case] job: Value) {
    let mut engine = one_node(strict(), &job);
    probe(&mut engine, Probe::Accepted, at(0));
    let patch = patch(&mut engine, at(0)).unwrap();
    assert!(!patch.contains("sealedCredentials"), "{patch}");
}

#[test]
fn where_it_is_accepted_nothing_is_tried_and_everything_is_sealed() {
    let mut engine = one_node(serving(), &private());
    assert_eq!(
        (engine.next_policy_probe(at(0)), engine.next_policy_probe_at()),
        (None, None)
    );
    let patch = patch(&mut engine, at(0)).unwrap();
    assert!(patch.contains("sealedCredentials"), "{patch}");
}

/// Otherwise the node would ask for the image without a login, and fail for good.
#[test]
fn an_order_that_is_not_written_yet_is_not_written_without_its_login() {
    let mut engine = one_node(strict(), &private());
    probe(&mut engine, Probe::Refused, at(0));
    assert!(engine.has_queued_nodes(), "the order is not made");
    probe(&mut engine, Probe::Accepted, at(0));
    assert_eq!(patch(&mut engine, at(0)), None);
    engine.decide(at(0));
    assert_eq!(
        status(&mut engine, at(1))["reasons"],
        json!({"NodePolicyNotEnforced": 1})
    );

    probe(&mut engine, Probe::Refused, at(2));
    let patch = patch(&mut engine, at(2)).unwrap();
    assert!(patch.contains("sealedCredentials"), "{patch}");
}
