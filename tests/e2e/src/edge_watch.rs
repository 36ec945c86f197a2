//! Everything that was ever said, not only what stands there now: watches that write down each status that they see.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Resource;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use larder_api::node_image::ImageTagStatus;
use larder_api::{ImagePrePullJob, ImagePrePullJobStatus, NodeImage};
use larder_testkit::wait_until;
use tokio::task::JoinHandle;

use crate::Cluster;

/// One state of a job.
#[derive(Debug, Clone)]
pub struct Said {
    /// The job.
    pub job: String,
    /// Which of the jobs of that name.
    pub uid: String,
    /// What it said.
    pub status: ImagePrePullJobStatus,
}

/// What a watch has seen so far.
struct History<T> {
    seen: Arc<Mutex<Vec<T>>>,
    task: JoinHandle<()>,
}

impl<T> Drop for History<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All states of all ImagePrePullJobs.
pub struct JobHistory(History<Said>);

/// All states of one entry on one node; states that follow each other differ.
pub struct StatusHistory(History<ImageTagStatus>);

impl Cluster {
    /// Writes down, from now on, every state of every ImagePrePullJob, as a `CloudCore` beside us would see it.
    pub async fn watch_prepulls(&self) -> JobHistory {
        let seen = Arc::<Mutex<Vec<Said>>>::default();
        let written = Arc::clone(&seen);
        let task = follow(self.prepulls(), move |job: ImagePrePullJob| {
            written.lock().unwrap().push(Said {
                job: job.metadata.name.unwrap_or_default(),
                uid: job.metadata.uid.unwrap_or_default(),
                status: job.status.unwrap_or_default(),
            });
        })
        .await;
        JobHistory(History { seen, task })
    }

    /// Writes down, from now on, everything that a node says about an image.
    pub async fn watch_result(&self, node: &str, name: &str, tag: &str) -> StatusHistory {
        let seen = Arc::<Mutex<Vec<ImageTagStatus>>>::default();
        let written = Arc::clone(&seen);
        let (node, name, tag) = (node.to_owned(), name.to_owned(), tag.to_owned());
        let task = follow(Api::<NodeImage>::all(self.client()), move |object: NodeImage| {
            if object.metadata.name.as_deref() != Some(&node) {
                return;
            }
            let Some(result) = object.result(&name, &tag) else {
                return;
            };
            let mut written = written.lock().unwrap();
            if written.last() != Some(result) {
                written.push(result.clone());
            }
        })
        .await;
        StatusHistory(History { seen, task })
    }
}

impl JobHistory {
    /// What this job said, first to last.
    pub fn of(&self, job: &str) -> Vec<Said> {
        let seen = self.0.seen.lock().unwrap();
        seen.iter().filter(|said| said.job == job).cloned().collect()
    }

    /// Waits until the watch has seen the end of a job, so that nothing of before is missing.
    pub async fn until_over(&self, job: &str, within: Duration) -> Vec<Said> {
        let over = async || {
            let said = self.of(job);
            let phase = said.last().and_then(|last| last.status.phase.clone());
            matches!(phase.as_deref(), Some("Completed" | "Failure"))
        };
        wait_until(within, format!("the watch to see the end of {job}"), over)
            .await
            .unwrap();
        self.of(job)
    }
}

impl StatusHistory {
    /// What was said, first to last.
    pub fn all(&self) -> Vec<ImageTagStatus> {
        self.0.seen.lock().unwrap().clone()
    }
}

/// Shows every object and every change of one, from now on. An API server of a test keeps its history for longer than a
/// test takes, so that nothing is missed between two watches.
async fn follow<K>(api: Api<K>, mut show: impl FnMut(K) + Send + 'static) -> JoinHandle<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let list = api.list(&ListParams::default()).await.unwrap();
    let mut version = list.metadata.resource_version.unwrap_or_default();
    list.items.into_iter().for_each(&mut show);
    tokio::spawn(async move {
        loop {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                        version = object.meta().resource_version.clone().unwrap_or_default();
                        show(object);
                    }
                    Ok(WatchEvent::Deleted(object)) => {
                        version = object.meta().resource_version.clone().unwrap_or_default();
                    }
                    Ok(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                    Ok(WatchEvent::Error(_)) | Err(_) => break,
                }
            }
        }
    })
}
