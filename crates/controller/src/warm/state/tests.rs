use larder_planner::workload::kinds::KINDS;
use serde_json::{Value, json};

use super::*;

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

fn deployment(name: &str, image: &str, replicas: u32) -> DynamicObject {
    object(&json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}},
        "status": {"replicas": replicas},
    }))
}

fn namespace() -> DynamicObject {
    object(&json!({"metadata": {"name": "shop", "uid": "ns"}}))
}

fn labelled() -> Scope {
    Scope::Labelled(&KINDS[0])
}

fn inside() -> Scope {
    Scope::Inside("shop".to_owned(), &KINDS[0])
}

fn list(state: &mut State, scope: &Scope, objects: Vec<DynamicObject>) {
    state.observe(scope, Event::Init);
    for object in objects {
        state.observe(scope, Event::InitApply(object));
    }
    state.observe(scope, Event::InitDone);
}

fn queued(state: &mut State, scopes: &[Scope]) -> Vec<String> {
    std::iter::from_fn(|| state.next(scopes.iter()))
        .map(|key| key.to_string())
        .collect()
}

fn images(state: &State, kind: &str, name: &str) -> Vec<String> {
    let key = OwnerKey {
        kind: kind.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    };
    let workloads = state.situation(&key).workloads;
    let images = workloads.into_iter().flat_map(|one| one.pods.containers);
    images.filter_map(|container| container.image).collect()
}

#[test]
fn nothing_is_looked_at_before_every_list_is_complete() {
    let mut state = State::default();
    let scopes = [labelled(), Scope::Jobs];
    list(&mut state, &labelled(), vec![deployment("web", "web:1", 1)]);
    assert_eq!(queued(&mut state, &scopes), Vec::<String>::new());
    list(&mut state, &Scope::Jobs, vec![]);
    assert_eq!(queued(&mut state, &scopes), ["Deployment shop/web"]);
}

#[test]
fn a_change_of_the_template_counts_and_one_of_the_status_does_not() {
    let mut state = State::default();
    let scopes = [labelled()];
    list(&mut state, &labelled(), vec![deployment("web", "web:1", 1)]);
    assert_eq!(queued(&mut state, &scopes).len(), 1);
    state.observe(&labelled(), Event::Apply(deployment("web", "web:1", 2)));
    assert_eq!(queued(&mut state, &scopes), Vec::<String>::new());
    state.observe(&labelled(), Event::Apply(deployment("web", "web:2", 2)));
    assert_eq!(queued(&mut state, &scopes), ["Deployment shop/web"]);
    assert_eq!(images(&state, "Deployment", "web"), ["web:2"]);
    state.observe(&labelled(), Event::Delete(deployment("web", "web:2", 2)));
    assert_eq!(queued(&mut state, &scopes), ["Deployment shop/web"]);
    list(&mut state, &labelled(), vec![]);
    assert_eq!(queued(&mut state, &scopes), Vec::<String>::new());
}

#[test]
fn an_object_that_a_new_list_does_not_show_is_gone() {
    let mut state = State::default();
    list(
        &mut state,
        &labelled(),
        vec![deployment("web", "web:1", 1), deployment("api", "api:1", 1)],
    );
    queued(&mut state, &[labelled()]);
    list(&mut state, &labelled(), vec![deployment("api", "api:1", 1)]);
    assert_eq!(queued(&mut state, &[labelled()]), ["Deployment shop/web"]);
}

#[test]
fn a_labelled_namespace_has_the_images_of_all_its_workloads() {
    let mut state = State::default();
    list(&mut state, &Scope::Namespaces, vec![namespace()]);
    assert_eq!(state.namespaces(), ["shop".to_owned()].into());
    let scopes = [Scope::Namespaces, inside()];
    assert_eq!(
        queued(&mut state, &scopes),
        Vec::<String>::new(),
        "its workloads are not known yet"
    );
    list(
        &mut state,
        &inside(),
        vec![deployment("web", "web:1", 1), deployment("api", "api:1", 1)],
    );
    assert_eq!(queued(&mut state, &scopes), ["Namespace shop/shop"]);
    assert_eq!(images(&state, "Namespace", "shop"), ["api:1", "web:1"]);
    state.observe(&Scope::Namespaces, Event::Delete(namespace()));
    state.forget_all_but([Scope::Namespaces].iter());
    assert_eq!(queued(&mut state, &[Scope::Namespaces]), ["Namespace shop/shop"]);
    assert!(state.namespaces().is_empty());
}

#[test]
fn a_job_leads_to_its_owner() {
    let job = |uid: &str, phase: &str| {
        object(&json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob",
            "metadata": {
                "name": "warm-deployment-web", "namespace": "shop", "uid": uid, "labels": {"larder.dev/warm": "true"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true}],
            },
            "spec": {"images": ["web:1"]},
            "status": {"succeeded": phase.len()},
        }))
    };
    let mut state = State::default();
    let scopes = [Scope::Jobs];
    list(&mut state, &Scope::Jobs, vec![job("j", "a")]);
    assert_eq!(queued(&mut state, &scopes), ["Deployment shop/web"]);
    state.observe(&Scope::Jobs, Event::Apply(job("j", "abc")));
    assert_eq!(
        queued(&mut state, &scopes),
        Vec::<String>::new(),
        "progress does not matter"
    );
    state.observe(&Scope::Jobs, Event::Delete(job("j", "abc")));
    assert_eq!(queued(&mut state, &scopes), ["Deployment shop/web"]);
    state.look_at_all();
    assert_eq!(queued(&mut state, &scopes), Vec::<String>::new());
}
