//! `larder status`: a table of jobs, or one job with its nodes.

use kube::api::ListParams;
use kube::{Api, Client};
use larder_api::contract::{Answer, answer};
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob, NodeImage};
use larder_model::{ByteSize, ImageRef};
use serde_json::json;

use crate::args::{Cluster, Format, Status};
use crate::client;
use crate::failure::{Failure, chain};
use crate::job::JobView;
use crate::output;
use crate::table::table;

pub(crate) async fn run(cluster: &Cluster, arguments: Status) -> Result<(), Failure> {
    let client = client::connect(cluster).await?;
    let jobs = jobs(&client, arguments.all_namespaces).await?;
    let Some(wanted) = &arguments.job else {
        let views: Vec<JobView> = jobs.iter().map(Job::view).collect();
        return show(arguments.output, &views);
    };
    let found: Vec<&Job> = jobs.iter().filter(|job| is_called(&job.view(), wanted)).collect();
    match found.as_slice() {
        [] => Err(Failure::wrong(format!(
            "there is no job {wanted}; larder status lists the ones there are"
        ))),
        [job] if arguments.output == Format::Table => {
            output::print(&overview(&[job.view()]));
            output::print(&nodes(&client, job).await?);
            Ok(())
        }
        [job] => show(arguments.output, &[job.view()]),
        several => {
            let titles: Vec<String> = several.iter().map(|job| job.view().title()).collect();
            Err(Failure::wrong(format!(
                "{wanted} is the name of several jobs: {}; say which",
                titles.join(", ")
            )))
        }
    }
}

/// A job of any kind.
enum Job {
    Pull(Box<ImagePullJob>),
    List(Box<ImageListPullJob>),
    PrePull(Box<ImagePrePullJob>),
}

impl Job {
    fn view(&self) -> JobView {
        match self {
            Job::Pull(job) => JobView::from(&**job),
            Job::List(job) => JobView::from(&**job),
            Job::PrePull(job) => JobView::from(&**job),
        }
    }
}

async fn jobs(client: &Client, everywhere: bool) -> Result<Vec<Job>, Failure> {
    let failed = |error: kube::Error| Failure::from_api("reading jobs", &error);
    let (pulls, lists) = if everywhere {
        (Api::all(client.clone()), Api::all(client.clone()))
    } else {
        (
            Api::default_namespaced(client.clone()),
            Api::default_namespaced(client.clone()),
        )
    };
    let pre_pulls: Api<ImagePrePullJob> = Api::all(client.clone());
    let all = ListParams::default();
    let (pulls, lists, pre_pulls) =
        futures::try_join!(pulls.list(&all), lists.list(&all), pre_pulls.list(&all)).map_err(failed)?;
    let pulls = pulls
        .items
        .into_iter()
        .map(|job: ImagePullJob| Job::Pull(Box::new(job)));
    let lists = lists
        .items
        .into_iter()
        .map(|job: ImageListPullJob| Job::List(Box::new(job)));
    let pre_pulls = pre_pulls.items.into_iter().map(|job| Job::PrePull(Box::new(job)));
    Ok(pulls.chain(lists).chain(pre_pulls).collect())
}

/// `web`, or `imagepulljob/web`.
fn is_called(view: &JobView, wanted: &str) -> bool {
    view.name == wanted || view.title() == wanted.to_ascii_lowercase()
}

fn show(format: Format, views: &[JobView]) -> Result<(), Failure> {
    let json = json!({ "jobs": views });
    match format {
        Format::Table => output::print(&overview(views)),
        Format::Json => output::line(&format!("{json:#}")),
        Format::Yaml => {
            output::print(&serde_saphyr::to_string(&json).map_err(|error| Failure::wrong(chain(&error)))?);
        }
    }
    Ok(())
}

fn overview(views: &[JobView]) -> String {
    if views.is_empty() {
        return "There are no jobs.\n".to_owned();
    }
    let row = |view: &JobView| {
        vec![
            view.title(),
            view.phase.as_str().to_owned(),
            view.desired.to_string(),
            view.active.to_string(),
            view.succeeded.to_string(),
            view.failed.to_string(),
            bytes(view.bytes_done, view.bytes_total),
            view.eta_seconds
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s")),
            view.message.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = views.iter().map(row).collect();
    table(
        &[
            "JOB", "PHASE", "TOTAL", "ACTIVE", "DONE", "FAILED", "BYTES", "ETA", "MESSAGE",
        ],
        &rows,
    )
}

fn bytes(done: Option<i64>, total: Option<i64>) -> String {
    let size = |bytes: i64| ByteSize(u64::try_from(bytes).unwrap_or(0)).to_string();
    match (done, total) {
        (Some(done), Some(total)) => format!("{} / {}", size(done), size(total)),
        (None, Some(total)) => size(total),
        (_, None) => "-".to_owned(),
    }
}

/// The nodes of a job, or the images of a list job.
async fn nodes(client: &Client, job: &Job) -> Result<String, Failure> {
    match job {
        Job::Pull(job) => {
            let nodes: Api<NodeImage> = Api::all(client.clone());
            let nodes = nodes.list(&ListParams::default()).await;
            let nodes = nodes.map_err(|error| Failure::from_api("reading NodeImages", &error))?;
            Ok(pull_nodes(job, &nodes.items))
        }
        Job::List(job) => {
            let failed = job
                .status
                .as_ref()
                .map(|status| status.failed_image_statuses.as_slice())
                .unwrap_or_default();
            let row = |image: &larder_api::image_list_pull_job::FailedImageStatus| {
                vec![
                    image.name.clone().unwrap_or_default(),
                    image.image_pull_job.clone().unwrap_or_default(),
                    image.message.clone().unwrap_or_default(),
                ]
            };
            let rows: Vec<Vec<String>> = failed.iter().map(row).collect();
            Ok(if rows.is_empty() {
                String::new()
            } else {
                format!("\n{}", table(&["FAILED IMAGE", "JOB", "MESSAGE"], &rows))
            })
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
            Ok(if rows.is_empty() {
                String::new()
            } else {
                format!("\n{}", table(&["NODE", "PHASE", "REASON"], &rows))
            })
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
                said(result.and_then(|result| result.message.as_ref())),
            ],
        ));
    }
    rows.sort();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "\n{}",
        table(&["NODE", "PHASE", "BYTES", "TRIES", "REASON", "MESSAGE"], &rows)
    )
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

    #[test]
    fn a_job_is_called_by_name_or_with_its_kind() {
        let view = JobView {
            kind: "ImagePullJob",
            name: "web".into(),
            ..JobView::default()
        };
        assert!(is_called(&view, "web"));
        assert!(is_called(&view, "ImagePullJob/web"));
        assert!(!is_called(&view, "imagelistpulljob/web"));
    }

    #[test]
    fn no_jobs_are_said_in_words() {
        assert_eq!(overview(&[]), "There are no jobs.\n");
    }
}
