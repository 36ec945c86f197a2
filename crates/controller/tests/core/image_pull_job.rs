//! ImagePullJobs from their creation to their end.

use serde_json::json;

use crate::fleet::{Fleet, QUICK};
use crate::stage::{Stage, condition};

#[tokio::test]
async fn a_job_on_three_nodes_completes() {
    let stage = Stage::new().await;
    let fleet = Fleet::of(&stage.client, &[QUICK; 3]).await;
    stage.submit("job", json!({"image": "nginx:1", "parallelism": 2})).await;
    let job = stage.job_ends("job").await;
    let status = job.status.clone().unwrap();
    assert_eq!(status.message.as_deref(), Some("job has completed"));
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (3, 3, 0, 0)
    );
    assert_eq!(condition(&job, "Complete").as_deref(), Some("AllNodesSucceeded"));
    assert_eq!(fleet.all_pulls(), 3);
    assert!(fleet.most_at_once() <= 2);
}
