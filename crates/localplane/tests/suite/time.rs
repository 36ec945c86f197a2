//! What happens with time, which stands still and moves as the tests say.

use std::time::Duration;

use larder_localplane::{Clock, Config, Localplane};
use serde_json::json;

use crate::http::{NODE_IMAGES, Requests, node_image, revision};

async fn plane() -> Localplane {
    let mut config = Config::new(larder_api::crds());
    config.clock = Clock::tokio("2026-01-01T00:00:00Z".parse().unwrap());
    Localplane::start(config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn events_are_gone_an_hour_after_their_last_write() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let events = "/api/v1/namespaces/default/events";
    for name in ["quiet", "repeated"] {
        let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "count": 1});
        let stored = requests.post(events, &event).await.ok();
        assert_eq!(stored["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    }
    tokio::time::sleep(Duration::from_mins(40)).await;
    requests
        .merge(&format!("{events}/repeated"), &json!({"count": 2}))
        .await
        .ok();
    tokio::time::sleep(Duration::from_mins(25)).await;
    requests.get(&format!("{events}/quiet")).await.refused(404);
    requests.get(&format!("{events}/repeated")).await.ok();
    tokio::time::sleep(Duration::from_mins(40)).await;
    requests.get(&format!("{events}/repeated")).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_told_the_revision_once_a_minute() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let path = format!("{NODE_IMAGES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150");
    let mut watch = requests.watch(&path).await;
    let elsewhere = requests.config_map("elsewhere", "x").await;
    let start = tokio::time::Instant::now();
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(revision(&bookmark["object"]), revision(&elsewhere));
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert!(watch.next().await.is_none());
    assert_eq!(start.elapsed().as_secs(), 150);
}

/// A client that starts again from a bookmark must not miss what the server dropped.
#[tokio::test(start_paused = true)]
async fn a_watch_that_lost_events_gets_no_bookmark_beyond_them() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    // Which of several things that are due comes first is left to chance.
    for round in 0..10 {
        let path = format!("{NODE_IMAGES}?watch=1&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion=0");
        let name = format!("n{round}");
        let mut watch = requests
            .watch(&format!("{path}&fieldSelector=metadata.name%3D{name}"))
            .await;
        requests.post(NODE_IMAGES, &node_image(&name)).await.ok();
        for change in 0..1_100 {
            let label = json!({"metadata": {"labels": {"change": change.to_string()}}});
            requests.merge(&format!("{NODE_IMAGES}/{name}"), &label).await.ok();
        }
        // Now the bookmark is due and the time of the watch is over.
        tokio::time::sleep(Duration::from_secs(100)).await;
        let mut told = 0;
        while let Some(event) = watch.next().await {
            match event["type"].as_str().unwrap() {
                "BOOKMARK" => assert!(revision(&event["object"]) <= told, "{event} after {told}"),
                "ERROR" => assert_eq!(event["object"]["code"], 410),
                _ => told = revision(&event["object"]),
            }
        }
        assert!(0 < told);
    }
}
