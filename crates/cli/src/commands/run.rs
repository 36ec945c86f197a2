//! `larder run`: submits jobs, shows how far they are and exits with their outcome. The jobs are those of files, or the one
//! that `images_of` makes.

pub(crate) mod follow;
pub(crate) mod images_of;
pub(crate) mod nodes;
pub(crate) mod submit;

use serde_json::json;

use self::follow::Detail;
use crate::args::{Cluster, Format, Run};
use crate::failure::Failure;
use crate::job::{JobView, Phase};
use crate::printable::Printable;
use crate::{client, manifest, output};

pub(crate) async fn run(cluster: &Cluster, arguments: Run) -> Result<(), Failure> {
    let submission = async {
        let (client, documents) = if let Some(source) = &arguments.images_of {
            let (client, document) = images_of::job(cluster, source, arguments.output).await?;
            (client, vec![document])
        } else {
            let documents = manifest::read_all(&arguments.filename)?;
            (client::connect(cluster).await?, documents)
        };
        let jobs = submit::all(&client, &documents).await?;
        Ok((client, jobs))
    };
    let (client, jobs) = tokio::select! {
        submitted = submission => submitted?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::interrupted()),
    };
    if jobs.is_empty() {
        return Err(Failure::wrong(
            "the file holds no job; give an ImagePullJob, ImageListPullJob or ImagePrePullJob",
        ));
    }
    let detail = match (arguments.output, arguments.nodes) {
        (Format::Json | Format::Yaml, _) => Detail::Nothing,
        (Format::Table, true) => Detail::Nodes,
        (Format::Table, false) => Detail::Jobs,
    };
    let end = follow::until_finished(&client, &jobs, detail);
    let end = async {
        tokio::select! {
            ended = end => ended,
            _ = tokio::signal::ctrl_c() => Err(Failure::interrupted_but("interrupted; the jobs go on, see: larder status")),
        }
    };
    let finished = match arguments.timeout {
        None => end.await?,
        Some(limit) => tokio::time::timeout(limit, end).await.map_err(|_| {
            Failure::timeout(format!(
                "not finished after {} s; the jobs go on, see: larder status",
                limit.as_secs()
            ))
        })??,
    };
    output::value(arguments.output, &json!({ "jobs": finished }), Printable::default)?;
    outcome(&finished)
}

fn outcome(finished: &[JobView]) -> Result<(), Failure> {
    let failed = |view: &JobView| {
        let reasons = match view.reasons_text().as_str() {
            "" => String::new(),
            reasons => format!(" ({reasons})"),
        };
        let title = view.title();
        format!(
            "{title} failed on {} of {}{reasons}; see: larder why {title}",
            view.failed, view.desired
        )
    };
    let not_complete = finished.iter().filter(|view| view.phase != Phase::Complete);
    let failed: Vec<String> = not_complete.map(failed).collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::bad(failed.join("; ")))
    }
}
