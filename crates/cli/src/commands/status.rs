//! `larder status`: a table of jobs, or one job with its nodes.

mod nodes;

use larder_model::ByteSize;
use serde::Serialize;
use serde_json::json;

use self::nodes::Parts;
use crate::args::{Cluster, Status};
use crate::failure::Failure;
use crate::job::JobView;
use crate::jobs::{self, Job};
use crate::printable::Printable;
use crate::table::{Column, Narrow, fitted};
use crate::{client, output};

/// One job in `-o json`, with what it is made of.
#[derive(Serialize)]
struct WithParts<'a> {
    #[serde(flatten)]
    view: &'a JobView,
    #[serde(flatten)]
    parts: &'a Parts,
}

pub(crate) async fn run(cluster: &Cluster, arguments: Status) -> Result<(), Failure> {
    let client = client::connect(cluster).await?;
    let jobs = jobs::list(&client, arguments.all_namespaces).await?;
    let everywhere = arguments.all_namespaces;
    let Some(wanted) = &arguments.job else {
        let views: Vec<JobView> = jobs.iter().map(Job::view).collect();
        return output::value(arguments.output, &json!({ "jobs": views }), || {
            overview(&views, everywhere, output::width())
        });
    };
    let job = jobs::find(&jobs, wanted)?;
    let view = job.view();
    let parts = nodes::parts_of(&client, &jobs, job).await?;
    let with_parts = WithParts {
        view: &view,
        parts: &parts,
    };
    output::value(arguments.output, &json!({ "jobs": [with_parts] }), || {
        one(&view, &parts, everywhere, output::width())
    })
}

/// One job in tables.
fn one(view: &JobView, parts: &Parts, everywhere: bool, width: Option<usize>) -> Printable {
    let mut text = overview(std::slice::from_ref(view), everywhere, width);
    if !view.reasons.is_empty() {
        let reasons = Printable::line(&format!("Reasons: {}", view.reasons_text()));
        text = text.end_line().then(&reasons);
    }
    text.then(&parts.table(width))
}

const COLUMNS: [Column; 9] = [
    ("NAMESPACE", Narrow::Keep),
    ("JOB", Narrow::Keep),
    ("PHASE", Narrow::Keep),
    ("DONE", Narrow::Keep),
    ("ACTIVE", Narrow::Drop(1)),
    ("FAILED", Narrow::Keep),
    ("BYTES", Narrow::Drop(3)),
    ("ETA", Narrow::Drop(2)),
    ("MESSAGE", Narrow::Cut),
];

/// With `everywhere`, the namespaces too.
fn overview(views: &[JobView], everywhere: bool, width: Option<usize>) -> Printable {
    if views.is_empty() {
        return Printable::line("There are no jobs.");
    }
    let row = |view: &JobView| {
        let namespace = everywhere.then(|| view.namespace.clone().unwrap_or_else(|| "-".to_owned()));
        let rest = [
            view.title(),
            view.phase.as_str().to_owned(),
            format!("{}/{}", view.succeeded, view.desired),
            view.active.to_string(),
            view.failed.to_string(),
            bytes(view.bytes_done, view.bytes_total),
            view.eta_seconds
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s")),
            view.message.clone(),
        ];
        namespace.into_iter().chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = views.iter().map(row).collect();
    fitted(&COLUMNS[usize::from(!everywhere)..], &rows, width)
}

/// How many of how many; what is whole is said once.
fn bytes(done: Option<i64>, total: Option<i64>) -> String {
    let size = |bytes: i64| ByteSize(u64::try_from(bytes).unwrap_or(0)).to_string();
    match (done, total) {
        (Some(done), Some(total)) if done != total => format!("{} / {}", size(done), size(total)),
        (_, Some(total)) => size(total),
        (_, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_jobs_are_said_in_words() {
        assert_eq!(overview(&[], false, None).as_str(), "There are no jobs.\n");
    }

    fn view() -> JobView {
        JobView {
            kind: "ImageListPullJob",
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
        }
    }

    #[test]
    fn namespaces_stand_in_front_where_there_are_several() {
        insta::assert_snapshot!(overview(&[view()], true, None), @r"
        NAMESPACE   JOB                    PHASE     DONE   ACTIVE   FAILED   BYTES               ETA   MESSAGE
        shop        imagelistpulljob/web   Running   1/3    2        0        1.0 KiB / 2.0 KiB   4s    job is running, progress 33.3%
        ");
    }

    #[test]
    fn at_80_columns_no_row_is_longer() {
        insta::assert_snapshot!(overview(&[view()], false, Some(80)), @r"
        JOB                    PHASE     DONE   FAILED   MESSAGE
        imagelistpulljob/web   Running   1/3    0        job is running, progress 33.3%
        ");
        let long = JobView {
            name: "a-name-as-long-as-kubernetes-lets-it-be-which-is-sixty-three-xx".into(),
            ..view()
        };
        let far = JobView {
            namespace: Some("a-namespace-as-long-as-kubernetes-lets-it-be-which-is-sixty-three".into()),
            ..long.clone()
        };
        for everywhere in [false, true] {
            let text = overview(&[view(), long.clone(), far.clone()], everywhere, Some(80)).to_string();
            let heading = text.lines().next().unwrap();
            for column in ["JOB", "PHASE", "DONE", "FAILED", "MESSAGE"] {
                assert!(heading.contains(column), "{heading}");
            }
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
