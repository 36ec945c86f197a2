//! Clean-up in the background: objects whose owners are gone, deletions that wait for dependents, namespaces that are
//! being emptied, Events that are old, and namespaces that lack their ServiceAccount.
//!
//! Driven by the clean-up tasks that changes leave behind, never by scanning everything; only Events are looked through, once
//! in a while, for their age.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    admit::store_or_remove,
    bootstrap::default_service_account,
    error::ApiError,
    handlers::{Deletion, decide_deletion},
    object::{self, Object},
    plane::Plane,
    store::{Change, CleanupTask, ReadView, State},
    stored::{Key, ObjectName, Owner, Shared},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// How often Events are looked through.
const SWEEP: Duration = Duration::from_secs(30);

/// Runs until the server stops.
pub(crate) async fn run(plane: Arc<Plane>, event_ttl: Duration) {
    let mut sweeps = interval(SWEEP);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            cleanup_tasks = plane.store.cleanup_tasks() => {
                for task in cleanup_tasks {
                    if let Err(error) = carry_out(&plane, &task).await {
                        tracing::warn!(error = &error as &dyn std::error::Error, ?task, "clean-up failed");
                    }
                }
            }
            _ = sweeps.tick() => expire_events(&plane, event_ttl).await,
            () = plane.stop.cancelled() => return,
        }
    }
}

async fn carry_out(plane: &Plane, task: &CleanupTask) -> Result<(), ApiError> {
    match task {
        CleanupTask::Object(key) => object(plane, key).await,
        CleanupTask::Namespace(name) => namespace(plane, name).await,
        CleanupTask::ServiceAccount(namespace) => default_service_account(plane, namespace).await,
    }
}

async fn object(plane: &Plane, key: &Key) -> Result<(), ApiError> {
    let Some(stored) = plane.store.get(key) else {
        return Ok(());
    };
    if stored.deleting {
        if has_finalizer(&stored, ORPHAN) {
            return orphan_dependents(plane, key, &stored).await;
        }
        if has_finalizer(&stored, FOREGROUND) {
            return delete_dependents(plane, key, &stored).await;
        }
    }
    if stored.owners.is_empty() || stored.deleting {
        return Ok(());
    }
    let gone = plane.store.inspect(|state| gone_owners(plane, state, &stored));
    if gone.is_empty() {
        Ok(())
    } else if gone.len() < stored.owners.len() {
        drop_owners(plane, key, gone).await
    } else {
        delete(plane, key, Some(stored.uid.clone())).await
    }
}

/// Uids of owners that do not exist. An owner of a kind that is not served cannot be judged and counts as there.
fn gone_owners(plane: &Plane, state: &State, stored: &Shared) -> Vec<String> {
    let is_gone = |owner: &Owner| {
        let Some(resource) = plane.store.registry().of_kind(&owner.group, &owner.kind) else {
            return false;
        };
        let namespace = if resource.namespaced {
            stored.name.namespace.as_str()
        } else {
            ""
        };
        state.by_uid(&owner.uid).is_none_or(|key| {
            key.resource != resource.id || key.name.namespace != namespace || key.name.name != owner.name
        })
    };
    stored
        .owners
        .iter()
        .filter(|owner| is_gone(owner))
        .map(|owner| owner.uid.clone())
        .collect()
}

async fn orphan_dependents(plane: &Plane, key: &Key, stored: &Shared) -> Result<(), ApiError> {
    for dependent in plane.store.inspect(|state| state.dependents(&stored.uid)) {
        drop_owners(plane, &dependent, vec![stored.uid.clone()]).await?;
    }
    drop_finalizer(plane, key, ORPHAN).await
}

async fn delete_dependents(plane: &Plane, key: &Key, stored: &Shared) -> Result<(), ApiError> {
    let mut blocked = false;
    for dependent in plane.store.inspect(|state| state.dependents(&stored.uid)) {
        let Some(found) = plane.store.get(&dependent) else {
            continue;
        };
        blocked |= found.owners.iter().any(|owner| owner.uid == stored.uid && owner.blocks);
        if !found.deleting {
            delete(plane, &dependent, Some(found.uid.clone())).await?;
        }
    }
    let left = plane.store.inspect(|state| state.dependents(&stored.uid));
    if blocked && !left.is_empty() {
        // Comes back when the last of them is gone.
        return Ok(());
    }
    drop_finalizer(plane, key, FOREGROUND).await
}

async fn namespace(plane: &Plane, name: &str) -> Result<(), ApiError> {
    let key = Key {
        resource: plane.namespaces,
        name: ObjectName {
            namespace: String::new(),
            name: name.to_owned(),
        },
    };
    if !plane.store.get(&key).is_some_and(|stored| stored.deleting) {
        return Ok(());
    }
    let contents = plane.store.inspect(|state| state.contents(name));
    let deletions = contents.iter().map(|key| delete(plane, key, None));
    for result in futures::future::join_all(deletions).await {
        result?;
    }
    if !plane.store.inspect(|state| state.contents(name)).is_empty() {
        // Finalizers hold the rest; its removal brings us back.
        return Ok(());
    }
    change(plane, &key, |object| {
        if let Some(Value::Object(spec)) = object.get_mut("spec") {
            spec.remove("finalizers");
        }
    })
    .await
}

async fn expire_events(plane: &Plane, ttl: Duration) {
    let events = plane.store.registry().builtin_id("events");
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let oldest = plane.store.now().as_millisecond().saturating_sub(ttl);
    let expired: Vec<Key> = plane.store.inspect(|state| {
        let old = state.objects(events).filter(|event| event.written < oldest);
        old.map(|event| Key {
            resource: events,
            name: event.name.clone(),
        })
        .collect()
    });
    let removals = expired.iter().map(|key| delete(plane, key, None));
    for result in futures::future::join_all(removals).await {
        if let Err(error) = result {
            tracing::warn!(error = &error as &dyn std::error::Error, "removing an old event failed");
        }
    }
}

async fn delete(plane: &Plane, key: &Key, uid: Option<String>) -> Result<(), ApiError> {
    let resource = Arc::clone(plane.store.registry().get(key.resource));
    let now = plane.store.now();
    let wanted = key.clone();
    let decide = move |reading: &ReadView<'_>| match reading.get(&wanted) {
        Some(current) if uid.as_ref().is_none_or(|uid| *uid == current.uid) => {
            Ok(decide_deletion(&resource, &current, &Deletion::background(), now))
        }
        // Gone, or another object of the same name: nothing to do.
        _ => Err(ApiError::not_found(
            &crate::error::Subject::default(),
            &wanted.name.name,
        )),
    };
    ignore_absent(plane.store.write(key.clone(), decide).await.map(drop))
}

async fn drop_owners(plane: &Plane, key: &Key, gone: Vec<String>) -> Result<(), ApiError> {
    change(plane, key, move |object| {
        let owners: Vec<Value> = object::meta(object, "ownerReferences")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|owner| !gone.iter().any(|uid| owner["uid"] == uid.as_str()))
            .cloned()
            .collect();
        let list = (!owners.is_empty()).then_some(Value::Array(owners));
        object::set_meta(object, "ownerReferences", list);
    })
    .await
}

async fn drop_finalizer(plane: &Plane, key: &Key, name: &'static str) -> Result<(), ApiError> {
    change(plane, key, move |object| {
        let left: Vec<&str> = object::meta_strings(object, "finalizers")
            .into_iter()
            .filter(|finalizer| *finalizer != name)
            .collect();
        let list = (!left.is_empty()).then(|| json!(left));
        object::set_meta(object, "finalizers", list);
    })
    .await
}

async fn change(plane: &Plane, key: &Key, edit: impl Fn(&mut Object) + Send + 'static) -> Result<(), ApiError> {
    let resource = Arc::clone(plane.store.registry().get(key.resource));
    let wanted = key.clone();
    let decide = move |reading: &ReadView<'_>| {
        let current = reading
            .get(&wanted)
            .ok_or_else(|| ApiError::not_found(&crate::error::Subject::default(), &wanted.name.name))?;
        let old = current.object("");
        let mut object = old.clone();
        edit(&mut object);
        Ok::<Change, ApiError>(store_or_remove(&resource, &current, &old, object))
    };
    ignore_absent(plane.store.write(key.clone(), decide).await.map(drop))
}

fn ignore_absent(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(()),
        other => other,
    }
}

fn has_finalizer(stored: &Shared, name: &str) -> bool {
    stored.finalizers.iter().any(|finalizer| finalizer == name)
}
