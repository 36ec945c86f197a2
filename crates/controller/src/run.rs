//! The controller as a whole: election, CRD check and core, started together and ended in order.
//!
//! | task | takes | gives |
//! |---|---|---|
//! | lease | the Lease | leadership |
//! | crds | the CRDs | whether they can hold what we write |
//! | permit | both | leadership, while the CRDs are fine |
//! | blocked jobs | leadership, the CRDs | to each job why nothing is done, while the CRDs are not fine |
//! | warm | permit, labelled workloads, restores | ImageListPullJobs, if it is switched on |
//! | core | permit, the cluster | orders, job status, Events; restores of etcd |
//!
//! On shutdown the core ends first, then the lease is given back: nobody leads before the last write is over. A task that
//! ends by itself ends the process, which is started anew by whoever started it.

use std::time::Duration;

use kube::Client;
use larder_telemetry::{Health, Registry};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::blocked_jobs;
use crate::core;
use crate::crd_check::{CrdState, watch_crds};
use crate::health::{self, Metrics};
use crate::lease::{Candidacy, Elector, Leadership, Timing};
use crate::permit;
use crate::settings::Settings;
use crate::warm;

/// The name of the Lease.
pub const LEASE: &str = "larder-controller";

/// A write of the core ends within five seconds, so the core does within a little more.
const CORE_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// One call to give the lease back.
const LEASE_ENDS_WITHIN: Duration = Duration::from_secs(6);

/// Without other replicas this one leads for longer than any process lives.
const FOR_EVER: Duration = Duration::from_hours(24 * 365 * 10);

/// Why the controller ended.
#[derive(Debug, Error)]
pub enum RunError {
    /// A task ended that should not have.
    #[error("the task `{task}` ended by itself")]
    Ended {
        /// Which one.
        task: &'static str,
        /// It panicked.
        source: Option<JoinError>,
    },
}

/// What the core is given.
pub struct CoreInputs {
    /// The cluster.
    pub client: Client,
    /// What is meant.
    pub settings: Settings,
    /// Where the core shows whether it works.
    pub health: Health,
    /// Asked right before each write.
    pub permit: watch::Receiver<Leadership>,
    /// Counts how often the core saw that etcd was restored from a copy, for whoever else watches.
    pub restores: watch::Sender<u64>,
    /// When this is cancelled: start no write, end those under way, return.
    pub stop: CancellationToken,
}

/// A controller, ready to run.
pub struct Controller {
    client: Client,
    settings: Settings,
    health: Health,
    metrics: Metrics,
    core_metrics: core::Metrics,
}

impl Controller {
    /// Nothing is sent yet. Parts appear in `health` and numbers in `registry` at once, so that both can be served before
    /// it runs.
    pub fn new(client: Client, settings: Settings, health: &Health, registry: &mut Registry) -> Self {
        Self {
            client,
            settings,
            health: health.clone(),
            metrics: Metrics::register(registry),
            core_metrics: core::Metrics::register(registry),
        }
    }

    /// Runs everything until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RunError> {
        let metrics = self.core_metrics.clone();
        self.run_around(|inputs| core::run(inputs, metrics), stop).await
    }

    /// Runs everything until `stop`, around a core that is started with what it needs.
    pub async fn run_around<F>(
        self,
        core: impl FnOnce(CoreInputs) -> F,
        stop: CancellationToken,
    ) -> Result<(), RunError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (crd_sender, crds) = watch::channel(CrdState::Unknown);
        let crds_stop = CancellationToken::new();
        let mut crd_task = tokio::spawn(watch_crds(self.client.clone(), crd_sender, crds_stop.clone()));
        let lease_stop = CancellationToken::new();
        let (leadership, mut lease_task) = self.elect(lease_stop.clone());
        let (permit_sender, permit) = watch::channel(Leadership::Follower);
        tokio::spawn(permit::join(leadership.clone(), crds.clone(), permit_sender));
        let blocked = blocked_jobs::explain(self.client.clone(), leadership.clone(), crds.clone(), crds_stop.clone());
        tokio::spawn(blocked);
        tokio::spawn(health::show_crds(crds, self.health.part("crds"), self.metrics.clone()));
        tokio::spawn(health::show_leadership(leadership, self.metrics));
        let core_stop = CancellationToken::new();
        let (restores_sender, restores) = watch::channel(0);
        let warm = || warm::run(self.client.clone(), permit.clone(), restores, core_stop.clone());
        let warm = self.settings.warm_workloads.then(|| tokio::spawn(warm()));
        let mut core_task = tokio::spawn(core(CoreInputs {
            client: self.client,
            settings: self.settings,
            health: self.health,
            permit,
            restores: restores_sender,
            stop: core_stop.clone(),
        }));

        let outcome = tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = &mut core_task => Err(by_itself("core", ended)),
            ended = &mut lease_task => Err(by_itself("lease", ended)),
            ended = &mut crd_task => Err(by_itself("crds", ended)),
        };

        info!("shutting down");
        core_stop.cancel();
        if let Some(warm) = warm {
            end("warm", warm, CORE_ENDS_WITHIN).await;
        }
        if end("core", core_task, CORE_ENDS_WITHIN).await {
            lease_stop.cancel();
            end("lease", lease_task, LEASE_ENDS_WITHIN).await;
        } else {
            // Writes of the core may still be under way: the lease has to expire before somebody else writes.
            lease_task.abort();
        }
        crds_stop.cancel();
        end("crds", crd_task, CORE_ENDS_WITHIN).await;
        outcome
    }

    /// Takes part in the election, or leads without one.
    fn elect(&self, stop: CancellationToken) -> (watch::Receiver<Leadership>, JoinHandle<()>) {
        if !self.settings.leader_elect {
            return lead_alone(stop);
        }
        let elector = Elector::new(
            self.client.clone(),
            Candidacy {
                namespace: self.settings.namespace.clone(),
                lease: LEASE.to_owned(),
                identity: self.settings.identity.clone(),
                timing: Timing::default(),
            },
        );
        tokio::spawn(health::show_lease(elector.trouble(), self.health.part("lease")));
        (elector.leadership(), tokio::spawn(elector.run(stop)))
    }
}

fn lead_alone(stop: CancellationToken) -> (watch::Receiver<Leadership>, JoinHandle<()>) {
    let (sender, leadership) = watch::channel(Leadership::Leader {
        term: 1,
        may_write_until: Instant::now() + FOR_EVER,
    });
    let task = tokio::spawn(async move {
        stop.cancelled().await;
        drop(sender);
    });
    (leadership, task)
}

fn by_itself(task: &'static str, ended: Result<(), JoinError>) -> RunError {
    RunError::Ended {
        task,
        source: ended.err(),
    }
}

/// Waits for a task that was told to end; says whether it did.
async fn end(task: &'static str, mut handle: JoinHandle<()>, within: Duration) -> bool {
    if handle.is_finished() {
        return true;
    }
    let ended = timeout(within, &mut handle).await.is_ok();
    if !ended {
        warn!(task, "a task did not end in time and is cut off");
        handle.abort();
    }
    ended
}

#[cfg(test)]
mod real_servers;
