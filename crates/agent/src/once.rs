//! The same machinery once, on this machine, without any API: what `larder pull` does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use larder_api::contract::OrderId;
use larder_api::node_image::{ImageSpec, ImageTagPullPolicy, ImageTagSpec, ImageTagStatus, NodeImageSpec};
use larder_model::{ImageRef, NodeName, PullWhen};
use larder_runtime::ImageRuntime;
use larder_telemetry::Health;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::RuntimeSource;
use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::driver::{self, Channels, Driver, Tools};
use crate::inventory;
use crate::ledger::{Ledger, LedgerError};
use crate::messages::{DesiredStatus, Given, Orders};
use crate::metrics::Metrics;
use crate::runtime_handle::RuntimeHandle;
use crate::settings::Settings;

/// What to pull, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The images.
    pub images: Vec<ImageRef>,
    /// Whether an image that is there will do.
    pub when: PullWhen,
    /// Seconds for one try.
    pub timeout_seconds: i32,
    /// Tries after the first.
    pub retries: i32,
    /// Maximum concurrent pulls.
    pub max_pulls: usize,
    /// Where the runtime's `hosts.toml` files lie.
    pub hosts_dir: Option<PathBuf>,
}

/// The status of each image, in the order of the request.
pub type TagStatuses = Vec<(ImageRef, ImageTagStatus)>;

/// Pulls the images, passes every change to `tell`, and returns the final statuses. Dropping the future cancels all pulls.
pub async fn pull(
    request: &Request,
    runtime: Arc<dyn ImageRuntime>,
    credentials: Credentials,
    mut tell: impl FnMut(&TagStatuses),
) -> Result<TagStatuses, LedgerError> {
    let stop = CancellationToken::new();
    let _stops_with_this_future = stop.clone().drop_guard();
    // The sender of the orders lives as long as the driver.
    let (_orders_sender, orders) = watch::channel(orders(request));
    let (_tasks, mut desired_status) = start(request, runtime, credentials, orders, &stop).await?;
    loop {
        let statuses = statuses(request, desired_status.borrow_and_update().as_ref());
        tell(&statuses);
        let ended = statuses.iter().all(|(_, status)| status.phase().is_final());
        if ended || desired_status.changed().await.is_err() {
            return Ok(statuses);
        }
    }
}

/// Starts the agent's tasks without those that need an API.
async fn start(
    request: &Request,
    runtime: Arc<dyn ImageRuntime>,
    credentials: Credentials,
    orders: watch::Receiver<Orders>,
    stop: &CancellationToken,
) -> Result<(JoinSet<()>, watch::Receiver<Option<DesiredStatus>>), LedgerError> {
    let clock = Clock::of_this_machine();
    let settings = Settings {
        max_pulls: request.max_pulls,
        hosts_dir: request.hosts_dir.clone(),
        ..Settings::new(this_node())
    };
    let (ledger, memory) = Ledger::open(None, &clock).await?;
    let runtime_handle = RuntimeHandle::default();
    runtime_handle.fill(Arc::clone(&runtime));
    let registry = driver::registry_client(&settings, &credentials);
    let tools = Tools {
        settings: Arc::new(settings),
        runtime_handle,
        credentials: Arc::new(credentials),
        clock,
        metrics: Metrics::default(),
        ledger,
        registry,
        refresh: Arc::new(Notify::new()),
        // An agent may fetch at the same time.
        owns_runtime: false,
    };
    let (snapshot_sender, snapshot) = watch::channel(None);
    let (desired_status_sender, desired_status) = watch::channel(None);
    let health = Health::default().part("runtime");
    let inventory = tools.inventory(RuntimeSource::Given(runtime), snapshot_sender, health);
    let channels = Channels {
        orders,
        snapshot,
        desired_status: desired_status_sender,
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(inventory::run(inventory, stop.clone()));
    tasks.spawn(driver::run(Driver::new(tools, channels, memory), stop.clone()));
    Ok((tasks, desired_status))
}

fn orders(request: &Request) -> Orders {
    Orders::Given(Given {
        order: OrderId {
            uid: "once".to_owned(),
            generation: 1,
        },
        spec: Arc::new(spec(request)),
        said: None,
    })
}

fn statuses(request: &Request, desired: Option<&DesiredStatus>) -> TagStatuses {
    let status = |image: &ImageRef| {
        let results = &desired?.entries.status.image_statuses;
        let tags = &results.get(image.name())?.tags;
        tags.iter().find(|tag| tag.tag == image.tag_text()).cloned()
    };
    let images = request.images.iter();
    images
        .map(|image| (image.clone(), status(image).unwrap_or_default()))
        .collect()
}

fn spec(request: &Request) -> NodeImageSpec {
    let mut images: BTreeMap<String, ImageSpec> = BTreeMap::new();
    for (place, image) in request.images.iter().enumerate() {
        let tag = ImageTagSpec {
            tag: image.tag_text(),
            position: i32::try_from(place).ok(),
            image_pull_policy: Some(request.when.as_str().to_owned()),
            pull_policy: ImageTagPullPolicy {
                timeout_seconds: request.timeout_seconds,
                backoff_limit: request.retries,
                ..ImageTagPullPolicy::default()
            },
            ..ImageTagSpec::default()
        };
        let tags = &mut images.entry(image.name().to_owned()).or_default().tags;
        if tags.iter().all(|known| known.tag != tag.tag) {
            tags.push(tag);
        }
    }
    NodeImageSpec {
        images,
        ..NodeImageSpec::default()
    }
}

#[expect(clippy::expect_used, reason = "invariant: the text is a node name")]
fn this_node() -> NodeName {
    NodeName::parse("this-machine").expect("invariant: a plain word is a node name")
}
