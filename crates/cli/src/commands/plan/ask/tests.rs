use super::*;
use larder_seal::{KeyPair, Login, Sealed, open};
use serde_json::json;

fn node(tags: &serde_json::Value) -> NodeImage {
    serde_json::from_value(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a", "generation": 3},
        "spec": {"images": {"nginx": {"tags": tags}}},
        "status": {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "version": 4, "phase": "Succeeded"}]}}},
    }))
    .unwrap()
}

fn image(name: &str) -> ImageRef {
    ImageRef::parse(name).unwrap()
}

fn images(names: &[&str]) -> Vec<Question> {
    let question = |name: &&str| Question {
        image: image(name),
        checks: Vec::new(),
        logins: Logins::default(),
    };
    names.iter().map(question).collect()
}

#[test]
fn a_question_comes_and_goes_without_a_trace() {
    let object = node(&json!([{"tag": "2", "version": 7, "pullPolicy": {"ttlSecondsAfterFinished": 1}}]));
    let mut spec = object.spec.clone();
    let asked = images(&["nginx:1", "nginx:2", "app:1"]);
    let versions = ask(&object, &mut spec, &asked);
    let numbers: Vec<i64> = versions.iter().map(|(_, version)| *version).collect();
    assert_eq!(
        numbers,
        [5, 7, 2],
        "beyond an old result, as ordered, beyond the generation"
    );
    let dry: Vec<bool> = spec.images["nginx"].tags.iter().map(|entry| entry.dry_run).collect();
    assert_eq!(dry, [false, true], "what is ordered stays an order");
    take_back(&mut spec, &asked);
    assert_eq!(spec, object.spec);
}

#[test]
fn a_question_that_a_job_claimed_stays() {
    let claimed = json!([{"tag": "1", "version": 5, "dryRun": true, "pullPolicy": {"ttlSecondsAfterFinished": 1}, "ownerReferences": [{"uid": "u"}]}]);
    let object = node(&claimed);
    let mut spec = object.spec.clone();
    take_back(&mut spec, &images(&["nginx:1"]));
    assert_eq!(spec, object.spec);
}

#[test]
fn an_old_result_is_no_answer() {
    let object = node(&json!([]));
    assert!(found(&object, &vec![(image("nginx:1"), 5)]).images.is_empty());
    assert_eq!(found(&object, &vec![(image("nginx:1"), 4)]).images.len(), 1);
}

#[test]
fn a_login_is_sealed_to_the_node_and_goes_with_its_question() {
    let folder = tempfile::tempdir().unwrap();
    let pair = KeyPair::load_or_create(&folder.path().join("key")).unwrap();
    let mut object = node(&json!([]));
    object.metadata.uid = Some("node-image".into());
    object.spec.sealed_credentials = vec![SealedCredential {
        id: "of-a-job".into(),
        ..SealedCredential::default()
    }];
    let agent = json!({ "publicKey": pair.public().to_string() });
    object.status.as_mut().unwrap().agent = serde_json::from_value(agent).unwrap();
    let mut questions = images(&["registry.example/app:1"]);
    questions[0].logins = Logins {
        all: vec![Login::new("tiger", "pass1234")],
        source: "u@7".into(),
        incomplete: false,
    };
    let mut spec = object.spec.clone();
    ask(&object, &mut spec, &questions);

    let entry = &spec.images["registry.example/app"].tags[0];
    let sealed = &spec.sealed_credentials[1];
    assert_eq!(entry.credentials, std::slice::from_ref(&sealed.id));
    assert!(!serde_json::to_string(&spec).unwrap().contains("pass1234"));
    let name = NodeName::parse("a").unwrap();
    let binding = Binding {
        node: &name,
        node_image_uid: "node-image",
        image: &questions[0].image,
        claim_uid: "node-image",
    };
    let parcel = Sealed {
        id: sealed.id.clone(),
        key: sealed.key.clone(),
        data: sealed.data.clone(),
    };
    assert_eq!(open(&pair, &binding, &parcel).unwrap()[0].username, "tiger");

    take_back(&mut spec, &questions);
    assert_eq!(spec, object.spec, "the login of a job stays");
}
