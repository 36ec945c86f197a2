//! Everything the controller knows, and what follows from it. Synchronous: what was observed goes in, what is to be written
//! comes out, and nothing here waits for anything.
//!
//! | part | holds |
//! |---|---|
//! | [`nodes`] | per node: facts of its Node, its NodeImage, orders on their way, the write under way |
//! | [`jobs`] | per job: its campaign's progress, its Secrets, its status on its way |
//! | [`prepulls`] | what an ImagePrePullJob has beside that |
//! | [`lists`] | per ImageListPullJob: its children |
//! | [`pods`] | per namespace with an active podSelector job: where its pods run |
//! | [`agenda`] | who has to be looked at, at once or later |
//! | [`pass`] | who is looked at again although nothing happened |
//!
//! A change on one node touches that node and the jobs that select it, and nothing else.

mod agenda;
mod credentials;
mod desk;
mod explain;
mod jobs;
mod line;
mod lists;
mod logins;
mod nodes;
mod notes;
mod objects;
mod observe;
mod orders;
mod owners;
mod pass;
mod pods;
mod prepulls;
mod secrets;
mod shelf;
#[cfg(test)]
mod simulation;
mod statuses;
mod thrift;
mod turns;
mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use jiff::Timestamp;
use larder_planner::NodeKey;
use larder_planner::fleet::Share;

use self::agenda::Agenda;
pub(crate) use self::desk::{ObjectAction, ObjectAnswer, Target};
pub(crate) use self::jobs::JobKey;
use self::jobs::{JobId, JobRecord};
use self::lists::ListRecord;
use self::nodes::NodeRecord;
#[cfg(test)]
use self::nodes::Order;
pub(crate) use self::nodes::{NodeAction, NodeAnswer};
pub(crate) use self::notes::Note;
use self::notes::Notes;
pub(crate) use self::observe::{Kind, Seen};
use self::pass::Pass;
use self::pods::PodBook;
use self::secrets::Secrets;
pub(crate) use self::secrets::{SecretAnswer, SecretKey};

/// What holds for all jobs.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Pulls at once in the whole fleet.
    pub(crate) max_active_pulls: Option<NonZeroUsize>,
    /// Hand out nothing new.
    pub(crate) pause: bool,
    /// Serve jobs at all.
    pub(crate) serve_jobs: bool,
}

/// Everything the controller knows.
pub(crate) struct Index {
    limits: Limits,
    /// Boxed: the leaves of a tree are half empty, and a record is large.
    nodes: BTreeMap<NodeKey, Box<NodeRecord>>,
    jobs: BTreeMap<JobId, JobRecord>,
    /// Names and uids of jobs, and the number that the next one gets.
    job_keys: BTreeMap<JobKey, JobId>,
    job_uids: BTreeMap<String, JobId>,
    next_job: JobId,
    lists: BTreeMap<JobKey, ListRecord>,
    pods: BTreeMap<String, PodBook>,
    secrets: Secrets,
    notes: Notes,
    /// Jobs that were deleted, and when that was noticed: entries may still name them.
    departed: BTreeMap<String, Timestamp>,
    /// Kinds whose list is complete, and the keys that a list which is under way has shown so far.
    synced: BTreeSet<Kind>,
    listing: BTreeMap<Kind, BTreeSet<String>>,
    jobs_synced_at: Timestamp,
    agenda: Agenda,
    pass: Pass,
    /// Nodes whose NodeImage is unfolded, in the order in which they were looked at.
    unfolded: VecDeque<NodeKey>,
    /// CloudCore may write for all edge nodes.
    accepts_cloudcore: bool,
    /// Jobs that run.
    running: usize,
    /// Slots that all running jobs hold together.
    slots: usize,
    /// Jobs that would hand out more if the whole fleet's limit allowed it, whoever is next first.
    starved: BTreeSet<(Share, JobId)>,
    /// Hand-outs so far: the younger, the later the next one.
    served: u64,
}

impl Index {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            nodes: BTreeMap::new(),
            jobs: BTreeMap::new(),
            job_keys: BTreeMap::new(),
            job_uids: BTreeMap::new(),
            next_job: 0,
            lists: BTreeMap::new(),
            pods: BTreeMap::new(),
            secrets: Secrets::default(),
            notes: Notes::default(),
            departed: BTreeMap::new(),
            synced: BTreeSet::new(),
            listing: BTreeMap::new(),
            jobs_synced_at: Timestamp::UNIX_EPOCH,
            agenda: Agenda::default(),
            pass: Pass::default(),
            unfolded: VecDeque::new(),
            accepts_cloudcore: false,
            running: 0,
            slots: 0,
            starved: BTreeSet::new(),
            served: 0,
        }
    }

    /// From now on nothing is sealed for edge nodes: CloudCore may write in the name of each of them.
    pub(crate) fn accept_cloudcore(&mut self) {
        self.accepts_cloudcore = true;
    }

    /// Whether everything was seen once, so that decisions rest on the whole picture.
    pub(crate) fn is_complete(&self) -> bool {
        Kind::CLUSTER_WIDE.iter().all(|kind| self.synced.contains(kind))
    }

    /// Forgets what was under way and that anything was seen: somebody else may have led in between. The picture counts
    /// again when every kind was listed anew.
    pub(crate) fn begin_anew(&mut self) {
        self.synced.clear();
        self.listing.clear();
        for book in self.pods.values_mut() {
            book.synced = false;
        }
        for node in self.nodes.values_mut() {
            node.forget_orders();
        }
        for job in self.jobs.values_mut() {
            job.forget_progress();
        }
        for list in self.lists.values_mut() {
            list.desk = desk::Desk::default();
        }
        self.secrets = Secrets::default();
        self.starved.clear();
        (self.running, self.slots) = (0, 0);
    }

    /// Decides for everybody who has to be looked at.
    pub(crate) fn decide(&mut self, now: Timestamp) {
        if !self.is_complete() {
            return;
        }
        for node in self.agenda.due_nodes(now) {
            self.agenda.node(&node);
        }
        self.count_all_slots(now);
        while let Some(job) = self.agenda.next_job(now) {
            self.decide_job(job, now);
        }
        while let Some(list) = self.agenda.next_list(now) {
            self.decide_list(&list, now);
        }
    }

    /// When time alone changes something.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        if !self.is_complete() {
            return None;
        }
        self.agenda.next_wake()
    }

    /// Whether nodes wait to be looked at.
    pub(crate) fn has_nodes_to_look_at(&self) -> bool {
        self.is_complete() && self.agenda.has_nodes()
    }

    /// How much there is of everything.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            slots: self.slots,
            nodes: self.nodes.len(),
            running_jobs: self.running,
            dropped_notes: self.notes.dropped,
        }
    }
}

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) slots: usize,
    pub(crate) nodes: usize,
    pub(crate) running_jobs: usize,
    pub(crate) dropped_notes: u64,
}
