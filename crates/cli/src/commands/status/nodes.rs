//! The nodes of one job, the failed and slow ones first; of a list job, its images. Pure but for the list of NodeImages.

use kube::api::ListParams;
use kube::{Api, Client};
use larder_api::contract::{Answer, answer};
use larder_api::image_pre_pull_job::{NodeTaskStatus, OmittedNodes};
use larder_api::{ImagePrePullJob, ImagePullJob, NodeImage};
use larder_model::{ImageRef, Reason};
use serde::Serialize;

use super::bytes;
use crate::cause::cause;
use crate::failure::Failure;
use crate::job::JobView;
use crate::jobs::{self, Job};
use crate::printable::Printable;
use crate::table::{Column, Narrow, fitted};

/// What a job is made of. The names of the variants are keys of `-o json`, on which scripts rely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Parts {
    Nodes(Vec<NodeRow>),
    Images(Vec<ImageRow>),
}

/// One node of a job. Field names are the output of `-o json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    node: String,
    phase: String,
    bytes_total: Option<i64>,
    bytes_done: Option<i64>,
    attempts: Option<i32>,
    reason: Option<String>,
    message: Option<String>,
}

/// One image of a list job. Field names are the output of `-o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageRow {
    image: String,
    job: String,
    phase: &'static str,
    desired: i32,
    succeeded: i32,
    failed: i32,
    #[serde(skip)]
    reasons: String,
}

/// The nodes of a job, or the images of a list job.
pub(super) async fn parts_of(client: &Client, jobs: &[Job], job: &Job) -> Result<Parts, Failure> {
    match job {
        Job::Pull(job) => {
            let nodes: Api<NodeImage> = Api::all(client.clone());
            let nodes = nodes.list(&ListParams::default()).await;
            let nodes = nodes.map_err(|error| Failure::from_api("reading NodeImages", &error))?;
            Ok(Parts::Nodes(pull_nodes(job, &nodes.items)))
        }
        Job::List(job) => {
            let row = |child: &ImagePullJob| {
                let view = JobView::from(child);
                ImageRow {
                    image: child.spec.image.clone(),
                    reasons: view.reasons_text(),
                    job: view.name,
                    phase: view.phase.as_str(),
                    desired: view.desired,
                    succeeded: view.succeeded,
                    failed: view.failed,
                }
            };
            Ok(Parts::Images(jobs::children(jobs, job).into_iter().map(row).collect()))
        }
        Job::PrePull(job) => Ok(Parts::Nodes(pre_pull_nodes(job))),
    }
}

/// What the NodeImages say of one job, the failed and slow nodes first.
fn pull_nodes(job: &ImagePullJob, nodes: &[NodeImage]) -> Vec<NodeRow> {
    let Ok(image) = ImageRef::parse(&job.spec.image) else {
        return Vec::new();
    };
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let tag = image.tag_text();
    let mut rows: Vec<(u8, NodeRow)> = Vec::new();
    for node in nodes {
        let Some(version) = node
            .entry(image.name(), &tag)
            .and_then(|entry| entry.claim_version(uid))
        else {
            continue;
        };
        let answer = answer(version, node.result(image.name(), &tag));
        // What an older order came to says nothing about this one.
        let result = node.result(image.name(), &tag).filter(|_| answer != Answer::Unanswered);
        let (rank, phase) = match answer {
            Answer::Failed(_) => (0, "Failed"),
            Answer::Pulling => (1, "Pulling"),
            Answer::Waiting(_) => (2, "Waiting"),
            Answer::Unanswered => (3, "Ordered"),
            Answer::Succeeded => (4, "Succeeded"),
        };
        let row = NodeRow {
            node: node.metadata.name.clone().unwrap_or_default(),
            phase: phase.to_owned(),
            bytes_total: result.and_then(|result| result.bytes_total),
            bytes_done: result.and_then(|result| result.bytes_done),
            attempts: result.and_then(|result| result.attempts),
            reason: result.and_then(|result| result.reason.clone()),
            message: result.and_then(|result| result.message.clone()),
        };
        rows.push((rank, row));
    }
    rows.sort_by(|(rank, row), (other_rank, other)| (rank, &row.node).cmp(&(other_rank, &other.node)));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// This kind's status holds its nodes; their reasons are texts.
fn pre_pull_nodes(job: &ImagePrePullJob) -> Vec<NodeRow> {
    let rank = |phase: &str| match phase {
        "Failure" | "Unknown" => 0,
        "InProgress" => 1,
        "Successful" => 3,
        _ => 2,
    };
    let row = |node: &NodeTaskStatus| NodeRow {
        node: node.node_name.clone().unwrap_or_default(),
        phase: node.phase.clone().unwrap_or_default(),
        message: Some(said(node)).filter(|text| !text.is_empty()),
        ..NodeRow::default()
    };
    let omitted = |group: &OmittedNodes| {
        let row = |node: &String| NodeRow {
            node: node.clone(),
            phase: group.phase.clone().unwrap_or_default(),
            message: group.cause.clone(),
            ..NodeRow::default()
        };
        group.nodes.iter().map(row).collect::<Vec<_>>()
    };
    let mut rows: Vec<NodeRow> = Vec::new();
    if let Some(status) = &job.status {
        rows.extend(status.node_status.iter().map(row));
        rows.extend(status.omitted_nodes.iter().flat_map(omitted));
    }
    rows.sort_by(|one, other| (rank(&one.phase), &one.node).cmp(&(rank(&other.phase), &other.node)));
    rows
}

/// Why a node failed or waits; of a node that is done, under which other names it pulled.
fn said(node: &NodeTaskStatus) -> String {
    let text = node.reason.as_ref().filter(|reason| !reason.is_empty());
    if let Some(text) = text.or(node.cause.as_ref()) {
        return text.clone();
    }
    let renamed = node.image_status.iter().filter_map(|image| {
        let resolved = image.resolved_image.as_ref()?;
        Some(format!("{} pulled as {resolved}", image.image.as_deref()?))
    });
    renamed.collect::<Vec<_>>().join(", ")
}

const NODES: [Column; 6] = [
    ("NODE", Narrow::Keep),
    ("PHASE", Narrow::Keep),
    ("BYTES", Narrow::Drop(2)),
    ("TRIES", Narrow::Drop(1)),
    ("REASON", Narrow::Keep),
    ("MESSAGE", Narrow::Cut),
];

const PRE_PULL_NODES: [Column; 3] = [
    ("NODE", Narrow::Keep),
    ("PHASE", Narrow::Keep),
    ("MESSAGE", Narrow::Wrap),
];

const IMAGES: [Column; 6] = [
    ("IMAGE", Narrow::Keep),
    ("JOB", Narrow::Drop(1)),
    ("PHASE", Narrow::Keep),
    ("DONE", Narrow::Keep),
    ("FAILED", Narrow::Drop(2)),
    ("REASONS", Narrow::Cut),
];

impl Parts {
    /// A second table, after an empty line; nothing if it has no rows.
    pub(super) fn table(&self, width: Option<usize>) -> Printable {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (columns, rows): (&[Column], Vec<Vec<String>>) = match self {
            Parts::Nodes(rows) if rows.iter().all(NodeRow::is_bare) => (
                &PRE_PULL_NODES,
                rows.iter()
                    .map(|row| vec![row.node.clone(), row.phase.clone(), text(&row.message)])
                    .collect(),
            ),
            Parts::Nodes(rows) => (&NODES, rows.iter().map(NodeRow::cells).collect()),
            Parts::Images(rows) => (&IMAGES, rows.iter().map(ImageRow::cells).collect()),
        };
        if rows.is_empty() {
            return Printable::default();
        }
        Printable::default().end_line().then(&fitted(columns, &rows, width))
    }
}

impl NodeRow {
    /// A row of a kind that tells no bytes and no tries.
    fn is_bare(&self) -> bool {
        self.bytes_total.is_none() && self.attempts.is_none() && self.reason.is_none()
    }

    fn cells(&self) -> Vec<String> {
        let reason = self.reason.as_deref().and_then(|reason| reason.parse::<Reason>().ok());
        let message = self.message.as_deref().and_then(|message| cause(message, reason));
        vec![
            self.node.clone(),
            self.phase.clone(),
            bytes(self.bytes_done, self.bytes_total),
            self.attempts
                .map_or_else(|| "-".to_owned(), |attempts| attempts.to_string()),
            self.reason.clone().unwrap_or_default(),
            message.unwrap_or_default(),
        ]
    }
}

impl ImageRow {
    fn cells(&self) -> Vec<String> {
        vec![
            self.image.clone(),
            self.job.clone(),
            self.phase.to_owned(),
            format!("{}/{}", self.succeeded, self.desired),
            self.failed.to_string(),
            self.reasons.clone(),
        ]
    }
}

#[cfg(test)]
mod tests;
