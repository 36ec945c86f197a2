use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{Request, Response};
use kube::client::Body;
use larder_telemetry::Health;
use serde_json::json;

use super::*;

/// So many requests mean that there is no end of them.
const WITHOUT_END: usize = 1_000;

#[tokio::test(start_paused = true)]
async fn an_api_that_cuts_off_every_watch_is_not_asked_without_end() {
    let asked = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let (count, enough) = (Arc::clone(&asked), stop.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        if WITHOUT_END <= count.fetch_add(1, Ordering::SeqCst) {
            enough.cancel();
        }
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let list = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImageList",
            "metadata": {"resourceVersion": "5"}, "items": [],
        });
        let body = if is_watch {
            Vec::new()
        } else {
            list.to_string().into_bytes()
        };
        async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(body))) }
    });
    let desired = Desired {
        api: NodeImages::new(kube::Client::new(service, "default"), "node-1"),
        orders: watch::Sender::new(Orders::Unknown),
        observed: watch::Sender::new(None),
        silence: Duration::from_mins(3),
        health: Health::default().part("api"),
    };
    timeout(Duration::from_mins(10), run(desired, stop)).await.ok();
    let asked = asked.load(Ordering::SeqCst);
    assert!((10..WITHOUT_END).contains(&asked), "{asked} requests in ten minutes");
}

/// Where lists are allowed and watches are not, every round would look like an API that came and went.
#[tokio::test(start_paused = true)]
async fn an_api_that_refuses_watches_alone_is_asked_less_and_less_and_stays_unready() {
    let asked = Arc::new(AtomicUsize::new(0));
    let health = Health::default();
    let ready = Arc::new(AtomicUsize::new(0));
    let (count, at_list, observed) = (Arc::clone(&asked), health.clone(), Arc::clone(&ready));
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        if is_watch && at_list.not_ready().is_none() {
            observed.fetch_add(1, Ordering::SeqCst);
        }
        count.fetch_add(1, Ordering::SeqCst);
        let (status, body) = if is_watch {
            let refusal = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "watch is forbidden",
            });
            (403, refusal)
        } else {
            let list = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImageList",
                "metadata": {"resourceVersion": "5"}, "items": [],
            });
            (200, list)
        };
        async move {
            let answer = Response::builder().status(status);
            Ok::<_, std::convert::Infallible>(answer.body(Body::from(body.to_string().into_bytes())).unwrap())
        }
    });
    let desired = Desired {
        api: NodeImages::new(kube::Client::new(service, "default"), "node-1"),
        orders: watch::Sender::new(Orders::Unknown),
        observed: watch::Sender::new(None),
        silence: Duration::from_mins(3),
        health: health.part("api"),
    };
    timeout(Duration::from_mins(10), run(desired, CancellationToken::new()))
        .await
        .ok();
    let asked = asked.load(Ordering::SeqCst);
    // A list and a watch every 15 seconds on average, once the pauses have grown.
    assert!((20..250).contains(&asked), "{asked} requests in ten minutes");
    assert_eq!(ready.load(Ordering::SeqCst), 0, "it never said that all was well");
    assert!(health.not_ready().is_some_and(|why| why.contains("watch")));
}
