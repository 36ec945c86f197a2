//! Leases keep what is being fetched from containerd's garbage collection.
//!
//! Each try makes a lease of its own: what a killed agent leaves behind is there for the next try. Leases of an image go
//! when CRI has pulled it, when a failure makes another try useless or the disk is full, and when nothing orders the image
//! any more ([`Leases::sweep`]). As a last resort they end by themselves after a day.
//!
//! The agent and `larder pull` may fetch at the same time, and neither knows whether the other still runs. So each ends
//! leases of its own kind only.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use larder_model::{Digest, ImageRef, Reason, Retry};
use larder_runtime_proto::containerd::services::leases::v1::{
    CreateRequest, DeleteRequest, Lease as HeldLease, ListRequest, leases_client::LeasesClient,
};
use tonic::{Request, metadata::MetadataValue, transport::Channel};
use tracing::{info, warn};

use super::{
    filter,
    services::{Services, absent_is_none, scoped},
};
use crate::{FetchOwner, RuntimeError, RuntimeText};

/// Label that says which manifest a lease is for. Its presence makes a lease ours.
const MANIFEST: &str = "larder.local/fetch";

/// Label that says for which image, by its full name.
const IMAGE: &str = "larder.local/fetch-image";

/// Label that says which kind of process made a lease.
const OWNER: &str = "larder.local/fetch-owner";

/// Label by which containerd ends a lease.
const EXPIRE: &str = "containerd.io/gc.expire";

/// As long as containerd itself keeps downloads that nobody continues.
const LIFETIME: Duration = Duration::from_hours(24);

/// No machine that runs this has an earlier clock, unless it does not know the time. A lease that ends by such a clock
/// would end the moment the clock is set.
const EARLIEST: i64 = 1_735_689_600; // 2025-01-01

/// The leases that this process holds, by their names.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Mutex<BTreeSet<String>>>);

/// A lease under which content is written.
pub(super) struct Lease {
    held: Leases,
    services: Services,
    owner: FetchOwner,
    manifest: Digest,
    id: String,
}

impl Leases {
    pub(super) async fn create(
        &self,
        services: &Services,
        owner: FetchOwner,
        image: &ImageRef,
        manifest: &Digest,
    ) -> Result<Lease, RuntimeError> {
        let now = now();
        let id = format!("larder-fetch-{}-{}", &manifest.hex()[..16], now.as_nanosecond());
        let mut labels: HashMap<String, String> = [
            (MANIFEST.to_owned(), manifest.to_string()),
            (IMAGE.to_owned(), image.canonical()),
            (OWNER.to_owned(), owner.as_str().to_owned()),
        ]
        .into();
        labels.extend(expiry(now).map(|expiry| (EXPIRE.to_owned(), expiry)));
        let request = CreateRequest { id: id.clone(), labels };
        // A lease that is held is not swept, so it counts before it is there.
        self.lock().insert(id.clone());
        let lease = Lease {
            held: self.clone(),
            services: services.clone(),
            owner,
            manifest: manifest.clone(),
            id,
        };
        services
            .link
            .ask("create a lease", leases(services).create(scoped(request)))
            .await?;
        Ok(lease)
    }

    /// Ends leases that earlier agents left behind, of images that are not among these. What they kept leaves the disk.
    pub(super) async fn sweep(&self, services: &Services, wanted: &BTreeSet<ImageRef>) -> Result<(), RuntimeError> {
        let wanted: BTreeSet<String> = wanted.iter().map(ImageRef::canonical).collect();
        let ours = list(services, filter::label(MANIFEST)).await?;
        let now = now();
        let unwanted = ours
            .into_iter()
            .filter(|lease| is_left_behind(lease, &wanted, now) && !self.lock().contains(&lease.id));
        let unwanted: Vec<String> = unwanted.map(|lease| lease.id).collect();
        if !unwanted.is_empty() {
            info!(
                leases = unwanted.len(),
                "throwing away what was fetched for images that nothing orders any more"
            );
        }
        delete(services, unwanted, true).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held.lock().remove(&self.id);
    }
}

impl Lease {
    /// Adds the lease to a call: what the call creates belongs to it.
    pub(super) fn cover<T>(&self, mut request: Request<T>) -> Result<Request<T>, RuntimeError> {
        let value = MetadataValue::try_from(self.id.as_str()).map_err(|error| RuntimeError::Unsupported {
            doing: "use a lease".to_owned(),
            why: RuntimeText::new(error.to_string()).to_string(),
        })?;
        request.metadata_mut().insert("containerd-lease", value);
        Ok(request)
    }

    /// Ends this lease and those of earlier tries. The image keeps its content itself now.
    pub(super) async fn release(&self) {
        self.end(false).await;
    }

    /// The pull failed. What was fetched stays for the next try, unless there will be none, it may be wrong, or the disk is
    /// full.
    pub(super) async fn pull_failed(&self, reason: Reason) {
        if !is_worth_keeping(reason) {
            self.end(true).await;
        }
    }

    /// Ends this lease and those of earlier tries, but none of a pull of this process that runs. `at_once` waits until the space is free.
    async fn end(&self, at_once: bool) {
        let ended = async {
            let found = list(&self.services, filter::label_is(MANIFEST, &self.manifest.to_string())).await?;
            let of_this_kind = found.into_iter().filter(|lease| owner(lease) == self.owner);
            let ids: Vec<String> = of_this_kind
                .map(|lease| lease.id)
                .filter(|id| *id == self.id || !self.held.lock().contains(id))
                .collect();
            delete(&self.services, ids, at_once).await
        };
        if let Err(error) = ended.await {
            warn!(
                error = error.text(),
                "a lease was left behind; it ends by itself within a day"
            );
        }
    }
}

/// Whether the next try should find what was fetched.
const fn is_worth_keeping(reason: Reason) -> bool {
    !matches!(reason.retry(), Retry::Permanent) && !matches!(reason, Reason::NoSpace | Reason::InvalidImage)
}

/// Whether the agent ends a lease that it does not hold.
fn is_left_behind(lease: &HeldLease, wanted: &BTreeSet<String>, now: jiff::Timestamp) -> bool {
    match owner(lease) {
        FetchOwner::Agent => !lease.labels.get(IMAGE).is_some_and(|image| wanted.contains(image)),
        // A command may still run. containerd ends its lease after a day, unless the clock did not know the time.
        FetchOwner::Command => {
            let created = lease.created_at.map_or(0, |at| at.seconds);
            let is_old = now.as_second().saturating_sub(created) >= LIFETIME.as_secs().cast_signed();
            !lease.labels.contains_key(EXPIRE) && is_old
        }
    }
}

fn owner(lease: &HeldLease) -> FetchOwner {
    let command = FetchOwner::Command.as_str();
    match lease.labels.get(OWNER) {
        Some(owner) if owner == command => FetchOwner::Command,
        _ => FetchOwner::Agent,
    }
}

/// When a lease ends, for a clock that knows the time.
fn expiry(now: jiff::Timestamp) -> Option<String> {
    let end = now.checked_add(LIFETIME).ok()?;
    (EARLIEST <= now.as_second()).then(|| end.to_string())
}

async fn list(services: &Services, filter: String) -> Result<Vec<HeldLease>, RuntimeError> {
    let mut client = leases(services);
    let request = ListRequest { filters: vec![filter] };
    let found = services.link.ask("list leases", client.list(scoped(request))).await?;
    Ok(found.leases)
}

async fn delete(services: &Services, ids: Vec<String>, at_once: bool) -> Result<(), RuntimeError> {
    let mut client = leases(services);
    let last = ids.len().saturating_sub(1);
    for (place, id) in ids.into_iter().enumerate() {
        let request = DeleteRequest {
            id,
            // One garbage collection, after the last.
            sync: at_once && place == last,
        };
        let exchange = async { absent_is_none(client.delete(scoped(request)).await).map(drop) };
        services.link.bounded("delete a lease", exchange).await?;
    }
    Ok(())
}

fn leases(services: &Services) -> LeasesClient<Channel> {
    LeasesClient::new(services.link.channel())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a lease ends by the wall clock that containerd on the same machine reads"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::try_from(SystemTime::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::another_try_may_help(Reason::Unreachable, true)]
    #[case::containerd_is_away(Reason::RuntimeDown, true)]
    #[case::registry_asks_for_time(Reason::RateLimited, true)]
    #[case::full_disk(Reason::NoSpace, false)]
    #[case::wrong_bytes(Reason::InvalidImage, false)]
    #[case::no_such_image(Reason::NotFound, false)]
    #[case::no_rights(Reason::AuthDenied, false)]
    fn what_stays_for_the_next_try(#[case] reason: Reason, #[case] want: bool) {
        assert_eq!(is_worth_keeping(reason), want);
    }

    #[rstest]
    #[case::agents_unwanted(&[(IMAGE, "a"), (OWNER, "agent")], 0, true)]
    #[case::agents_wanted(&[(IMAGE, "b"), (OWNER, "agent")], 0, false)]
    #[case::of_an_older_version(&[(IMAGE, "a")], 0, true)]
    #[case::commands(&[(IMAGE, "a"), (OWNER, "command")], 3_600, false)]
    #[case::commands_that_containerd_ends(&[(IMAGE, "a"), (OWNER, "command"), (EXPIRE, "then")], 90_000, false)]
    #[case::commands_that_containerd_does_not_end(&[(IMAGE, "a"), (OWNER, "command")], 90_000, true)]
    fn what_the_agent_ends(#[case] labels: &[(&str, &str)], #[case] age: i64, #[case] want: bool) {
        let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let lease = HeldLease {
            labels: labels.collect(),
            created_at: Some(prost_types::Timestamp {
                seconds: now.as_second() - age,
                nanos: 0,
            }),
            ..HeldLease::default()
        };
        assert_eq!(is_left_behind(&lease, &["b".to_owned()].into(), now), want);
    }

    #[rstest]
    #[case::a_board_that_booted_in_1970("1970-01-01T00:01:00Z", None)]
    #[case::today("2026-11-16T07:00:00Z", Some("2026-11-17T07:00:00Z"))]
    fn leases_end_by_a_clock_that_knows_the_time(#[case] now: jiff::Timestamp, #[case] want: Option<&str>) {
        assert_eq!(expiry(now).as_deref(), want);
    }
}
