//! Claims in NodeImages: how many nodes are at work, and what becomes of results.

use std::collections::BTreeMap;

use larder_api::NodeImage;
use larder_api::contract::{Answer, answer};
use larder_model::Retry;

use super::{Checks, EXCUSED, Invariant};
use crate::api::{Api, Change, Key, Kind, Writer};
use crate::queue::Millis;
use crate::windows;
use crate::world::time_at;

/// A controller may not have seen a result that is not older: a watch was silent, and the request took its time. It may take
/// the order of a node back that it takes for unresponsive.
const UNSEEN: Millis = 60_000;

/// A request arrives within this time, or late.
const ON_ITS_WAY: Millis = 5_000;

/// A job's claims on one node, taken together.
#[derive(Clone, Copy, Debug, Default)]
struct Claimed {
    /// One has no final result.
    open: bool,
    /// All succeeded.
    succeeded: bool,
    /// One failed, and another try would end the same way.
    failed_for_good: bool,
    /// The sum of their versions.
    versions: i64,
}

/// What one NodeImage shows for each job.
fn claimed(image: &NodeImage) -> BTreeMap<&str, Claimed> {
    let mut jobs: BTreeMap<&str, Claimed> = BTreeMap::new();
    for (name, spec) in &image.spec.images {
        for entry in &spec.tags {
            let result = image.result(name, &entry.tag);
            for claim in &entry.claims {
                let said = answer(claim.version, result);
                let known = jobs.entry(claim.uid.as_str()).or_insert(Claimed {
                    succeeded: true,
                    ..Claimed::default()
                });
                known.open |= !matches!(said, Answer::Succeeded | Answer::Failed(_));
                known.succeeded &= said == Answer::Succeeded;
                known.failed_for_good |= matches!(said, Answer::Failed(reason) if reason.retry() == Retry::Permanent);
                known.versions += claim.version;
            }
        }
    }
    jobs
}

impl Checks {
    pub(super) fn node_image_changed(&mut self, change: &Change, now: Millis, api: &Api) {
        let Some(object) = change.object() else {
            return;
        };
        let node = object.key.name.as_str();
        let before = change.before.as_ref().and_then(|object| object.node_image.as_ref());
        let after = change.after.as_ref().and_then(|object| object.node_image.as_ref());
        let (before, after) = (
            before.map(claimed).unwrap_or_default(),
            after.map(claimed).unwrap_or_default(),
        );
        if change.after.is_none() || change.before.is_none() || change.writer == Writer::Other {
            self.disturb_node(node, now);
        }
        for (uid, was) in &before {
            let is = after.get(uid).copied();
            if was.succeeded {
                self.check_kept(uid, node, *was, is, change.writer, now);
            }
            self.keep_books(uid, node, is, now);
        }
        for (uid, is) in &after {
            let was = before.get(uid).copied().unwrap_or_default();
            self.keep_books(uid, node, Some(*is), now);
            if was.versions < is.versions {
                self.check_windows(uid, node, change.writer, now);
            }
            let again = before.contains_key(uid) && was.versions == is.versions;
            if is.open && !was.open && again {
                self.strays.insert(((*uid).to_owned(), node.to_owned()));
            } else if is.open && !was.open {
                self.check_limits(uid, node, change.writer, now, api);
            }
        }
    }

    fn keep_books(&mut self, uid: &str, node: &str, is: Option<Claimed>, now: Millis) {
        let is = is.unwrap_or_default();
        if is.open {
            let open = self.open.entry(uid.to_owned()).or_default();
            open.entry(node.to_owned()).or_insert(now);
        } else {
            if let Some(open) = self.open.get_mut(uid) {
                open.remove(node);
            }
            self.strays.remove(&(uid.to_owned(), node.to_owned()));
        }
        if is.succeeded || is.failed_for_good {
            self.over_on_node(uid, node);
        }
        if is.succeeded {
            let done = self.done.entry(uid.to_owned()).or_default();
            done.entry(node.to_owned()).or_insert(now);
        } else if let Some(done) = self.done.get_mut(uid) {
            done.remove(node);
        }
    }

    /// A node that has what a job asked for is not asked again.
    fn check_kept(&mut self, uid: &str, node: &str, was: Claimed, is: Option<Claimed>, writer: Writer, now: Millis) {
        let Some(info) = self.jobs.get(uid) else {
            return;
        };
        let excused = writer != (Writer::Controller { late: false })
            || info.is_never
            || info.has_ended
            || info.was_edited(now)
            || info.is_disturbed_by_pods(self.pods_moved, now)
            || self.is_disturbed(node, now);
        if excused {
            return;
        }
        let name = &info.name;
        let done = self.done.get(uid).and_then(|nodes| nodes.get(node));
        let is_news = done.is_none_or(|since| now < since + UNSEEN);
        match is {
            None if info.ends_by_itself() || is_news => {}
            None => {
                let what = format!("{node} had everything for {name}, and its claim is taken away");
                self.violate(Invariant::ResultLost, || what);
            }
            Some(is) if was.versions < is.versions => {
                let what = format!("{node} had everything for {name}, and is asked again");
                self.violate(Invariant::PulledTwice, || what);
            }
            Some(_) => {}
        }
    }

    /// A node is given work: windows of the job and of the fleet are open, or were when the request was sent.
    fn check_windows(&mut self, uid: &str, node: &str, writer: Writer, now: Millis) {
        let by_old_clock = now < self.clock_stepped + ON_ITS_WAY;
        let Some(info) = self
            .jobs
            .get(uid)
            .filter(|_| writer == (Writer::Controller { late: false }))
        else {
            return;
        };
        if info.was_edited(now) || by_old_clock {
            return;
        }
        let are_open = |now: Millis| {
            let time = time_at(now).checked_add(self.clock).unwrap_or_default();
            windows::are_open(&info.windows, time) && windows::are_open(&self.fleet.windows, time)
        };
        if !are_open(now) && !are_open(now.saturating_sub(ON_ITS_WAY)) {
            let what = format!(
                "{node} is given work for {} at {} + {}, outside {} of the job or {} of the fleet",
                info.name,
                time_at(now),
                self.clock,
                info.windows,
                self.fleet.windows
            );
            self.violate(Invariant::OutsideWindow, || what);
        }
    }

    /// One more node is at work.
    fn check_limits(&mut self, uid: &str, node: &str, writer: Writer, now: Millis, api: &Api) {
        match writer {
            Writer::Controller { late: false } => {}
            Writer::Controller { late: true } | Writer::Other => {
                self.strays.insert((uid.to_owned(), node.to_owned()));
                return;
            }
            Writer::Agent => return,
        }
        let Some(info) = self.jobs.get(uid).filter(|info| !info.has_ended) else {
            return;
        };
        let limit = info.limit(now);
        let at_work = self.handed_out(uid, now, api);
        if limit < at_work.len() {
            let what = format!("{}: {limit} nodes at a time, and the API shows {at_work:?}", info.name);
            self.violate(Invariant::Parallelism, || what);
            return;
        }
        let Some(max) = self.fleet.max_active_pulls else {
            return;
        };
        let running = self
            .jobs
            .iter()
            .filter(|(_, info)| !info.has_ended && !info.ends_by_itself());
        let uids: Vec<String> = running.map(|(uid, _)| uid.clone()).collect();
        let all: Vec<(String, Vec<String>)> = uids
            .into_iter()
            .map(|uid| (uid.clone(), self.handed_out(&uid, now, api)))
            .collect();
        if max < all.iter().map(|(_, nodes)| nodes.len()).sum() {
            let what = format!("{max} pulls in the whole fleet, and the API shows {all:?}");
            self.violate(Invariant::FleetLimit, || what);
        }
    }

    /// The nodes that the API shows at work for a job: its claims on images that it names now, without a final
    /// result, and since when.
    pub(super) fn at_work(&self, uid: &str, api: &Api) -> Vec<(String, Millis)> {
        let Some(info) = self.jobs.get(uid) else {
            return Vec::new();
        };
        let nodes = self.open.get(uid).into_iter().flatten();
        let is_open = |node: &String| {
            let object = api.get(&Key::cluster(Kind::NodeImage, node));
            let Some(image) = object.and_then(|object| object.node_image.as_ref()) else {
                return false;
            };
            let mut entries = info
                .images
                .iter()
                .filter_map(|(name, tag)| Some((name, image.entry(name, tag)?)));
            entries.any(|(name, entry)| {
                let version = entry
                    .claims
                    .iter()
                    .find(|claim| claim.uid == uid)
                    .map(|claim| claim.version);
                let said = version.map(|version| answer(version, image.result(name, &entry.tag)));
                said.is_some_and(|said| !matches!(said, Answer::Succeeded | Answer::Failed(_)))
            })
        };
        nodes
            .filter(|(node, _)| is_open(node))
            .map(|(node, since)| (node.clone(), *since))
            .collect()
    }

    /// Those of them that the controller answers for. A node of an ImagePrePullJob whose time is over counts no more, nor
    /// does one that the job may no longer select.
    fn handed_out(&self, uid: &str, now: Millis, api: &Api) -> Vec<String> {
        let Some(info) = self.jobs.get(uid) else {
            return Vec::new();
        };
        let times_out = info.times_out_after;
        // An order that was on its way when the clock stepped has the time of before.
        let stepped = self.clock_stepped + ON_ITS_WAY;
        let in_time = |since: Millis| times_out.is_none_or(|after| now < since + after && stepped < since);
        let mut nodes = self.at_work(uid, api);
        nodes.retain(|(node, since)| {
            let is_stray = self.strays.contains(&(uid.to_owned(), node.clone()));
            let changed = [info.edited_at(), info.by_pods.then_some(self.pods_moved)].into_iter();
            let mut changed = changed.chain([self.disturbed_nodes.get(node).copied()]).flatten();
            let is_left_out = changed.any(|at| *since <= at && now < at + EXCUSED);
            in_time(*since) && !is_stray && !is_left_out
        });
        nodes.into_iter().map(|(node, _)| node).collect()
    }
}
