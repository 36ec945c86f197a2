//! Objects that went wrong by chance, sent to both servers: they must say the same. One seed makes one object.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rstest::rstest;
use serde_json::{Value, json};

use crate::full;
use crate::kind::{Kind, Resource};
use crate::server::{Answer, MERGE_PATCH, Server, name_of};
use crate::target::Target;

/// Objects of each kind. More find more; these take a few seconds.
const OBJECTS: u64 = 60;

/// Values that fit nowhere, or nearly everywhere.
fn odd_value(random: &mut StdRng) -> Value {
    let pool = [
        Value::Null,
        json!(""),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(2_147_483_648_i64),
        json!(true),
        json!([]),
        json!({}),
        json!("5%"),
        json!("abc"),
        json!("Always"),
        json!("UPPER/case"),
        json!("2026-11-15T10:00:00Z"),
        json!("x".repeat(600)),
        json!(["a", "a"]),
        json!({"a": "b"}),
        json!([{}]),
        json!([null]),
    ];
    pool[random.random_range(0..pool.len())].clone()
}

/// An odd value for this one. kube-apiserver takes a list for a time, which is nothing to follow.
fn odd_instead_of(value: &Value, random: &mut StdRng) -> Value {
    let is_time = value.as_str().is_some_and(|text| text.ends_with("00Z"));
    let odd = odd_value(random);
    if is_time && odd.is_array() { json!({}) } else { odd }
}

/// Changes one place of `value`, at some depth: another value, a member less, a member that nobody knows.
fn spoil(value: &mut Value, random: &mut StdRng) {
    let deeper = random.random_bool(0.75);
    match value {
        Value::Object(members) if !members.is_empty() => {
            let position = random.random_range(0..members.len());
            let name = members.keys().nth(position).unwrap().clone();
            if deeper {
                spoil(&mut members[&name], random);
            } else if random.random_bool(0.3) {
                members.remove(&name);
            } else if random.random_bool(0.2) {
                members.insert("unknown".to_owned(), odd_value(random));
            } else {
                let odd = odd_instead_of(&members[&name], random);
                members.insert(name, odd);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let position = random.random_range(0..items.len());
            if deeper {
                spoil(&mut items[position], random);
            } else if random.random_bool(0.4) {
                let twin = items[position].clone();
                items.push(twin);
            } else {
                items[position] = odd_value(random);
            }
        }
        other => *other = odd_instead_of(other, random),
    }
}

/// What a client can rely on: whether it was taken and what became of it, or what kind of refusal it was. The words of a
/// refusal are compared where people read them, in the other tests.
fn essence(answer: &Answer) -> Value {
    if (200..300).contains(&answer.code) {
        json!({"code": answer.code, "spec": answer.body["spec"], "status": answer.body["status"]})
    } else {
        json!({"code": answer.code, "reason": answer.body["reason"]})
    }
}

/// One object of a seed through its life: created, its spec replaced by a patch, its status written.
async fn life(server: &Server, resource: Resource, seed: u64) -> Vec<Value> {
    let mut random = StdRng::seed_from_u64(seed);
    let fulls = full::objects(resource.kind);
    let full = &fulls[random.random_range(0..fulls.len())];
    let mut spec = full.spec.clone();
    for _ in 0..random.random_range(1..=2) {
        spoil(&mut spec, &mut random);
    }
    let mut status = full.status.clone();
    spoil(&mut status, &mut random);

    let created = server.create(resource, &server.object(resource, &spec)).await;
    let good = server.object(resource, &full.spec);
    server.create(resource, &good).await.accepted();
    let name = name_of(&good);
    let patched = server
        .patch(resource, name, MERGE_PATCH, &json!({ "spec": spec }))
        .await;
    let reported = server.patch_status(resource, name, &json!({ "status": status })).await;
    [created, patched, reported].iter().map(essence).collect()
}

#[rstest]
#[tokio::test]
async fn both_servers_say_the_same(
    #[values(Kind::ImagePullJob, Kind::ImageListPullJob, Kind::NodeImage, Kind::ImagePrePullJob)] kind: Kind,
) {
    let [real, embedded] = [Target::KubeApiserver.server().await, Target::Localplane.server().await];
    let mut different = Vec::new();
    for seed in 0..OBJECTS {
        let resource = kind.versions()[usize::from(seed % 2 == 0)];
        let [right, found] = [life(&real, resource, seed).await, life(&embedded, resource, seed).await];
        let steps = ["create", "patch", "status"];
        for ((step, right), found) in steps.iter().zip(&right).zip(&found) {
            if right != found {
                different.push(format!(
                    "seed {seed}, {step}:\n  kube-apiserver {right}\n  localplane     {found}"
                ));
            }
        }
    }
    assert!(
        different.is_empty(),
        "{} differences:\n{}",
        different.len(),
        different.join("\n")
    );
}
