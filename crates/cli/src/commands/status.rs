//! `larder status`: a table of jobs, or one job with its nodes.

mod nodes;

use larder_model::ByteSize;
use serde_json::json;

use crate::args::{Cluster, Format, Status};
use crate::failure::Failure;
use crate::job::JobView;
use crate::jobs::{self, Job};
use crate::table::table;
use crate::{client, output};

pub(crate) async fn run(cluster: &Cluster, arguments: Status) -> Result<(), Failure> {
    let client = client::connect(cluster).await?;
    let jobs = jobs::list(&client, arguments.all_namespaces).await?;
    let everywhere = arguments.all_namespaces;
    let Some(wanted) = &arguments.job else {
        let views: Vec<JobView> = jobs.iter().map(Job::view).collect();
        return show(arguments.output, &views, everywhere);
    };
    let job = jobs::find(&jobs, wanted)?;
    let view = job.view();
    show(arguments.output, std::slice::from_ref(&view), everywhere)?;
    if arguments.output == Format::Table {
        if !view.reasons.is_empty() {
            output::line(&format!("\nReasons: {}", view.reasons_text()));
        }
        output::print(&nodes::table_of(&client, &jobs, job).await?);
    }
    Ok(())
}

fn show(format: Format, views: &[JobView], everywhere: bool) -> Result<(), Failure> {
    output::value(format, &json!({ "jobs": views }), || overview(views, everywhere))
}

/// With `everywhere`, the namespaces too.
fn overview(views: &[JobView], everywhere: bool) -> String {
    if views.is_empty() {
        return "There are no jobs.\n".to_owned();
    }
    let row = |view: &JobView| {
        let namespace = everywhere.then(|| view.namespace.clone().unwrap_or_else(|| "-".to_owned()));
        let rest = [
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
        ];
        namespace.into_iter().chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = views.iter().map(row).collect();
    let heading = [
        "NAMESPACE",
        "JOB",
        "PHASE",
        "TOTAL",
        "ACTIVE",
        "DONE",
        "FAILED",
        "BYTES",
        "ETA",
        "MESSAGE",
    ];
    table(&heading[usize::from(!everywhere)..], &rows)
}

fn bytes(done: Option<i64>, total: Option<i64>) -> String {
    let size = |bytes: i64| ByteSize(u64::try_from(bytes).unwrap_or(0)).to_string();
    match (done, total) {
        (Some(done), Some(total)) => format!("{} / {}", size(done), size(total)),
        (None, Some(total)) => size(total),
        (_, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_jobs_are_said_in_words() {
        assert_eq!(overview(&[], false), "There are no jobs.\n");
    }

    #[test]
    fn namespaces_stand_in_front_where_there_are_several() {
        let view = JobView {
            kind: "ImagePullJob",
            name: "web".into(),
            namespace: Some("shop".into()),
            desired: 3,
            succeeded: 1,
            active: 2,
            phase: crate::job::Phase::Running,
            bytes_total: Some(2048),
            bytes_done: Some(1024),
            eta_seconds: Some(4),
            message: "job is running, progress 33.3%".into(),
            ..JobView::default()
        };
        insta::assert_snapshot!(overview(&[view], true), @r"
        NAMESPACE   JOB                PHASE     TOTAL   ACTIVE   DONE   FAILED   BYTES               ETA   MESSAGE
        shop        imagepulljob/web   Running   3       2        1      0        1.0 KiB / 2.0 KiB   4s    job is running, progress 33.3%
        ");
    }
}
