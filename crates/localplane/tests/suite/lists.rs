//! Lists: selectors, pages that belong together, revisions.

use ::http::Method;
use axum::body::Body;
use larder_localplane::{Config, History, Localplane};
use rstest::rstest;
use serde_json::{Value, json};

use crate::http::{CONFIG_MAPS, NODE_IMAGES, Requests, answer, names, node_image, plane, revision};

#[rstest]
#[case::label("labelSelector=zone%3Da", &["n1", "n2"])]
#[case::set("labelSelector=zone+in+(b,c)", &["n3"])]
#[case::absence("labelSelector=!zone", &["n4"])]
#[case::name("fieldSelector=metadata.name%3Dn3", &["n3"])]
#[case::all_but_one("fieldSelector=metadata.name!%3Dn3", &["n1", "n2", "n4"])]
#[case::both("labelSelector=zone&fieldSelector=metadata.name%3Dn4", &[])]
#[tokio::test]
async fn are_filtered(#[case] query: &str, #[case] want: &[&str]) {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    for (name, zone) in [("n1", Some("a")), ("n2", Some("a")), ("n3", Some("b")), ("n4", None)] {
        let mut object = node_image(name);
        if let Some(zone) = zone {
            object["metadata"]["labels"] = json!({"zone": zone});
        }
        requests.post(NODE_IMAGES, &object).await.ok();
    }
    let list = requests.get(&format!("{NODE_IMAGES}?{query}")).await.ok();
    assert_eq!(names(&list), want);
    assert_eq!(list["kind"], "NodeImageList");
}

#[tokio::test]
async fn pods_are_found_by_their_node() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        requests.post("/api/v1/namespaces/default/pods", &pod).await.ok();
    }
    let list = requests
        .get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn2,status.phase%3DPending")
        .await
        .ok();
    assert_eq!(names(&list), ["b"]);
}

async fn page(requests: &Requests, token: Option<&str>) -> Value {
    let next = token.map(|token| format!("&continue={token}")).unwrap_or_default();
    requests.get(&format!("{CONFIG_MAPS}?limit=10{next}")).await.ok()
}

#[tokio::test]
async fn pages_belong_to_one_revision_whatever_happens_meanwhile() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let all: Vec<String> = (0..25).map(|index| format!("c{index:02}")).collect();
    for name in &all {
        requests.config_map(name, "old").await;
    }
    let first = page(&requests, None).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 15);
    requests.config_map("c10a", "new").await;
    requests.delete(&format!("{CONFIG_MAPS}/c12"), &json!({})).await.ok();
    requests
        .merge(&format!("{CONFIG_MAPS}/c13"), &json!({"data": {"key": "new"}}))
        .await
        .ok();

    let mut found: Vec<Value> = first["items"].as_array().unwrap().clone();
    let mut token = first["metadata"]["continue"].as_str().map(str::to_owned);
    while let Some(current) = token {
        let next = page(&requests, Some(&current)).await;
        assert_eq!(revision(&next), revision(&first));
        found.extend(next["items"].as_array().unwrap().iter().cloned());
        token = next["metadata"]["continue"].as_str().map(str::to_owned);
    }
    let listed: Vec<&str> = found
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(listed, all);
    assert!(found.iter().all(|item| item["data"]["key"] == "old"));
}

#[tokio::test]
async fn a_page_of_a_forgotten_revision_is_gone_and_says_how_to_go_on() {
    let mut config = Config::new(larder_api::crds());
    config.history = History {
        events: 5,
        bytes: 1 << 20,
    };
    let plane = Localplane::start(config).await.unwrap();
    let requests = Requests::to(&plane);
    for index in 0..25 {
        requests.config_map(&format!("c{index:02}"), "old").await;
    }
    let first = page(&requests, None).await;
    for index in 0..6 {
        requests.config_map(&format!("d{index}"), "new").await;
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let gone = requests.get(&format!("{CONFIG_MAPS}?limit=10&continue={token}")).await;
    assert_eq!(gone.body["reason"], "Expired");
    let token = gone.body["metadata"]["continue"].as_str().unwrap().to_owned();
    gone.refused(410);
    let rest = requests.get(&format!("{CONFIG_MAPS}?continue={token}")).await.ok();
    assert_eq!(names(&rest).len(), 15 + 6);
    assert_eq!(names(&rest)[0], "c10");
}

#[tokio::test]
async fn an_exact_revision_can_be_listed_and_a_future_one_cannot() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let first = requests.config_map("a", "1").await;
    requests
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"key": "2"}}))
        .await
        .ok();
    let at = revision(&first);
    let then = requests
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=Exact"
        ))
        .await
        .ok();
    assert_eq!(then["items"][0]["data"]["key"], "1");
    let since = requests
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={at}&resourceVersionMatch=NotOlderThan"
        ))
        .await
        .ok();
    assert_eq!(since["items"][0]["data"]["key"], "2");
}

/// client-go tries ten times more if it is told when to try again.
#[tokio::test(start_paused = true)]
async fn a_list_from_a_future_revision_is_refused_at_once_and_for_good() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    for query in ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact"] {
        let path = format!("/api/v1/nodes?resourceVersion=999999{query}");
        let start = tokio::time::Instant::now();
        let response = requests.raw(Method::GET, &path, &[], Body::empty()).await;
        assert_eq!(start.elapsed().as_millis(), 0);
        assert_eq!(response.headers().get("retry-after"), None);
        let refusal = answer(response).await;
        let details = &refusal.body["details"];
        assert_eq!(details["retryAfterSeconds"], serde_json::Value::Null);
        assert_eq!(details["causes"][0]["reason"], "ResourceVersionTooLarge");
        let (reason, message) = refusal.refused(504);
        assert_eq!(reason, "Timeout");
        assert!(
            message.starts_with("Timeout: Too large resource version: 999999"),
            "{message}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_future_revision_sends_its_client_back_to_the_list() {
    let plane = plane().await;
    let mut watch = Requests::to(&plane)
        .watch("/api/v1/nodes?watch=1&resourceVersion=999999")
        .await;
    let start = tokio::time::Instant::now();
    let event = watch.next().await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 0);
    assert_eq!(
        (event["type"].as_str(), event["object"]["code"].as_u64()),
        (Some("ERROR"), Some(410))
    );
    assert!(watch.next().await.is_none());
}
