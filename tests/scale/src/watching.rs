//! When the API showed what, by one watch over all NodeImages: what anybody with `kubectl get --watch` would see.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client, ResourceExt as _};
use larder_api::NodeImage;
use larder_model::{ImageRef, Phase};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// A watch that notes down moments.
pub struct Watching {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Default)]
struct Seen {
    /// Nodes whose agent has said something.
    answering: BTreeSet<String>,
    /// By image: when each node first showed that it is there.
    results: HashMap<String, HashMap<String, Instant>>,
}

impl Watching {
    /// Begins to watch.
    pub fn start(client: Client) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(follow(client, Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Waits until so many nodes have said something.
    pub async fn answering(&self, count: usize, limit: Duration) {
        self.until(limit, "agents to answer", |seen| count <= seen.answering.len())
            .await;
    }

    /// Waits until so many nodes show that an image is there, and gives back when each did.
    pub async fn results(&self, image: &ImageRef, count: usize, limit: Duration) -> HashMap<String, Instant> {
        let key = image.familiar();
        self.until(limit, "results", |seen| {
            count <= seen.results.get(&key).map_or(0, HashMap::len)
        })
        .await;
        self.shared.lock().results[&key].clone()
    }

    async fn until(&self, limit: Duration, what: &str, is: impl Fn(&Seen) -> bool) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if is(&self.shared.lock()) {
                    return;
                }
                changed.await;
            }
        };
        let waited = timeout(limit, waiting).await;
        assert!(
            waited.is_ok(),
            "waited for {what} in vain: {}",
            self.shared.lock().text()
        );
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn text(&self) -> String {
        let results: Vec<_> = self.results.iter().map(|(image, nodes)| (image, nodes.len())).collect();
        format!("{} agents answer, results: {results:?}", self.answering.len())
    }

    fn take(&mut self, object: &NodeImage, now: Instant) {
        let Some(status) = &object.status else {
            return;
        };
        let name = object.name_any();
        if status.agent.is_some() {
            self.answering.insert(name.clone());
        }
        for (image, results) in &status.image_statuses {
            for tag in results.tags.iter().filter(|tag| tag.phase() == Phase::Succeeded) {
                let image = ImageRef::from_parts(image, &tag.tag).unwrap().familiar();
                let nodes = self.results.entry(image).or_default();
                nodes.entry(name.clone()).or_insert(now);
            }
        }
    }
}

async fn follow(client: Client, shared: Arc<Shared>) {
    let api = Api::<NodeImage>::all(client);
    let objects = watcher(api, Config::default()).default_backoff().applied_objects();
    let mut objects = pin!(objects);
    while let Some(object) = objects.next().await {
        let now = Instant::now();
        if let Ok(object) = object {
            shared.lock().take(&object, now);
            shared.changed.notify_waiters();
        }
    }
}
