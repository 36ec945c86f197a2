//! The line of jobs that wait for the whole fleet's limit. Who is next is decided in [`larder_planner::fleet`]; here the line is
//! kept, and whoever is first in it is woken when a slot is free.

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::fleet::{self, Share};
use larder_planner::order::claim_view;

use super::{Index, JobId};

impl Index {
    /// Counts what jobs have of the fleet's slots before any of them takes more: a new leader finds orders of all jobs there.
    pub(super) fn count_all_slots(&mut self, now: Timestamp) {
        if self.limits.max_active_pulls.is_none() {
            return;
        }
        let jobs: Vec<JobId> = self.agenda.jobs().collect();
        for id in jobs {
            if self.jobs.get(&id).is_some_and(|record| record.unread) {
                self.read_prepull(id, now);
            }
            self.count_slots(id);
        }
    }

    fn count_slots(&mut self, id: JobId) {
        let Some(running) = self.running(id) else {
            return;
        };
        let (known, sees_pods) = (running.progress.counts().slots, running.sees_pods);
        // A job that does not know its pods yet does not know its nodes either; what it handed out before may be on its way.
        let slots = if sees_pods {
            known
        } else {
            known.max(self.open_orders(id))
        };
        let Some(running) = self.running_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut running.share.slots, slots);
        self.slots = self.slots - before + slots;
    }

    /// Nodes that have a job's order and no result.
    fn open_orders(&mut self, id: JobId) -> usize {
        let Some(running) = self.running(id) else {
            return 0;
        };
        let campaign = running.progress.campaign();
        let (uid, image) = (campaign.uid().to_owned(), campaign.image.clone());
        let named = self.nodes.iter().filter(|(_, record)| record.image.may_name(&uid));
        let named: Vec<NodeKey> = named.map(|(node, _)| node.clone()).collect();
        let mut open = 0;
        for node in named {
            let object = self.nodes.get(&node).and_then(|record| record.living_image());
            let claim = object.and_then(|object| claim_view(object, &image, &uid));
            open += usize::from(claim.is_some_and(|claim| !claim.is_final()));
            self.fold(&node);
        }
        open
    }

    /// How many slots a job may take now.
    pub(super) fn allowance(&self, id: JobId) -> usize {
        let (Some(max), Some(running)) = (self.limits.max_active_pulls, self.running(id)) else {
            return usize::MAX;
        };
        let own = Share {
            slots: running.progress.counts().slots,
            ..running.share
        };
        let taken = self.slots - running.share.slots + own.slots;
        let next = self.starved.iter().find(|(_, job)| *job != id);
        fleet::allowance(max.get().saturating_sub(taken), own, next.map(|(share, _)| *share))
    }

    /// Counts what a job has after its turn, and gives it the place in the line that follows from it.
    pub(super) fn line_up(&mut self, id: JobId, served: bool) {
        self.leave_line(id);
        self.count_slots(id);
        self.served += u64::from(served);
        let (now, limited) = (self.served, self.limits.max_active_pulls.is_some());
        let Some(running) = self.running_mut(id) else {
            return;
        };
        if served {
            running.share.served = now;
        }
        let share = running.share;
        let waits = limited && running.progress.wants_allowance();
        running.waits_as = waits.then_some(share);
        if waits {
            self.starved.insert((share, id));
        }
        self.call_next();
    }

    /// The job does not wait for the fleet's limit.
    pub(super) fn leave_line(&mut self, id: JobId) {
        let place = self.running_mut(id).and_then(|running| running.waits_as.take());
        if let Some(place) = place {
            self.starved.remove(&(place, id));
        }
    }

    /// The whole fleet's count no longer holds a job's slots.
    pub(super) fn forget_slots(&mut self, id: JobId) {
        self.leave_line(id);
        let Some(running) = self.running_mut(id) else {
            return;
        };
        let slots = std::mem::take(&mut running.share.slots);
        self.slots -= slots;
        self.call_next();
    }

    /// Whoever is first in line is looked at if a slot is free. It takes something or leaves the line, and then calls the next:
    /// so this ends.
    pub(super) fn call_next(&mut self) {
        let room = self.limits.max_active_pulls.is_some_and(|max| self.slots < max.get());
        if room && let Some((_, first)) = self.starved.first() {
            self.agenda.job(*first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use serde_json::json;

    use super::*;
    use crate::facts::NodeFacts;
    use crate::index::{Kind, Limits, Order, Seen};

    /// Three jobs for all of twelve nodes, and at most so many pulls at once.
    fn stage(max: usize) -> (Index, Timestamp) {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let mut index = Index::new(Limits {
            max_active_pulls: NonZeroUsize::new(max),
            pause: false,
            serve_jobs: true,
        });
        let nodes = (0..12).map(|number| format!("node-{number:02}"));
        let (mut facts, mut images) = (Vec::new(), Vec::new());
        for name in nodes {
            let object = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
                "metadata": {"name": name, "uid": name, "generation": 1}, "spec": {}, "status": {"desired": 0},
            });
            images.push(Seen::NodeImage(Box::new(serde_json::from_value(object).unwrap())));
            facts.push(Seen::Node(NodeFacts {
                name,
                ready: true,
                ..NodeFacts::default()
            }));
        }
        let jobs = ["a", "b", "c"].map(|name| {
            let job = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
                "metadata": {"name": name, "namespace": "team", "uid": name},
                "spec": {"image": name, "parallelism": 8},
            });
            Seen::Job(Box::new(serde_json::from_value(job).unwrap()))
        });
        see_all(&mut index, [facts, images, jobs.into()], now);
        (index, now)
    }

    /// Shows the index these Nodes, NodeImages and jobs as lists of everything there is, and lets it decide.
    fn see_all(index: &mut Index, [facts, images, jobs]: [Vec<Seen>; 3], now: Timestamp) {
        let seen = [
            (Kind::Node, facts),
            (Kind::NodeImage, images),
            (Kind::Job, jobs),
            (Kind::PrePull, vec![]),
            (Kind::List, vec![]),
        ];
        for (kind, seen) in seen {
            let all = [Seen::Begin].into_iter().chain(seen).chain([Seen::Complete]);
            all.for_each(|seen| index.observe(&kind, seen, now));
        }
        index.decide(now);
    }

    /// A NodeImage with the order of job a, which the node has come this far with.
    fn ordered(phase: &str, now: Timestamp) -> Seen {
        let image = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
            "metadata": {"name": "node", "uid": "node", "generation": 1},
            "spec": {"images": {"a": {"tags": [{
                "tag": "1", "createdAt": now.to_string(), "pullPolicy": {"ttlSecondsAfterFinished": 9},
                "ownerReferences": [{"uid": "a", "kind": "ImagePullJob"}], "claims": [{"uid": "a", "version": 0}],
            }]}}},
            "status": {"imageStatuses": {"a": {"tags": [{"tag": "1", "version": 0, "phase": phase}]}}},
        });
        Seen::NodeImage(Box::new(serde_json::from_value(image).unwrap()))
    }

    /// One slot. A new leader finds an order of job a, which selects by pods that are not known yet; job b wants another node.
    fn stage_with_unknown_pods() -> (Index, Timestamp) {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let mut index = Index::new(Limits {
            max_active_pulls: NonZeroUsize::new(1),
            pause: false,
            serve_jobs: true,
        });
        let facts = ["node", "other"].map(|name| {
            Seen::Node(NodeFacts {
                name: name.to_owned(),
                ready: true,
                ..NodeFacts::default()
            })
        });
        let other = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage",
            "metadata": {"name": "other", "uid": "other", "generation": 1}, "spec": {}, "status": {"desired": 0},
        });
        let other = Seen::NodeImage(Box::new(serde_json::from_value(other).unwrap()));
        let job = |name: &str, more: serde_json::Value| {
            let mut job = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
                "metadata": {"name": name, "namespace": "team", "uid": name}, "spec": more,
            });
            job["spec"]["image"] = json!(format!("{name}:1"));
            Seen::Job(Box::new(serde_json::from_value(job).unwrap()))
        };
        let jobs = vec![
            job("a", json!({"podSelector": {"matchLabels": {"app": "web"}}})),
            job("b", json!({"selector": {"names": ["other"]}})),
        ];
        see_all(
            &mut index,
            [facts.into(), vec![ordered("Pulling", now), other], jobs],
            now,
        );
        (index, now)
    }

    #[test]
    fn orders_of_a_job_that_waits_for_its_pods_count() {
        let (mut index, now) = stage_with_unknown_pods();
        assert_eq!(slots(&index), [1, 0]);
        assert!(index.nodes["node"].image.is_folded(), "whoever looks folds up again");
        // None of its pods runs any more: it leaves the node, and holds its slot until the order is gone.
        let pods = Kind::Pods("team".to_owned());
        for seen in [Seen::Begin, Seen::Complete] {
            index.observe(&pods, seen, now);
        }
        index.decide(now);
        assert_eq!(slots(&index).iter().sum::<usize>(), 1);
    }

    #[test]
    fn an_order_that_is_on_its_way_counts_when_pods_are_unknown_again() {
        let (mut index, _) = stage(3);
        assert_eq!(slots(&index), [3, 0, 0]);
        // It was handed out, and no NodeImage shows it yet.
        index.running_mut(0).unwrap().sees_pods = false;
        index.count_slots(0);
        assert_eq!(slots(&index), [3, 0, 0]);
    }

    #[test]
    fn an_order_that_ends_while_its_job_waits_for_pods_makes_room() {
        let (mut index, now) = stage_with_unknown_pods();
        index.observe(&Kind::NodeImage, ordered("Succeeded", now), now);
        index.decide(now);
        assert_eq!(slots(&index), [0, 1]);
    }

    /// Slots of each job.
    fn slots(index: &Index) -> Vec<usize> {
        let slots = |job: &JobId| index.running(*job).map_or(0, |running| running.share.slots);
        index.jobs.keys().map(slots).collect()
    }

    /// One order of a job is refused: its slot is free again, and the node is tried much later.
    fn give_back(index: &mut Index, job: JobId, now: Timestamp) {
        let holds = |order: &Order| matches!(order, Order::Claim { .. });
        let mut nodes = index.nodes.iter();
        let (node, _) = nodes
            .find(|(_, record)| record.orders.get(&job).is_some_and(holds))
            .unwrap();
        let node = node.clone();
        let refused = larder_planner::progress::Outcome::Refused(larder_model::Reason::Internal);
        index.settle(&node, &[job], refused, now);
        index.decide(now);
    }

    #[test]
    fn slots_that_come_free_go_to_whoever_has_the_fewest() {
        let (mut index, now) = stage(6);
        assert_eq!(slots(&index), [6, 0, 0], "whoever was there first took what was free");
        for _ in 0..4 {
            give_back(&mut index, 0, now);
            assert_eq!(slots(&index).iter().sum::<usize>(), 6);
        }
        assert_eq!(slots(&index), [2, 2, 2]);
        give_back(&mut index, 1, now);
        assert_eq!(slots(&index), [2, 2, 2], "it has the fewest now, and gets it back");
    }

    #[test]
    fn a_single_slot_goes_round() {
        let (mut index, now) = stage(1);
        let mut turns = Vec::new();
        for _ in 0..6 {
            let holder = slots(&index).iter().position(|slots| *slots == 1).unwrap();
            turns.push(holder);
            give_back(&mut index, JobId::try_from(holder).unwrap(), now);
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_stream_of_new_jobs_does_not_overtake_those_that_wait() {
        let (mut index, now) = stage(1);
        let mut turns = Vec::new();
        for number in 0..8 {
            let job = json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
                "metadata": {"name": format!("new-{number}"), "namespace": "team", "uid": format!("new-{number}")},
                "spec": {"image": format!("new-{number}")},
            });
            index.see_job(serde_json::from_value(job).unwrap(), now);
            index.decide(now);
            let holder = slots(&index).iter().position(|slots| *slots == 1).unwrap();
            turns.push(holder);
            give_back(&mut index, JobId::try_from(holder).unwrap(), now);
        }
        assert_eq!(turns, [0, 1, 2, 3, 0, 4, 1, 5]);
    }

    #[test]
    fn what_a_job_leaves_behind_is_given_to_the_next_ones() {
        let (mut index, now) = stage(6);
        let key = index.jobs[&0].key.clone();
        index.job_gone(&key, now);
        index.decide(now);
        assert_eq!(slots(&index), [3, 3]);
        assert_eq!(index.starved.len(), 2);
    }
}
