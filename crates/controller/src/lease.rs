//! Leader election: of all replicas of the controller, one writes.
//!
//! [`state`] decides, `store` reads and writes the Lease, and [`Elector::run`] joins them: one call at a time, each
//! with a time limit. The result is a [`watch`] channel of [`Leadership`]. Whoever writes asks it right before each write
//! ([`Leadership::may_write`]) and gives the write no more than five seconds.
//!
//! It must not know what the leader does.

pub mod state;
mod store;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::state::{Election, LeaseStep, Swap};
pub use self::state::{Leadership, Timing};
use self::store::{Store, StoreError};
use crate::error_chain::chain;

/// Which Lease it is about, and who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidacy {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub lease: String,
    /// Our name in it: another one for every process, restarts included.
    pub identity: String,
    /// How long things take.
    pub timing: Timing,
}

/// One candidate: the state machine, the Lease and those who listen.
pub struct Elector {
    candidacy: Candidacy,
    election: Election,
    store: Store,
    acquired: Option<jiff::Timestamp>,
    leadership: watch::Sender<Leadership>,
    trouble: watch::Sender<Option<String>>,
}

impl Elector {
    /// A candidate that begins when [`Elector::run`] is called.
    pub fn new(client: Client, candidacy: Candidacy) -> Self {
        let leases = Api::<Lease>::namespaced(client, &candidacy.namespace);
        Self {
            election: Election::new(candidacy.identity.clone(), candidacy.timing, Instant::now()),
            store: Store::new(leases, candidacy.lease.clone(), candidacy.timing.duration),
            acquired: None,
            leadership: watch::Sender::new(Leadership::Follower),
            trouble: watch::Sender::new(Some("nobody looked at the lease yet".to_owned())),
            candidacy,
        }
    }

    /// Whether this replica leads, from now on.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// What keeps this replica from reading or writing the Lease, from now on; None if nothing does.
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// Takes part until `stop`, then gives the lease back. Call `stop` when nothing writes any more.
    pub async fn run(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            match self.election.next(Instant::now()) {
                LeaseStep::Wait(until) => {
                    self.publish();
                    tokio::select! {
                        () = sleep_until(until) => {}
                        () = stop.cancelled() => {}
                    }
                }
                LeaseStep::Look => self.look().await,
                LeaseStep::Acquire(swap) | LeaseStep::Renew(swap) => self.swap(&swap).await,
            }
            self.publish();
        }
        self.release().await;
    }

    async fn look(&mut self) {
        let answer = self.store.look().await;
        let now = Instant::now();
        match answer {
            Ok(lease) => {
                self.trouble.send_replace(None);
                self.election.saw(now, lease);
            }
            Err(error) => self.failed(now, &error),
        }
    }

    async fn swap(&mut self, swap: &Swap) {
        let sent = Instant::now();
        let acquired = self.acquired.filter(|_| !swap.changes_hands);
        let answer = self.store.swap(swap, acquired).await;
        let now = Instant::now();
        match answer {
            Ok(record) => {
                self.trouble.send_replace(None);
                self.acquired = acquired.or_else(|| Some(store::now()));
                self.election.wrote(sent, now, record);
            }
            Err(StoreError::Conflict) => self.election.refused(now),
            Err(error) => self.failed(now, &error),
        }
    }

    fn failed(&mut self, now: Instant, error: &StoreError) {
        self.election.failed(now);
        let error = chain(error);
        // A lasting failure is logged once.
        self.trouble.send_if_modified(|before| {
            let new = before.as_ref() != Some(&error);
            if new {
                let Candidacy { namespace, lease, .. } = &self.candidacy;
                warn!(
                    namespace,
                    lease, error, "the lease cannot be read or written; trying again"
                );
                *before = Some(error);
            }
            new
        });
    }

    fn publish(&self) {
        let leadership = self.election.leadership(Instant::now());
        self.leadership.send_if_modified(|before| {
            let changed = *before != leadership;
            if before.term() != leadership.term() {
                let identity = &self.candidacy.identity;
                if let Some(term) = leadership.term() {
                    info!(identity, term, "this replica leads");
                } else {
                    info!(identity, "this replica no longer leads");
                }
            }
            *before = leadership;
            changed
        });
    }

    /// Gives the lease back, so that the next one need not wait for it to expire. If that fails, it expires.
    async fn release(mut self) {
        let swap = self.election.release();
        self.publish();
        if let Some(swap) = swap
            && let Err(error) = self.store.swap(&swap, None).await
        {
            warn!(
                error = chain(&error),
                "the lease could not be given back; it expires by itself"
            );
        }
    }
}
