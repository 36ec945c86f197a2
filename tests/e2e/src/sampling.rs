//! How many nodes are at work at one moment, as a watch of the NodeImages sees it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use larder_api::NodeImage;
use larder_api::contract::{Answer, answer};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Cluster;

/// A watch that counts.
pub struct Orders {
    task: JoinHandle<()>,
    most: watch::Receiver<usize>,
}

impl Cluster {
    /// Counts, from now on, on how many nodes this entry waits for its result.
    pub fn watch_orders(&self, name: &str, tag: &str) -> Orders {
        let (sender, most) = watch::channel(0);
        let orders = Api::<NodeImage>::all(self.client());
        let (name, tag) = (name.to_owned(), tag.to_owned());
        let task = tokio::spawn(async move {
            let mut open = BTreeMap::new();
            let mut events = pin!(watcher(orders, Config::default()).default_backoff());
            // While a list comes in, what was known of the other nodes is of another time.
            let mut listing = true;
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Init) => {
                        listing = true;
                        open.clear();
                    }
                    Ok(Event::InitDone) => listing = false,
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        let node = object.metadata.name.clone().unwrap_or_default();
                        open.insert(node, is_open(&object, &name, &tag));
                    }
                    Ok(Event::Delete(object)) => drop(open.remove(&object.metadata.name.unwrap_or_default())),
                    Err(_) => listing = true,
                }
                if !listing {
                    let count = open.values().filter(|open| **open).count();
                    sender.send_modify(|most| *most = (*most).max(count));
                }
            }
        });
        Orders { task, most }
    }
}

impl Orders {
    /// The highest number seen so far; waits for the first order if there was none yet.
    pub async fn most_at_once(mut self, within: Duration) -> usize {
        let seen = tokio::time::timeout(within, self.most.wait_for(|most| *most > 0)).await;
        let most = *seen.unwrap().unwrap();
        self.task.abort();
        most
    }
}

fn is_open(object: &NodeImage, name: &str, tag: &str) -> bool {
    let Some(entry) = object.entry(name, tag) else {
        return false;
    };
    let answered = answer(entry.version, object.result(name, tag));
    !matches!(answered, Answer::Succeeded | Answer::Failed(_))
}
