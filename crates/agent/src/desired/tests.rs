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
        seen: watch::Sender::new(None),
        silence: Duration::from_mins(3),
        health: Health::default().part("api"),
    };
    timeout(Duration::from_mins(10), run(desired, stop)).await.ok();
    let asked = asked.load(Ordering::SeqCst);
    assert!((10..WITHOUT_END).contains(&asked), "{asked} requests in ten minutes");
}
