//! A registry that asks to be left alone is.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use larder_model::{Phase, Reason};
use larder_testkit::{Containerd, ContainerdVersion, wait_until};
use rstest::rstest;
use tokio::time::Instant;

use super::scene::{Change, Node, SOON};

/// More than our own first pause.
const ASKED: Duration = Duration::from_secs(6);

/// Says 429 to everybody, and notes when it was asked.
async fn busy_registry() -> (String, Arc<Mutex<Vec<Instant>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let answer = move || {
        notes.lock().unwrap().push(Instant::now());
        let wait = [(header::RETRY_AFTER, ASKED.as_secs().to_string())];
        async move { (StatusCode::TOO_MANY_REQUESTS, wait).into_response() }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (host, asked)
}

#[rstest]
#[case::containerd_1_6(ContainerdVersion::V1_6)]
#[case::containerd_2(ContainerdVersion::V2)]
#[tokio::test]
async fn a_registry_that_asks_to_wait_is_not_asked_again_before(#[case] version: ContainerdVersion) {
    let (host, asked) = busy_registry().await;
    let containerd = Containerd::start(version).await.unwrap();
    let node = Node::new().await;
    let _agent = node.containerd(&containerd, Change::default());
    let wanted = node
        .pull(&format!("{host}/app:1"), |entry| entry.pull_policy.backoff_limit = 5)
        .await;
    let status = node
        .until(&wanted, "a reason", |status| {
            status.reason() == Some(Reason::RateLimited)
        })
        .await;
    assert_eq!(status.phase(), Phase::Pulling, "another try follows");
    let message = status.message.unwrap();
    assert!(message.contains("asks to wait 6 s"), "{message}");
    let pauses = || {
        let asked = asked.lock().unwrap();
        let pairs = asked.windows(2).map(|pair| pair[1] - pair[0]);
        pairs.collect::<Vec<Duration>>()
    };
    wait_until(SOON, "the next try", async || {
        pauses().iter().any(|pause| *pause >= Duration::from_secs(2))
    })
    .await
    .unwrap();
    let longest = pauses().into_iter().max().unwrap();
    // Its last question of the first try is what the wait counts from; a runtime may ask a few times in a row.
    assert!(longest + Duration::from_millis(500) >= ASKED, "{longest:?}");
}
