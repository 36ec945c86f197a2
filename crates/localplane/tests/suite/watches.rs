//! Watches: nothing is missed, nothing told twice, and who cannot follow is told so.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, future::join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use larder_localplane::{Config, History, Localplane};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::http::{CONFIG_MAPS, NODE_IMAGES, Requests, Watch, names, node_image, plane, revision};

fn told(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_goes_on_where_a_list_ended() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("before").await;
    let list = requests.get(NODE_IMAGES).await.ok();
    requests.node_image("between").await;
    let mut watch = requests
        .watch(&format!("{NODE_IMAGES}?watch=1&resourceVersion={}", revision(&list)))
        .await;
    requests.node_image("after").await;
    requests
        .merge(
            &format!("{NODE_IMAGES}/before"),
            &json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await
        .ok();
    requests
        .delete(&format!("{NODE_IMAGES}/between"), &json!({}))
        .await
        .ok();
    assert_eq!(watch.told().await, told("ADDED", "between"));
    assert_eq!(watch.told().await, told("ADDED", "after"));
    assert_eq!(watch.told().await, told("MODIFIED", "before"));
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert!(revision(&gone["object"]) > revision(&list));
}

#[tokio::test]
async fn without_a_revision_a_watch_starts_with_what_is_there() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("a").await;
    let mut watch = requests.watch(&format!("{NODE_IMAGES}?watch=true")).await;
    assert_eq!(watch.told().await, told("ADDED", "a"));
    requests.node_image("b").await;
    assert_eq!(watch.told().await, told("ADDED", "b"));
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("a").await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = requests.watch(&format!("{NODE_IMAGES}?{query}")).await;
    assert_eq!(watch.told().await, told("ADDED", "a"));
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["kind"], "NodeImage");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    let list = requests.get(NODE_IMAGES).await.ok();
    assert_eq!(revision(&end["object"]), revision(&list));
    requests
        .get(&format!("{NODE_IMAGES}?watch=1&sendInitialEvents=true"))
        .await
        .refused(422);
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_told_as_deleted() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut watch = requests
        .watch(&format!("{NODE_IMAGES}?watch=1&labelSelector=a%3Db"))
        .await;
    requests.node_image("x").await;
    let path = format!("{NODE_IMAGES}/x");
    requests
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    assert_eq!(watch.told().await, told("ADDED", "x"));
    let left = requests
        .merge(&path, &json!({"metadata": {"labels": {"a": "c"}}}))
        .await
        .ok();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["a"], "b");
    assert_eq!(revision(&event["object"]), revision(&left));
}

#[tokio::test]
async fn a_watch_of_one_name_hears_of_that_name_alone() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut watch = requests
        .watch(&format!("{NODE_IMAGES}?watch=1&fieldSelector=metadata.name%3Db"))
        .await;
    for name in ["a", "b", "c"] {
        requests.node_image(name).await;
    }
    requests.delete(&format!("{NODE_IMAGES}/b"), &json!({})).await.ok();
    assert_eq!(watch.told().await, told("ADDED", "b"));
    assert_eq!(watch.told().await, told("DELETED", "b"));
}

#[tokio::test]
async fn a_revision_that_is_forgotten_is_told_inside_the_stream() {
    let mut config = Config::new(larder_api::crds());
    config.history = History {
        events: 2,
        bytes: 1 << 20,
    };
    let plane = Localplane::start(config).await.unwrap();
    let requests = Requests::to(&plane);
    for index in 0..5 {
        requests.node_image(&format!("n{index}")).await;
    }
    let mut watch = requests
        .watch(&format!("{NODE_IMAGES}?watch=1&resourceVersion=1"))
        .await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        (&event["object"]["code"], &event["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut slow = requests.watch(&format!("{NODE_IMAGES}?watch=1")).await;
    let mut quick = requests.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let writes = (0..2000).map(|index| {
        let requests = requests.clone();
        async move { requests.node_image(&format!("n{index}")).await }
    });
    join_all(writes).await;
    requests.config_map("alive", "x").await;
    assert_eq!(quick.told().await, told("ADDED", "alive"));
    let mut last = Value::Null;
    let mut count = 0;
    while let Some(event) = slow.next().await {
        count += 1;
        last = event;
    }
    assert_eq!(last["type"], "ERROR");
    assert_eq!(last["object"]["code"], 410);
    assert!(count < 2000, "{count}");
}

#[tokio::test]
async fn a_table_watch_sends_rows() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    requests.node_image("a").await;
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{NODE_IMAGES}?watch=1&timeoutSeconds=1");
    let response = requests
        .raw(::http::Method::GET, &path, &headers, axum::body::Body::empty())
        .await;
    let text = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    let event: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(event["object"]["kind"], "Table");
    assert_eq!(event["object"]["rows"][0]["cells"][0], "a");
}

async fn follow(plane: &Localplane, config: watcher::Config) {
    let client = Client::new(plane.service(), "default");
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let requests = Requests::to(plane);
    for index in 0..30 {
        requests.config_map(&format!("c{index:02}"), "old").await;
    }
    let mut stream = Box::pin(watcher(api, config).applied_objects());
    for index in 0..30 {
        let object = stream.try_next().await.unwrap().unwrap();
        assert_eq!(object.metadata.name, Some(format!("c{index:02}")));
    }
    requests
        .merge(&format!("{CONFIG_MAPS}/c07"), &json!({"data": {"key": "new"}}))
        .await
        .ok();
    let changed = stream.try_next().await.unwrap().unwrap();
    assert_eq!(changed.data.unwrap()["key"], "new");
}

#[tokio::test]
async fn the_watcher_of_kube_follows_by_list_and_watch() {
    let plane = plane().await;
    follow(&plane, watcher::Config::default().page_size(7)).await;
}

#[tokio::test]
async fn the_watcher_of_kube_follows_by_streaming_lists() {
    let plane = plane().await;
    follow(&plane, watcher::Config::default().streaming_lists()).await;
}

/// What a watcher knows after these events.
async fn replay(watch: &mut Watch, until: u64) -> BTreeMap<String, Value> {
    let mut known = BTreeMap::new();
    loop {
        let event = watch.next().await.unwrap();
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            "ADDED" => assert!(known.insert(name, object.clone()).is_none(), "added twice: {event}"),
            "MODIFIED" => assert!(known.insert(name, object.clone()).is_some(), "modified unseen: {event}"),
            "DELETED" => assert!(known.remove(&name).is_some(), "deleted unseen: {event}"),
            other => panic!("{other}"),
        }
        if revision(object) == until {
            return known;
        }
    }
}

async fn scenario(steps: Vec<(u8, u8)>, start: usize) {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut watch = None;
    for (index, (action, name)) in steps.iter().enumerate() {
        if index == start.min(steps.len() - 1) {
            watch = Some(
                requests
                    .watch(&format!("{NODE_IMAGES}?watch=1&labelSelector=shown"))
                    .await,
            );
        }
        let name = format!("n{name}");
        let path = format!("{NODE_IMAGES}/{name}");
        match action {
            0 => drop(requests.delete(&path, &json!({})).await),
            1 => drop(
                requests
                    .merge(&path, &json!({"metadata": {"labels": {"shown": null}}}))
                    .await,
            ),
            2 => drop(
                requests
                    .merge(&path, &json!({"metadata": {"labels": {"shown": index.to_string()}}}))
                    .await,
            ),
            _ => drop(requests.post(NODE_IMAGES, &node_image(&name)).await),
        }
    }
    let mut end = node_image("last");
    end["metadata"]["labels"] = json!({"shown": "last"});
    let end = requests.post(NODE_IMAGES, &end).await.ok();
    let known = replay(&mut watch.unwrap(), revision(&end)).await;
    let list = requests.get(&format!("{NODE_IMAGES}?labelSelector=shown")).await.ok();
    assert_eq!(known.keys().map(String::as_str).collect::<Vec<_>>(), names(&list));
    assert_eq!(
        &known.into_values().collect::<Vec<_>>(),
        list["items"].as_array().unwrap()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn what_a_watcher_knows_is_what_a_list_shows(steps in prop::collection::vec((0_u8..5, 0_u8..4), 1..40), start in 0_usize..40) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(scenario(steps, start));
    }
}

#[tokio::test]
async fn a_thousand_watchers_of_one_name_each_hear_their_own() {
    let plane = plane().await;
    let requests = Requests::to(&plane);
    let mut watches = Vec::new();
    for index in 0..1000 {
        let path = format!("{NODE_IMAGES}?watch=1&fieldSelector=metadata.name%3Dn{index}");
        watches.push(requests.watch(&path).await);
    }
    for index in (0..1000).rev() {
        requests.node_image(&format!("n{index}")).await;
    }
    let heard = futures::stream::iter(watches.iter_mut())
        .then(Watch::told)
        .collect::<Vec<_>>()
        .await;
    for (index, event) in heard.into_iter().enumerate() {
        assert_eq!(event, told("ADDED", &format!("n{index}")));
    }
}
