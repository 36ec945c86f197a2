//! The fault layer: what a seed makes go wrong, and that a client which retries gets there.

use std::time::Duration;

use ::http::{Method, Request};
use axum::body::Body;
use larder_localplane::{FaultLayer, Faults};
use serde_json::json;
use tower::{Layer, ServiceExt};

use crate::http::{NODE_IMAGES, Requests, answer, node_image, plane};

const ALL: Faults = Faults {
    seed: 7,
    conflict: 0.2,
    too_many: 0.1,
    failed: 0.1,
    lost_answer: 0.1,
    lost_watch: 0.5,
    slow: 0.3,
    slowness: Duration::from_secs(5),
};

fn request(method: Method, path: &str, body: String) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap()
}

async fn run(seed: u64) -> Vec<u16> {
    let plane = plane().await;
    Requests::to(&plane).node_image("a").await;
    let service = FaultLayer::new(Faults { seed, ..ALL }).layer(plane.service());
    let mut codes = Vec::new();
    for _ in 0..200 {
        let request = request(Method::DELETE, &format!("{NODE_IMAGES}/a?dryRun=All"), "{}".into());
        let response = service.clone().oneshot(request).await.unwrap();
        codes.push(response.status().as_u16());
    }
    codes
}

#[tokio::test(start_paused = true)]
async fn one_seed_is_one_run() {
    let codes = run(7).await;
    assert_eq!(codes, run(7).await);
    assert_ne!(codes, run(8).await);
    for code in [200, 409, 429, 500] {
        assert!(codes.contains(&code), "no {code} among {codes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_tries_again_succeeds() {
    let plane = plane().await;
    let service = FaultLayer::new(ALL).layer(plane.service());
    for index in 0..50 {
        let name = format!("n{index}");
        loop {
            let request = request(Method::POST, NODE_IMAGES, node_image(&name).to_string());
            let answer = answer(service.clone().oneshot(request).await.unwrap()).await;
            // A lost answer shows as 500 first and as a conflict with oneself later.
            if answer.code == 201 || answer.body["reason"] == "AlreadyExists" {
                break;
            }
            assert!([429, 500].contains(&answer.code), "{answer:?}");
        }
    }
    let list = Requests::to(&plane).get(NODE_IMAGES).await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn watches_break_off() {
    let plane = plane().await;
    Requests::to(&plane).node_image("a").await;
    let faults = Faults {
        seed: 3,
        lost_watch: 1.0,
        ..Faults::default()
    };
    let service = FaultLayer::new(faults).layer(plane.service());
    let watch = request(Method::GET, &format!("{NODE_IMAGES}?watch=1"), String::new());
    let writes = Requests::to(&plane);
    let body = service.oneshot(watch).await.unwrap().into_body();
    for index in 0..10 {
        writes
            .merge(
                &format!("{NODE_IMAGES}/a"),
                &json!({"metadata": {"labels": {"a": index.to_string()}}}),
            )
            .await
            .ok();
    }
    http_body_util::BodyExt::collect(body)
        .await
        .expect("the body ends although the watch would live on");
}
