//! A node that comes back is given work at once, however long it was away.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use larder_e2e::Cluster;
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Registry, wait_until};
use serde_json::json;

/// An order is withdrawn after 30 seconds, and given again a minute later.
const NEXT_ORDER: Duration = Duration::from_mins(3);

/// After the second order that nobody took up, the controller would wait for two minutes, and then longer and longer.
#[tokio::test]
async fn an_agent_that_was_stopped_gets_its_order_as_soon_as_it_goes_on() {
    let registry = Registry::start(Auth::Open).await.unwrap();
    let cluster = Cluster::start(1).await;
    let recipe = Recipe::random(97, 1, 20 * 1024);
    let image = registry.push(&recipe.build(), "recovery/app", "v1").await.unwrap();
    let name = image.reference.trim_end_matches(":v1").to_owned();
    let has_order = async || cluster.node_image("node-0").await.entry(&name, "v1").is_some();

    cluster.nodes[0].agent.freeze().unwrap();
    cluster.submit("job", &image.reference, &json!({})).await;
    for number in ["first", "second"] {
        wait_until(NEXT_ORDER, format!("the {number} order"), async || has_order().await)
            .await
            .unwrap();
        wait_until(NEXT_ORDER, format!("the {number} order to be withdrawn"), async || {
            !has_order().await
        })
        .await
        .unwrap();
    }
    cluster.nodes[0].agent.thaw().unwrap();
    assert_eq!(cluster.finished("job").await.succeeded, 1);
}
