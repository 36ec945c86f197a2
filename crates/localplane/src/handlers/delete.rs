//! DELETE of one object or of a collection: at once, or a mark that waits for finalizers.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{RequestContext, create::as_json, list::Selection};
use crate::{
    admit::store_or_remove,
    answer::{self, ListMeta},
    clock::seconds,
    error::{ApiError, Cause, Subject},
    object::{self, Object},
    registry::Resource,
    store::{Change, ListQuery, Listing, ReadView},
    stored::{Key, Shared},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What becomes of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    pub(crate) propagation: Propagation,
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
}

impl Deletion {
    /// As clean-up deletes.
    pub(crate) fn background() -> Self {
        Self {
            propagation: Propagation::Background,
            grace: None,
            uid: None,
            version: None,
            dry_run: false,
        }
    }

    fn of(context: &RequestContext, body: Bytes) -> Result<Self, ApiError> {
        // Clients of custom kinds name any content type for an empty body.
        let body = if body.is_empty() { body } else { as_json(context, body)? };
        let options: Value = if body.is_empty() {
            json!({})
        } else {
            serde_json::from_slice(&body)
                .map_err(|error| ApiError::bad_request(format!("error decoding DeleteOptions: {error}")))?
        };
        let text = |field: &str| {
            let given = options.get(field).and_then(Value::as_str).map(str::to_owned);
            given.or_else(|| context.query.get(field).map(str::to_owned))
        };
        let precondition = |field: &str| {
            let value = options
                .get("preconditions")
                .and_then(|conditions| conditions.get(field));
            value.and_then(Value::as_str).map(str::to_owned)
        };
        let propagation = match text("propagationPolicy").as_deref() {
            Some("Background") | None => Propagation::Background,
            Some("Foreground") => Propagation::Foreground,
            Some("Orphan") => Propagation::Orphan,
            Some(other) => {
                let allowed = ["\"Background\"", "\"Foreground\"", "\"Orphan\""].map(str::to_owned);
                return Err(delete_options(&Cause::unsupported(
                    "propagationPolicy",
                    &format!("{other:?}"),
                    &allowed,
                )));
            }
        };
        let dry_run = match options.get("dryRun").and_then(Value::as_array) {
            Some(all) if all.iter().all(|entry| entry == "All") => !all.is_empty() || context.dry_run()?,
            Some(_) => {
                let cause = Cause::unsupported("dryRun", "\"\"", &["\"All\"".to_owned()]);
                return Err(delete_options(&cause));
            }
            None => context.dry_run()?,
        };
        let grace = match options.get("gracePeriodSeconds").and_then(Value::as_i64) {
            Some(grace) => Some(grace),
            None => context.query.number("gracePeriodSeconds")?,
        };
        Ok(Self {
            propagation,
            grace,
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
            dry_run,
        })
    }
}

fn delete_options(cause: &Cause) -> ApiError {
    let subject = Subject {
        group: "meta.k8s.io".into(),
        plural: "deleteoptions".into(),
        kind: "DeleteOptions".into(),
    };
    ApiError::invalid(&subject, "", std::slice::from_ref(cause))
}

pub(super) async fn one(context: &RequestContext, body: Bytes) -> Result<Response, ApiError> {
    let key = context.key()?;
    let deletion = Deletion::of(context, body)?;
    let (object, removed) = carry_out(context, &key, deletion).await?;
    let returns_object = context
        .target
        .resource
        .builtin
        .is_some_and(|builtin| builtin.is_pod() || builtin.is_namespace());
    if removed && !returns_object {
        return Ok(answer::json_response(
            StatusCode::OK,
            success(context, &object).to_string(),
        ));
    }
    Ok(answer::unstored(StatusCode::OK, &context.target, object))
}

async fn carry_out(context: &RequestContext, key: &Key, deletion: Deletion) -> Result<(Object, bool), ApiError> {
    let store = &context.plane.store;
    let resource = std::sync::Arc::clone(&context.target.resource);
    let subject = context.target.subject();
    let dry_run = deletion.dry_run;
    let now = store.now();
    let decide = {
        let key = key.clone();
        move |reading: &ReadView<'_>| {
            let current = reading
                .get(&key)
                .ok_or_else(|| ApiError::not_found(&subject, &key.name.name))?;
            check(&current, &deletion, &subject)?;
            if is_protected(&resource, &key.name.name) {
                let why = "this namespace may not be deleted";
                return Err(ApiError::forbidden(&subject, &key.name.name, why));
            }
            Ok(delete(&resource, &current, &deletion, now))
        }
    };
    if dry_run {
        return Ok(match store.dry_run(decide)? {
            Change::Put(object) => (object, false),
            Change::Remove(object) => (object, true),
            Change::Keep(stored) => (stored.object(""), false),
        });
    }
    let outcome = store.write(key.clone(), decide).await?;
    Ok((outcome.object.object(""), outcome.removed))
}

/// Namespaces that always exist.
fn is_protected(resource: &Resource, name: &str) -> bool {
    let namespace = resource.builtin.is_some_and(crate::builtin::Builtin::is_namespace);
    namespace && matches!(name, "default" | "kube-system" | "kube-public")
}

fn check(current: &Shared, deletion: &Deletion, subject: &Subject) -> Result<(), ApiError> {
    let name = &current.name.name;
    if let Some(uid) = deletion.uid.as_ref().filter(|uid| **uid != current.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            current.uid
        );
        return Err(ApiError::conflict(subject, name, why));
    }
    let version = current.revision.to_string();
    if let Some(wanted) = deletion.version.as_ref().filter(|wanted| **wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        );
        return Err(ApiError::conflict(subject, name, why));
    }
    Ok(())
}

/// What a deletion does to an object: its end, or a mark and the finalizers that hold it.
pub(crate) fn delete(resource: &Resource, current: &Shared, deletion: &Deletion, now: jiff::Timestamp) -> Change {
    let old = current.object("");
    let mut object = old.clone();
    let grace = grace(resource, &object, deletion);
    let finalizer = match deletion.propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let before = object::meta_strings(&object, "finalizers");
    let mut finalizers: Vec<String> = before
        .iter()
        .filter(|name| !matches!(**name, ORPHAN | FOREGROUND))
        .map(|name| (*name).to_owned())
        .collect();
    finalizers.extend(finalizer.map(str::to_owned));
    let list = (!finalizers.is_empty()).then(|| json!(finalizers));
    object::set_meta(&mut object, "finalizers", list);
    if !object::is_deleting(&object) {
        let at = now
            .saturating_add(jiff::SignedDuration::from_secs(grace))
            .unwrap_or(now);
        object::set_meta(&mut object, "deletionTimestamp", Some(seconds(at).into()));
        object::set_meta(&mut object, "deletionGracePeriodSeconds", Some(grace.into()));
        if resource.has_generation() {
            let next = object::generation(&object) + 1;
            object::set_meta(&mut object, "generation", Some(next.into()));
        }
    } else if object::meta(&object, "deletionGracePeriodSeconds").and_then(Value::as_i64) > Some(grace) {
        object::set_meta(&mut object, "deletionGracePeriodSeconds", Some(grace.into()));
    }
    if resource.builtin.is_some_and(crate::builtin::Builtin::is_namespace) {
        object.entry("status").or_insert_with(|| json!({}))["phase"] = "Terminating".into();
    }
    store_or_remove(resource, current, &old, object)
}

/// Seconds the kubelet has to end a Pod; everything else ends at once.
fn grace(resource: &Resource, object: &Object, deletion: &Deletion) -> i64 {
    if !resource.builtin.is_some_and(crate::builtin::Builtin::is_pod) {
        return 0;
    }
    let spec = object.get("spec");
    let scheduled = spec
        .and_then(|spec| spec.get("nodeName"))
        .and_then(Value::as_str)
        .is_some_and(|node| !node.is_empty());
    let phase = object
        .get("status")
        .and_then(|status| status.get("phase"))
        .and_then(Value::as_str);
    if !scheduled || matches!(phase, Some("Succeeded" | "Failed")) {
        return 0;
    }
    let own = spec
        .and_then(|spec| spec.get("terminationGracePeriodSeconds"))
        .and_then(Value::as_i64);
    deletion.grace.or(own).unwrap_or(30).max(0)
}

fn success(context: &RequestContext, object: &Object) -> Value {
    let version = context.target.version();
    let mut details = json!({
        "name": object::meta_str(object, "name"),
        "kind": context.target.resource.plural,
        "uid": object::meta_str(object, "uid"),
    });
    if !version.group.is_empty() {
        details["group"] = version.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(super) async fn collection(context: &RequestContext, body: Bytes) -> Result<Response, ApiError> {
    let deletion = Deletion::of(context, body)?;
    let selection = Selection::of(&context.target, &context.query)?;
    let store = &context.plane.store;
    let listing = selected(context, &selection)?;
    let deletions = listing.objects.iter().map(|object| {
        let key = Key {
            resource: context.target.resource.id,
            name: object.name.clone(),
        };
        let deletion = deletion.clone();
        async move {
            match carry_out(context, &key, deletion).await {
                // Another request has deleted it.
                Err(error) if error.code() == StatusCode::NOT_FOUND => Ok(()),
                other => other.map(drop),
            }
        }
    });
    for result in futures::future::join_all(deletions).await {
        result?;
    }
    let meta = ListMeta {
        revision: store.revision(),
        token: None,
        remaining: None,
    };
    let listing = Listing {
        revision: meta.revision,
        ..listing
    };
    Ok(answer::list(
        &context.target,
        listing,
        &meta,
        context.format,
        &context.query,
        store.now(),
    ))
}

fn selected(context: &RequestContext, selection: &Selection) -> Result<Listing, ApiError> {
    let query = ListQuery {
        resource: context.target.resource.id,
        namespace: context.target.namespace.as_deref(),
        name: selection.fields.name(),
        after: None,
        limit: usize::MAX,
        at: None,
        matches: &|object| selection.matches(object),
    };
    let listing = context.plane.store.list(&query);
    listing.map_err(|_| ApiError::internal("the present state is always available"))
}
