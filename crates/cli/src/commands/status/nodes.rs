//! The nodes of one job, the failed and slow ones first; of a list job, its images.

use kube::api::ListParams;
use kube::{Api, Client};
use larder_api::contract::{Answer, answer};
use larder_api::{ImagePullJob, NodeImage};
use larder_model::ImageRef;

use super::bytes;
use crate::failure::Failure;
use crate::job::JobView;
use crate::jobs::{self, Job};
use crate::table::table;

/// The nodes of a job, or the images of a list job.
pub(super) async fn table_of(client: &Client, jobs: &[Job], job: &Job) -> Result<String, Failure> {
    match job {
        Job::Pull(job) => {
            let nodes: Api<NodeImage> = Api::all(client.clone());
            let nodes = nodes.list(&ListParams::default()).await;
            let nodes = nodes.map_err(|error| Failure::from_api("reading NodeImages", &error))?;
            Ok(pull_nodes(job, &nodes.items))
        }
        Job::List(job) => {
            let rows: Vec<Vec<String>> = jobs::children(jobs, job)
                .into_iter()
                .map(|child| (child.spec.image.clone(), JobView::from(child)))
                .map(|(image, view)| {
                    let state = view.phase.as_str().to_owned();
                    let done = format!("{}/{}", view.succeeded, view.desired);
                    vec![
                        image,
                        view.name.clone(),
                        state,
                        done,
                        view.failed.to_string(),
                        view.reasons_text(),
                    ]
                })
                .collect();
            Ok(below(&["IMAGE", "JOB", "PHASE", "DONE", "FAILED", "REASONS"], &rows))
        }
        Job::PrePull(job) => {
            let nodes = job
                .status
                .as_ref()
                .map(|status| status.node_status.as_slice())
                .unwrap_or_default();
            let row = |node: &larder_api::image_pre_pull_job::NodeTaskStatus| {
                vec![
                    node.node_name.clone().unwrap_or_default(),
                    node.phase.clone().unwrap_or_default(),
                    node.reason.clone().unwrap_or_default(),
                ]
            };
            let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
            Ok(below(&["NODE", "PHASE", "REASON"], &rows))
        }
    }
}

/// What the NodeImages say of one job, the failed and slow nodes first.
fn pull_nodes(job: &ImagePullJob, nodes: &[NodeImage]) -> String {
    let Ok(image) = ImageRef::parse(&job.spec.image) else {
        return String::new();
    };
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let tag = image.tag_text();
    let mut rows: Vec<(u8, Vec<String>)> = Vec::new();
    for node in nodes {
        let Some(version) = node
            .entry(image.name(), &tag)
            .and_then(|entry| entry.claim_version(uid))
        else {
            continue;
        };
        let result = node.result(image.name(), &tag);
        let (rank, phase) = match answer(version, result) {
            Answer::Failed(_) => (0, "Failed"),
            Answer::Pulling => (1, "Pulling"),
            Answer::Waiting(_) => (2, "Waiting"),
            Answer::Unanswered => (3, "Ordered"),
            Answer::Succeeded => (4, "Succeeded"),
        };
        let said = |text: Option<&String>| text.cloned().unwrap_or_default();
        rows.push((
            rank,
            vec![
                said(node.metadata.name.as_ref()),
                phase.to_owned(),
                bytes(
                    result.and_then(|result| result.bytes_done),
                    result.and_then(|result| result.bytes_total),
                ),
                result
                    .and_then(|result| result.attempts)
                    .map_or_else(|| "-".to_owned(), |attempts| attempts.to_string()),
                said(result.and_then(|result| result.reason.as_ref())),
                said(result.and_then(|result| result.message.as_ref())).replace('\n', " "),
            ],
        ));
    }
    rows.sort();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
    below(&["NODE", "PHASE", "BYTES", "TRIES", "REASON", "MESSAGE"], &rows)
}

/// A second table, after an empty line; nothing if it has no rows.
fn below(heading: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(heading, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, status: &serde_json::Value) -> NodeImage {
        serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": name},
            "spec": {"images": {"nginx": {"tags": [{
                "tag": "1.9.1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 1},
                "ownerReferences": [{"uid": "u"}], "claims": [{"uid": "u", "version": 1}]
            }]}}},
            "status": {"imageStatuses": {"nginx": {"tags": [status]}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_jobs_nodes_with_the_failed_ones_first() {
        let mut job = ImagePullJob::new(
            "web",
            larder_api::ImagePullJobSpec {
                image: "nginx:1.9.1".into(),
                ..Default::default()
            },
        );
        job.metadata.uid = Some("u".into());
        let nodes = [
            node(
                "node-1",
                &json!({"tag": "1.9.1", "version": 1, "phase": "Succeeded", "bytesTotal": 2048, "bytesDone": 2048, "attempts": 1}),
            ),
            node(
                "node-2",
                &json!({"tag": "1.9.1", "version": 1, "phase": "Failed", "reason": "NotFound", "message": "no such tag", "attempts": 1}),
            ),
            node("node-3", &json!({"tag": "1.9.1", "version": 0, "phase": "Succeeded"})),
        ];
        insta::assert_snapshot!(pull_nodes(&job, &nodes), @r"

        NODE     PHASE       BYTES               TRIES   REASON     MESSAGE
        node-2   Failed      -                   1       NotFound   no such tag
        node-3   Ordered     -                   -
        node-1   Succeeded   2.0 KiB / 2.0 KiB   1
        ");
    }
}
