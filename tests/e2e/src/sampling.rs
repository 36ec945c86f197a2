//! How many nodes are at work at one moment, and whether a result is lost, as a watch of the NodeImages sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{Config, Event, watcher};
use larder_api::contract::{Answer, answer};
use larder_api::{ImagePullJob, NodeImage};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Cluster, SOON};

/// A watch that counts.
pub struct Orders {
    task: JoinHandle<()>,
    seen: watch::Receiver<Seen>,
}

/// What a watch has seen so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The highest number of orders without a result at one moment.
    pub most: usize,
    /// Orders that have their result now.
    pub answered: usize,
    /// Successes that were taken back: node and entry.
    pub lost: BTreeSet<String>,
}

/// Asks again at once when a watch broke off: what happens right after an outage is what is looked for.
struct AtOnce;

impl Iterator for AtOnce {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(50))
    }
}

impl Backoff for AtOnce {
    fn reset(&mut self) {}
}

/// A watch of one job's status.
pub struct Results {
    task: JoinHandle<()>,
    back: watch::Receiver<Vec<String>>,
}

impl Results {
    /// Every step of the counters that went backwards.
    pub fn taken_back(self) -> Vec<String> {
        self.task.abort();
        self.back.borrow().clone()
    }
}

/// The entries of a NodeImage that count, each as `name:tag`, and how each was answered.
type Entries = BTreeMap<String, Answer>;

impl Cluster {
    /// Counts, from now on, on how many nodes this entry waits for its result.
    pub fn watch_orders(&self, name: &str, tag: &str) -> Orders {
        let (name, tag) = (name.to_owned(), tag.to_owned());
        self.watch(move |object| one(object, &name, &tag))
    }

    /// Counts, from now on, how many orders of the whole fleet wait for their results.
    pub fn watch_all_orders(&self) -> Orders {
        self.watch(|object| entries(object).flat_map(|(name, tag)| one(object, name, tag)).collect())
    }

    /// Notes, from now on, whether a job's results ever go backwards.
    pub fn watch_results(&self, job: &str) -> Results {
        let (sender, back) = watch::channel(Vec::new());
        let jobs = Api::<ImagePullJob>::namespaced(self.client(), "default");
        let only = Config::default().fields(&format!("metadata.name={job}"));
        let task = tokio::spawn(async move {
            let mut last = (0, 0);
            let mut events = pin!(watcher(jobs, only).backoff(AtOnce));
            while let Some(event) = events.next().await {
                let Ok(Event::Apply(job) | Event::InitApply(job)) = event else {
                    continue;
                };
                let status = job.status.unwrap_or_default();
                let now = (status.succeeded, status.failed);
                if now.0 < last.0 || now.1 < last.1 {
                    sender.send_modify(|back| back.push(format!("from {last:?} to {now:?}")));
                }
                last = now;
            }
        });
        Results { task, back }
    }

    fn watch(&self, entries: impl Fn(&NodeImage) -> Entries + Send + 'static) -> Orders {
        let (sender, seen) = watch::channel(Seen::default());
        let orders = Api::<NodeImage>::all(self.client());
        let task = tokio::spawn(async move {
            let mut known = BTreeMap::<String, Entries>::new();
            let mut events = pin!(watcher(orders, Config::default()).backoff(AtOnce));
            // While a list comes in, what was known of the other nodes is of another time.
            let mut listing = true;
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Init) => listing = true,
                    Ok(Event::InitDone) => listing = false,
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        let node = object.metadata.name.clone().unwrap_or_default();
                        let now = entries(&object);
                        let before = known.insert(node.clone(), now).unwrap_or_default();
                        let lost = taken_back(&before, &known[&node]).map(|entry| format!("{node} {entry}"));
                        sender.send_modify(|seen| seen.lost.extend(lost));
                    }
                    Ok(Event::Delete(object)) => drop(known.remove(&object.metadata.name.unwrap_or_default())),
                    // It goes on where it broke off, or begins anew with a list.
                    Err(_) => {}
                }
                if !listing {
                    let all = known.values().flat_map(BTreeMap::values);
                    let orders = all.clone().count();
                    let answered = all.filter(|answer| is_final(**answer)).count();
                    sender.send_modify(|seen| {
                        seen.most = seen.most.max(orders - answered);
                        seen.answered = answered;
                    });
                }
            }
        });
        Orders { task, seen }
    }
}

impl Orders {
    /// What was seen until this many orders have their results.
    pub async fn end(mut self, answered: usize) -> Seen {
        let seen = tokio::time::timeout(SOON, self.seen.wait_for(|seen| seen.answered == answered)).await;
        let seen = seen.unwrap().unwrap().clone();
        self.task.abort();
        seen
    }
}

fn entries(object: &NodeImage) -> impl Iterator<Item = (&str, &str)> {
    object
        .spec
        .images
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |entry| (name.as_str(), entry.tag.as_str())))
}

fn one(object: &NodeImage, name: &str, tag: &str) -> Entries {
    let answered = |version| answer(version, object.result(name, tag));
    object
        .entry(name, tag)
        .map(|entry| (format!("{name}:{tag}"), answered(entry.version)))
        .into_iter()
        .collect()
}

fn is_final(answer: Answer) -> bool {
    matches!(answer, Answer::Succeeded | Answer::Failed(_))
}

/// Entries that had succeeded and now, still there, have not.
fn taken_back<'a>(before: &'a Entries, now: &'a Entries) -> impl Iterator<Item = &'a String> {
    before
        .iter()
        .filter(|(_, answer)| matches!(answer, Answer::Succeeded))
        .filter(|(entry, _)| {
            now.get(*entry)
                .is_some_and(|answer| !matches!(answer, Answer::Succeeded))
        })
        .map(|(entry, _)| entry)
}
