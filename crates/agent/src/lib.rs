//! The agent of one node: turns its NodeImage into images in its runtime, and tells the truth about it.
//!
//! It is a handful of tasks. Each owns what it works on; they are joined by channels and by nothing else.
//!
//! | task | takes in | gives out |
//! |---|---|---|
//! | `desired` | the watch on its own NodeImage; the ledger while the API is away | `watch` of orders → `conduct`; `watch` of what the API shows → `report` |
//! | `inventory` | the runtime's images, names, filesystem and events | `watch` of pictures → `conduct` |
//! | `conduct` | orders, pictures, ends of pulls, the passage of time | steps, carried out as tasks (`pull`, `dry_run`, `pin`); `watch` of what to show → `report`; the ledger |
//! | `report` | what to show, what the API shows | status patches: the only writes to the API |
//!
//! All decisions are made by [`larder_planner::node`], in `conduct`. [`once`] runs the same machinery without any API.
//!
//! What holds at all times: a runtime or API that is away is waited for; nothing here ends the process; no anonymous pull
//! takes the place of missing credentials; success is said when the runtime shows the image; no decision looks at the wall
//! clock; no secret is logged.

mod checks;
mod clock;
mod conduct;
mod credentials;
mod desired;
mod dry_run;
mod foreign;
mod inventory;
mod ledger;
mod metrics;
mod node_images;
mod pin;
mod pull;
mod report;
mod settings;
mod slot;
mod state_dir;
mod survey;
mod wants;

pub mod once;

pub use clock::Clock;
pub use credentials::Credentials;
pub use metrics::Metrics;
pub use settings::{RuntimePlace, Settings};
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
use crate::slot::RuntimeSlot;

/// What an agent works with, made by whoever starts it.
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
    let Parts {
        client,
        runtime,
        credentials,
        clock,
        metrics,
        health,
    } = parts;
    let settings = Arc::new(settings);
    let (ledger, memory) = Ledger::open(settings.state_dir.as_deref(), &clock).await?;
    let slot = RuntimeSlot::default();
    let refresh = Arc::new(Notify::new());
    let (orders_sender, orders) = watch::channel(memory.orders.clone());
    let (seen_sender, seen) = watch::channel(None);
    let (picture_sender, picture) = watch::channel(None);
    let (shown_sender, shown) = watch::channel(None);
    let api = node_images::NodeImages::new(client, settings.node.as_str());

    let mut tasks = JoinSet::new();
    tasks.spawn(
        desired::run(
            desired::Desired {
                api: api.clone(),
                orders: orders_sender,
                seen: seen_sender,
                silence: settings.silence,
                health: health.part("api"),
            },
            stop.clone(),
        )
        .in_current_span(),
    );
    tasks.spawn(
        inventory::run(
            inventory::Inventory {
                source: runtime,
                slot: slot.clone(),
                picture: picture_sender,
                refresh: Arc::clone(&refresh),
                clock: clock.clone(),
                pin_share: settings.pin_share,
                health: health.part("runtime"),
            },
            stop.clone(),
        )
        .in_current_span(),
    );
    tasks.spawn(
        report::run(
            report::Report {
                api,
                shown,
                seen,
                detector: DuplicateDetector::new(AgentIdentity {
                    instance: Some(instance_name("larder-agent")),
                    public_key: credentials.public_key(),
                }),
                clock: clock.clone(),
                metrics: metrics.clone(),
                health: health.part("status"),
            },
            stop.clone(),
        )
        .in_current_span(),
    );
    tasks.spawn(
        conduct::run(
            conduct::Conductor::new(
                conduct::Tools {
                    settings,
                    slot,
                    credentials: Arc::new(credentials),
                    clock,
                    metrics,
                    ledger,
                    refresh,
                },
                conduct::Channels {
                    orders,
                    picture,
                    shown: shown_sender,
                },
                memory,
            ),
            stop.clone(),
        )
        .in_current_span(),
    );
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() || !stop.is_cancelled() {
            tracing::error!(error = ?ended.err(), "a task of the agent ended, which is a bug; the agent stops");
            health.part("agent").dead("a task ended; restart the agent");
            outcome = Err(AgentError::TaskEnded);
            stop.cancel();
        }
    }
    outcome
}
