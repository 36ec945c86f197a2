//! What the Secrets of a job mean for it: whether it may hand out, which nodes wait, and which registries it has no login
//! for.

use std::collections::BTreeSet;

use jiff::Timestamp;
use larder_api::names::HAND_WRITTEN_SECRET_NAMESPACES;
use larder_planner::campaign::SecretScope;
use larder_planner::progress::Hold;
use larder_planner::secret::UnusableSecrets;
use larder_planner::{NodeKey, SecretRef};

use super::nodes::NodeRecord;
use super::secrets::{GOOD_FOR, LOOK_FOR_MISSING, SecretRead};
use super::{Engine, JobId};

impl Engine {
    /// Takes in what reading a Secret gave.
    pub fn secret_read(&mut self, secret: &SecretRef, read: SecretRead, now: Timestamp) {
        let news = self.secrets.was_read(secret, read, now);
        for job in self.jobs.that_use(secret) {
            // A Secret that is as it was is read again and again while a job waits for it, and looking at every node each
            // time would cost too much.
            if news {
                self.find_missing_logins(job);
                // A node that was denied may now be given something better.
                self.rescan(job, now);
            }
            self.queue.job(job);
        }
        if news && is_for_hand_written(&secret.namespace) {
            self.queue.nodes(&self.nodes.keys());
        }
    }

    /// Has a job's Secrets read where that is due, takes in which of them cannot be used, and says whether the job has to
    /// wait for them, and when to ask again.
    pub(super) fn check_secrets(&mut self, job: JobId, now: Timestamp) -> (Option<Hold>, Option<Timestamp>) {
        let (secrets, closed): (Vec<SecretRef>, Vec<SecretRef>) = self
            .jobs
            .secrets_of(job)
            .iter()
            .cloned()
            .partition(|secret| self.logins().may_use(job, secret));
        let recheck = self.recheck_denied(job, &secrets, now);
        let Some(running) = self.jobs.running(job) else {
            return (None, None);
        };
        let scope = running.progress.campaign().secret_scope;
        let hands_out =
            running.progress.wants_allowance() || (scope == SecretScope::Node && running.progress.is_held());
        let mut survey = self.secrets.survey(&secrets, hands_out, now);
        survey.unusable.missing.extend(closed);
        let incomplete = !survey.unusable.is_empty() || !survey.forbidden.is_empty() || survey.reading;
        let look_again = incomplete.then(|| now.checked_add(LOOK_FOR_MISSING).ok()).flatten();
        let hold = survey.hold(scope);
        self.set_unusable(job, survey.unusable, now);
        (hold, [recheck, look_again].into_iter().flatten().min())
    }

    /// Takes in which Secrets of a job cannot be used; nodes are shown to it again where that decides about them.
    pub(super) fn set_unusable(&mut self, job: JobId, unusable: UnusableSecrets, now: Timestamp) {
        let Some(running) = self.jobs.running_mut(job) else {
            return;
        };
        let changed = running.unusable != unusable;
        running.unusable = unusable;
        if changed && running.progress.campaign().secret_scope == SecretScope::Node {
            self.rescan(job, now);
        }
    }

    /// After a refusal the Secrets are read again, and only then is the refusal final.
    fn recheck_denied(&mut self, job: JobId, secrets: &[SecretRef], now: Timestamp) -> Option<Timestamp> {
        let denied = self.jobs.running(job)?.denied?;
        let again = self.secrets.ask_after(denied, secrets, now);
        if again.is_none() {
            self.jobs.running_mut(job)?.denied = None;
        }
        again
    }

    /// Has the Secrets of a node's hand-written entries read, and says when to look again. Entries that were denied try
    /// again by themselves when they are given other credentials.
    pub(super) fn read_hand_written_secrets(&mut self, node: &NodeKey, now: Timestamp) -> Option<Timestamp> {
        let record = self.nodes.get(node);
        let secrets = record.map(NodeRecord::hand_written_secrets).unwrap_or_default();
        let mut again: Option<Timestamp> = None;
        for secret in &secrets {
            if let Some(SecretRead::Present { .. }) = self.secrets.known(secret) {
                self.secrets.ask(secret, GOOD_FOR, now);
                continue;
            }
            let reading = self.secrets.ask(secret, LOOK_FOR_MISSING, now);
            let since = self.secrets.read_at(secret).filter(|_| !reading).unwrap_or(now);
            let next = since.checked_add(LOOK_FOR_MISSING).ok();
            again = [again, next].into_iter().flatten().min();
        }
        let denied = self.nodes.get(node).and_then(|record| record.denied);
        let recheck = denied.and_then(|denied| self.secrets.ask_after(denied, &secrets, now));
        if recheck.is_none()
            && let Some(record) = self.nodes.get_mut(node)
        {
            record.denied = None;
        }
        [again, recheck].into_iter().flatten().min()
    }

    pub(super) fn forget_unused_secrets(&mut self) {
        let jobs = self.jobs.running_ids().into_iter();
        let used: BTreeSet<SecretRef> = jobs.flat_map(|job| self.jobs.secrets_of(job)).cloned().collect();
        self.secrets
            .retain(|secret| used.contains(secret) || is_for_hand_written(&secret.namespace));
    }

    /// Takes in for which registries a job's Secrets hold no login. The job goes on without: an image may be public, and a
    /// node that is refused afterwards finds the cause in the job's status.
    pub(super) fn find_missing_logins(&mut self, job: JobId) {
        let missing = self.logins().missing(job);
        if let Some(running) = self.jobs.running_mut(job) {
            running.progress.lacks_logins(missing.into_iter().collect());
        }
    }
}

/// Whether hand-written entries may name Secrets of this namespace.
pub(super) fn is_for_hand_written(namespace: &str) -> bool {
    HAND_WRITTEN_SECRET_NAMESPACES.contains(&namespace)
}
