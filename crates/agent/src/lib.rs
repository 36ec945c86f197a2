//! The agent of one node: turns its NodeImage into images in its runtime, and tells the truth about it.
//!
//! It is a handful of tasks. Each owns what it works on; they are joined by channels and by nothing else.
//!
//! | task | takes in | gives out |
//! |---|---|---|
//! | `desired` | the watch on its own NodeImage; the ledger while the API is away | `watch` of orders → `driver`; `watch` of what the API shows → `report` |
//! | `inventory` | the runtime's images, names, filesystem and events | `watch` of snapshots → `driver` |
//! | `driver` | orders, snapshots, ends of pulls, the passage of time | steps, carried out as tasks (`pull`, `dry_run`, `pin`); `watch` of what to show → `report`; the ledger |
//! | `report` | what to show, what the API shows | status patches: the only writes to the API |
//!
//! All decisions are made by [`larder_planner::node`], in `driver`. [`once`] runs the same machinery without any API.
//!
//! What holds at all times: a runtime or API that is away is waited for; nothing here ends the process; no anonymous pull
//! takes the place of missing credentials; success is said when the runtime shows the image; no decision looks at the wall
//! clock; no secret is logged.

mod checks;
mod clock;
mod credentials;
mod desired;
mod driver;
mod dry_run;
mod inventory;
mod ledger;
mod messages;
mod metrics;
mod node_images;
mod pin;
mod platform_check;
mod pull;
mod registry_probe;
mod report;
mod runtime_handle;
mod settings;
mod state_dir;

pub mod once;

pub use clock::Clock;
pub use credentials::Credentials;
pub use metrics::Metrics;
pub use settings::{FetchMode, RuntimePlace, Settings};
pub use state_dir::{StateError, node_key};

use std::sync::Arc;

use larder_planner::node::{AgentIdentity, DuplicateDetector};
use larder_runtime::ImageRuntime;
use larder_telemetry::{Health, instance_name};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::ledger::Ledger;
pub use crate::ledger::LedgerError;
use crate::runtime_handle::RuntimeHandle;

/// What an agent works with. Its caller makes all of it.
pub struct Parts {
    /// Access to the API.
    pub client: kube::Client,
    /// The runtime itself, or where to find it.
    pub runtime: RuntimeSource,
    /// Credentials: the node's key and its plugins.
    pub credentials: Credentials,
    /// Time.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Readiness.
    pub health: Health,
}

/// Where the runtime comes from.
pub enum RuntimeSource {
    /// It is there.
    Given(Arc<dyn ImageRuntime>),
    /// It is connected to as soon as it answers.
    Found(RuntimePlace),
}

/// Why an agent ended early.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its state cannot be kept on disk.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// It cannot go on in this process.
    #[error("a task of the agent ended, which is a bug; the log has the details")]
    TaskEnded,
}

/// Runs the agent until `stop`. Every line that it logs names its node: one process may run several agents.
pub async fn run(settings: Settings, parts: Parts, stop: CancellationToken) -> Result<(), AgentError> {
    let span = tracing::error_span!("agent", node = %settings.node);
    run_tasks(settings, parts, stop).instrument(span).await
}

async fn run_tasks(settings: Settings, parts: Parts, stop: CancellationToken) -> Result<(), AgentError> {
    let health = parts.health.clone();
    let tasks = start_tasks(settings, parts, &stop).await?;
    supervise(tasks, &health, &stop).await
}

/// Opens the ledger, connects the tasks by channels and starts them.
async fn start_tasks(settings: Settings, parts: Parts, stop: &CancellationToken) -> Result<JoinSet<()>, LedgerError> {
    let settings = Arc::new(settings);
    let (ledger, memory) = Ledger::open(settings.state_dir.as_deref(), &parts.clock).await?;
    let (orders_sender, orders) = watch::channel(memory.orders.clone());
    let (observed_sender, observed) = watch::channel(None);
    let (snapshot_sender, snapshot) = watch::channel(None);
    let (desired_status_sender, desired_status) = watch::channel(None);
    let api = node_images::NodeImages::new(parts.client, settings.node.as_str());
    let desired = desired::Desired {
        api: api.clone(),
        orders: orders_sender,
        observed: observed_sender,
        silence: settings.silence,
        health: parts.health.part("api"),
    };
    let report = report::Report {
        api,
        desired_status,
        observed,
        detector: DuplicateDetector::new(AgentIdentity {
            instance: Some(instance_name("larder-agent")),
            public_key: parts.credentials.public_key(),
        }),
        clock: parts.clock.clone(),
        metrics: parts.metrics.clone(),
        health: parts.health.part("status"),
    };
    let registry = driver::registry_client(&settings, &parts.credentials);
    let tools = driver::Tools {
        settings,
        runtime_handle: RuntimeHandle::default(),
        credentials: Arc::new(parts.credentials),
        clock: parts.clock,
        metrics: parts.metrics,
        ledger,
        registry,
        refresh: Arc::new(Notify::new()),
        owns_runtime: true,
    };
    let inventory = tools.inventory(parts.runtime, snapshot_sender, parts.health.part("runtime"));
    let channels = driver::Channels {
        orders,
        snapshot,
        desired_status: desired_status_sender,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(desired::run(desired, stop.clone()).in_current_span());
    tasks.spawn(report::run(report, stop.clone()).in_current_span());
    tasks.spawn(inventory::run(inventory, stop.clone()).in_current_span());
    tasks.spawn(driver::run(driver::Driver::new(tools, channels, memory), stop.clone()).in_current_span());
    Ok(tasks)
}

/// Waits for the end of all tasks. The first one that ends before `stop` stops the others.
async fn supervise(mut tasks: JoinSet<()>, health: &Health, stop: &CancellationToken) -> Result<(), AgentError> {
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() || !stop.is_cancelled() {
            tracing::error!(error = ?ended.err(), "a task of the agent ended, which is a bug; the agent stops");
            health.part("agent").dead("a task ended; restart the agent");
            result = Err(AgentError::TaskEnded);
            stop.cancel();
        }
    }
    result
}
