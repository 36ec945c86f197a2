//! Tells each job why nothing is done while the controller may not work: OpenKruise serves the same kinds, or the CRDs
//! cannot hold what Larder writes.
//!
//! Two controllers must not write one status in turns. An Event is safe whoever serves the job, so every job that has not
//! ended gets one, at once. A status is written only if nobody began it within [`GRACE`], only on the version that was read,
//! and once for each sentence: if other software replaces it later, it stays replaced (see `planner::not_served`).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, Resource as _, ResourceExt as _};
use larder_planner::not_served::{StatusFields, status_to_write};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::clock;
use crate::crd_check::CrdState;
use crate::kinds::written_kinds;
use crate::lease::Leadership;
use crate::run::LEASE;

/// Whoever serves a job has begun its status by then.
const GRACE: Duration = Duration::from_secs(10);

/// A call takes no longer.
const CALL: Duration = Duration::from_secs(5);

/// Objects in one page of a list.
const PAGE: u32 = 100;

/// An Event's note takes 1024 bytes.
const NOTE: usize = 1_000;

/// Waits for the controller to be blocked, tells every job, and begins anew when the reason changes, until `stop`.
pub(crate) async fn explain(
    client: Client,
    mut leadership: watch::Receiver<Leadership>,
    mut crds: watch::Receiver<CrdState>,
    stop: CancellationToken,
) {
    loop {
        let why = blocked(&leadership.borrow_and_update(), &crds.borrow_and_update());
        let told = async {
            match &why {
                Some(why) => tell(&client, why).await,
                None => std::future::pending().await,
            }
        };
        let changed = async {
            loop {
                let changed = tokio::select! {
                    changed = leadership.changed() => changed,
                    changed = crds.changed() => changed,
                };
                let now = blocked(&leadership.borrow(), &crds.borrow());
                if changed.is_err() || now != why {
                    return changed;
                }
            }
        };
        tokio::select! {
            () = told => {}
            changed = changed => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Why nothing is done, if this replica is the one to say so.
fn blocked(leadership: &Leadership, crds: &CrdState) -> Option<String> {
    match (leadership, crds) {
        (Leadership::Leader { .. }, CrdState::Wrong(why)) => Some(why.clone()),
        _ => None,
    }
}

/// A job whose status is looked at when its time has come.
struct Later {
    resource: ApiResource,
    fields: StatusFields,
    namespace: String,
    name: String,
}

/// Tells every job that there is or comes; does not end.
async fn tell(client: &Client, why: &str) {
    let jobs = written_kinds().map(|(resource, fields)| {
        let jobs = Api::<DynamicObject>::all_with(client.clone(), &resource);
        let objects = watcher(jobs, Config::default().page_size(PAGE));
        let objects = objects.default_backoff().applied_objects();
        objects.map(move |object| (resource.clone(), fields, object)).boxed()
    });
    let mut jobs = pin!(stream::select_all(jobs));
    let mut told: BTreeSet<String> = BTreeSet::new();
    let mut later: BTreeMap<(Instant, String), Later> = BTreeMap::new();
    loop {
        let due = later.first_key_value().map(|((moment, _), _)| *moment);
        tokio::select! {
            job = jobs.next() => match job {
                Some((resource, fields, Ok(object))) => {
                    let uid = object.uid().unwrap_or_default();
                    if has_ended(&object) || !told.insert(uid.clone()) {
                        continue;
                    }
                    write_event(client, &resource, &object, why).await;
                    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                    later.insert((Instant::now() + GRACE, uid), Later { resource, fields, namespace, name });
                }
                Some((resource, _, Err(error))) => debug!(kind = resource.kind, %error, "jobs cannot be watched"),
                None => return std::future::pending().await,
            },
            () = wait(due) => {
                if let Some((_, job)) = later.pop_first() {
                    write_status(client, &job, why).await;
                }
            }
        }
    }
}

async fn wait(due: Option<Instant>) {
    match due {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn has_ended(job: &DynamicObject) -> bool {
    let status = &job.data["status"];
    let finished = ["completionTime", "completionTimestamp"].iter();
    job.metadata.deletion_timestamp.is_some() || finished.into_iter().any(|field| !status[*field].is_null())
}

async fn write_event(client: &Client, resource: &ApiResource, job: &DynamicObject, why: &str) {
    let reporter = Reporter {
        controller: LEASE.to_owned(),
        instance: None,
    };
    let event = Event {
        type_: EventType::Warning,
        reason: "NotServed".to_owned(),
        note: Some(
            format!("Larder does not serve this job: {why}")
                .chars()
                .take(NOTE)
                .collect(),
        ),
        action: "Pull".to_owned(),
        secondary: None,
    };
    let recorder = Recorder::new(client.clone(), reporter);
    let published = timeout(CALL, recorder.publish(&event, &job.object_ref(resource))).await;
    if let Ok(Err(error)) = published {
        debug!(%error, "an Event could not be written");
    }
}

/// Writes the status of a job that nobody has begun. Another write in between makes this one fail, and it is not repeated:
/// somebody serves the job.
async fn write_status(client: &Client, job: &Later, why: &str) {
    let Later { resource, name, .. } = job;
    let jobs = match job.namespace.as_str() {
        "" => Api::<DynamicObject>::all_with(client.clone(), resource),
        namespace => Api::namespaced_with(client.clone(), namespace, resource),
    };
    let Ok(Ok(Some(object))) = timeout(CALL, jobs.get_opt(name)).await else {
        return;
    };
    let status = object.data.get("status");
    let generation = object.metadata.generation;
    let Some(status) = status_to_write(status, job.fields, generation, why, clock::now()) else {
        return;
    };
    let (version, uid) = (&object.metadata.resource_version, &object.metadata.uid);
    let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version, "uid": uid }, "status": status }));
    let parameters = PatchParams::default();
    if let Ok(Err(error)) = timeout(CALL, jobs.patch_status(name, &parameters, &patch)).await {
        debug!(job = name, %error, "a job could not be told why nothing is done");
    }
}
