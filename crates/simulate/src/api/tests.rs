//! The rules of the simulated API server.

use super::*;

fn api_with_job(finalizers: &[&str]) -> (Api, Key) {
    let mut api = Api::default();
    let job =
        json!({"metadata": {"name": "job", "namespace": "team", "finalizers": finalizers}, "spec": {"image": "a"}});
    api.call(&Call::Create(Kind::PullJob, job), Writer::Other, Timestamp::UNIX_EPOCH);
    (api, Key::new(Kind::PullJob, "team", "job"))
}

fn call(api: &mut Api, call: &Call) -> Response {
    api.call(call, Writer::Other, Timestamp::UNIX_EPOCH)
}

fn generation(response: &Response) -> Option<i64> {
    match response {
        Response::Object(object) => object.value["metadata"]["generation"].as_i64(),
        _ => None,
    }
}

#[test]
fn a_changed_spec_has_a_new_generation_and_status_has_its_own_way_in() {
    let (mut api, key) = api_with_job(&[]);
    let edited = call(
        &mut api,
        &Call::Merge(key.clone(), json!({"spec": {"image": "b"}, "status": {"x": 1}})),
    );
    assert_eq!(generation(&edited), Some(2));
    let written = call(
        &mut api,
        &Call::JsonPatchStatus(
            key.clone(),
            json!([
                {"op": "add", "path": "/spec/image", "value": "c"},
                {"op": "add", "path": "/status", "value": {"x": 2}},
            ]),
        ),
    );
    assert_eq!(generation(&written), Some(2));
    let value = &api.get(&key).unwrap().value;
    assert_eq!(
        (value["spec"]["image"].as_str(), value["status"]["x"].as_i64()),
        (Some("b"), Some(2))
    );
}

#[test]
fn tests_and_uids_are_preconditions() {
    let (mut api, key) = api_with_job(&[]);
    let operations =
        json!([{"op": "test", "path": "/metadata/generation", "value": 7}, {"op": "remove", "path": "/spec"}]);
    assert!(matches!(
        call(&mut api, &Call::JsonPatch(key.clone(), operations)),
        Response::Refused(_)
    ));
    let stranger = json!([{"op": "test", "path": "/metadata/uid", "value": "another"}, {"op": "add", "path": "/status", "value": {}}]);
    assert!(matches!(
        call(&mut api, &Call::JsonPatchStatus(key.clone(), stranger)),
        Response::Refused(_)
    ));
    let uid = Some("another".to_owned());
    assert!(matches!(
        call(&mut api, &Call::Delete { key, uid }),
        Response::Refused(_)
    ));
}

#[test]
fn a_finalizer_keeps_an_object_until_it_is_taken_off() {
    let (mut api, key) = api_with_job(&["keep"]);
    let delete = Call::Delete {
        key: key.clone(),
        uid: None,
    };
    assert!(matches!(call(&mut api, &delete), Response::Done));
    assert!(api.get(&key).unwrap().is_leaving());
    call(
        &mut api,
        &Call::JsonPatch(key.clone(), json!([{"op": "remove", "path": "/metadata/finalizers/0"}])),
    );
    assert!(api.get(&key).is_none());
    assert!(matches!(call(&mut api, &delete), Response::NotFound));
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let (mut api, key) = api_with_job(&[]);
    while api.next_change().is_some() {}
    let version = api.get(&key).unwrap().version;
    call(&mut api, &Call::Merge(key.clone(), json!({"spec": {"image": "a"}})));
    assert!(api.next_change().is_none());
    assert_eq!(api.get(&key).unwrap().version, version);
}
