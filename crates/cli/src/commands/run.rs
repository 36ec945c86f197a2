//! `larder run`: submits jobs, shows how far they are and exits with their outcome.

pub(crate) mod follow;
pub(crate) mod submit;

use crate::args::{Cluster, Run};
use crate::failure::Failure;
use crate::{client, manifest};

pub(crate) async fn run(cluster: &Cluster, arguments: Run) -> Result<(), Failure> {
    let mut documents = Vec::new();
    for file in &arguments.filename {
        documents.extend(manifest::read(file)?);
    }
    let client = client::connect(cluster).await?;
    let jobs = submit::all(&client, &documents).await?;
    if jobs.is_empty() {
        return Err(Failure::wrong(
            "the file holds no job; give an ImagePullJob, ImageListPullJob or ImagePrePullJob",
        ));
    }
    let end = follow::until_finished(&client, &jobs);
    let finished = match arguments.timeout {
        None => end.await?,
        Some(limit) => tokio::time::timeout(limit, end).await.map_err(|_| {
            Failure::timeout(format!(
                "not finished after {} s; the jobs go on, see: larder status",
                limit.as_secs()
            ))
        })??,
    };
    if finished.iter().all(|view| view.phase == crate::job::Phase::Complete) {
        Ok(())
    } else {
        Err(Failure::said())
    }
}
