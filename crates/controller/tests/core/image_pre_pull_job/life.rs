//! From creation to the end and beyond: phases, images, tolerance, deadlines, deletion, edits, restarts.

use larder_testkit::wait_until;
use serde_json::json;

use super::scene::{condition, counts, edge_fleet, phases};
use crate::fleet::QUICK;
use crate::stage::{SOON, Stage};

#[tokio::test]
async fn two_images_on_three_nodes() {
    let stage = Stage::new().await;
    let fleet = edge_fleet(&stage, &[QUICK; 3]).await;
    let template = json!({"images": ["nginx:1", "redis:7"], "labelSelector": {}});
    stage.prepull("job", template).await;
    let status = stage.prepull_ends("job").await;
    assert_eq!(status.phase.as_deref(), Some("Completed"));
    assert_eq!(counts(&status), (3, 3, 0));
    assert_eq!(condition(&status, "Complete").as_deref(), Some("AllNodesSucceeded"));
    assert_eq!(
        phases(&status),
        [
            ("edge-0", "Successful"),
            ("edge-1", "Successful"),
            ("edge-2", "Successful")
        ]
    );
    let images = status.node_status[0].image_status.iter();
    let said: Vec<_> = images
        .map(|image| (image.image.as_deref(), image.status.as_deref()))
        .collect();
    assert_eq!(said, [(Some("nginx:1"), Some("True")), (Some("redis:7"), Some("True"))]);
    assert_eq!(
        (
            status.state.as_deref(),
            status.event.as_deref(),
            status.action.as_deref()
        ),
        (Some("Successful"), Some("Pull"), Some("Success"))
    );
    assert_eq!(status.status.len(), 3);
    assert_eq!(fleet.all_pulls(), 6);
    wait_until(SOON, "the Event", async || {
        stage
            .event_reasons("job")
            .await
            .contains(&"PullImageSucceed".to_owned())
    })
    .await
    .unwrap();
}
