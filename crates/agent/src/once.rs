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
use crate::conduct::{self, Channels, Conductor, Tools};
use crate::credentials::Credentials;
use crate::inventory;
use crate::ledger::{Ledger, LedgerError};
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::slot::RuntimeSlot;
use crate::wants::{Given, Orders};

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
    /// Pulls at once.
    pub at_once: usize,
    /// Where the runtime's `hosts.toml` files lie.
    pub hosts_dir: Option<PathBuf>,
}

/// Where each image stands, in the order of the request.
pub type Standings = Vec<(ImageRef, ImageTagStatus)>;

/// Pulls the images, tells every change, and returns how it ended. Dropping the future gives everything up.
pub async fn pull(
    request: &Request,
    runtime: Arc<dyn ImageRuntime>,
    credentials: Credentials,
    mut tell: impl FnMut(&Standings),
) -> Result<Standings, LedgerError> {
    let clock = Clock::of_this_machine();
    let settings = Settings {
        max_pulls: request.at_once,
        hosts_dir: request.hosts_dir.clone(),
        ..Settings::new(this_node())
    };
    let (ledger, memory) = Ledger::open(None, &clock).await?;
    let (_orders, orders) = watch::channel(Orders::Given(Given {
        order: OrderId {
            uid: "once".to_owned(),
            generation: 1,
        },
        spec: Arc::new(spec(request)),
        said: None,
    }));
    let (picture_sender, picture) = watch::channel(None);
    let (shown_sender, mut shown) = watch::channel(None);
    let slot = RuntimeSlot::default();
    slot.fill(Arc::clone(&runtime));
    let refresh = Arc::new(Notify::new());
    let stop = CancellationToken::new();
    let _stops_with_us = stop.clone().drop_guard();
    let mut tasks = JoinSet::new();
    tasks.spawn(inventory::run(
        inventory::Inventory {
            source: RuntimeSource::Given(runtime),
            slot: slot.clone(),
            picture: picture_sender,
            refresh: Arc::clone(&refresh),
            clock: clock.clone(),
            pin_share: settings.pin_share,
            health: Health::default().part("runtime"),
        },
        stop.clone(),
    ));
    let tools = Tools {
        settings: Arc::new(settings),
        slot,
        credentials: Arc::new(credentials),
        clock,
        metrics: Metrics::default(),
        ledger,
        refresh,
    };
    let channels = Channels {
        orders,
        picture,
        shown: shown_sender,
    };
    tasks.spawn(conduct::run(Conductor::new(tools, channels, memory), stop.clone()));
    loop {
        let status = shown
            .borrow_and_update()
            .as_ref()
            .map(|wanted| wanted.shown.status.image_statuses.clone());
        let standings: Standings = request
            .images
            .iter()
            .map(|image| {
                let tags = status
                    .as_ref()
                    .and_then(|images| images.get(image.name()))
                    .map(|image| &image.tags);
                let tag = tags.and_then(|tags| tags.iter().find(|tag| tag.tag == image.tag_text()));
                (image.clone(), tag.cloned().unwrap_or_default())
            })
            .collect();
        tell(&standings);
        if standings.iter().all(|(_, status)| status.phase().is_final()) || shown.changed().await.is_err() {
            return Ok(standings);
        }
    }
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
