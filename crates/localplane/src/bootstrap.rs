//! The objects that are always there: the usual namespaces, a ServiceAccount in every namespace, and the definitions of
//! the custom kinds.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admit,
    clock::seconds,
    error::ApiError,
    object::{self, Object},
    plane::Plane,
    registry::Resource,
    request::Target,
    store::{Change, ReadView},
    stored::{Key, ObjectName},
};

/// The ServiceAccount that pods use unless they name another one.
pub(crate) const DEFAULT_SERVICE_ACCOUNT: &str = "default";

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Writes what is missing or out of date.
pub(crate) async fn run(plane: &Plane) -> Result<(), ApiError> {
    let registry = Arc::clone(plane.store.registry());
    let namespaces = registry.get(plane.namespaces);
    for name in NAMESPACES {
        let object = json!({"kind": "Namespace", "metadata": {"name": name}});
        ensure(plane, namespaces, object, false).await?;
    }
    let existing: Vec<String> = plane.store.inspect(|state| {
        let living = state.objects(plane.namespaces).filter(|namespace| !namespace.deleting);
        living.map(|namespace| namespace.name.name.clone()).collect()
    });
    for namespace in existing {
        default_service_account(plane, &namespace).await?;
    }
    let definitions = registry.get(registry.builtin_id("customresourcedefinitions"));
    let now = seconds(plane.store.now());
    for definition in registry.definitions() {
        let mut object = serde_json::to_value(definition).map_err(ApiError::internal)?;
        let names = object["spec"]["names"].clone();
        let stored = definition.spec.versions.iter().filter(|version| version.storage);
        let stored: Vec<&str> = stored.map(|version| version.name.as_str()).collect();
        let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now});
        object["status"] = json!({
            "acceptedNames": names,
            "storedVersions": stored,
            "conditions": [
                condition("NamesAccepted", "NoConflicts"),
                condition("Established", "InitialNamesAccepted"),
            ],
        });
        ensure(plane, definitions, object, true).await?;
    }
    Ok(())
}

/// Makes the ServiceAccount `default`, as kube-controller-manager does in every namespace, unless it exists or the
/// namespace is being deleted.
pub(crate) async fn default_service_account(plane: &Plane, namespace: &str) -> Result<(), ApiError> {
    let registry = plane.store.registry();
    let resource = registry.get(registry.builtin_id("serviceaccounts"));
    let name = |namespace: &str, name: &str| ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let key = Key {
        resource: resource.id,
        name: name(namespace, DEFAULT_SERVICE_ACCOUNT),
    };
    let parent = Key {
        resource: plane.namespaces,
        name: name("", namespace),
    };
    let target = Target {
        resource: Arc::clone(resource),
        version: resource.storage,
        namespace: Some(namespace.to_owned()),
        name: None,
        subresource: None,
    };
    let mut object = Object::new();
    object.insert("kind".into(), "ServiceAccount".into());
    object::set_meta(&mut object, "name", Some(DEFAULT_SERVICE_ACCOUNT.into()));
    object::set_meta(&mut object, "namespace", Some(namespace.into()));
    let (now, wanted) = (plane.store.now(), key.clone());
    let decide = move |reading: &ReadView<'_>| match (reading.get(&wanted), reading.get(&parent)) {
        (Some(current), _) => Ok(Change::Keep(current)),
        (None, Some(parent)) if parent.deleting => Ok(Change::Keep(parent)),
        (None, Some(_)) => Ok(Change::Put(admit::create(&target, object.clone(), now)?)),
        (None, None) => Err(ApiError::not_found(&target.subject(), DEFAULT_SERVICE_ACCOUNT)),
    };
    match plane.store.write(key, decide).await {
        Err(error) if error.code() == http::StatusCode::NOT_FOUND => Ok(()),
        other => other.map(drop),
    }
}

async fn ensure(plane: &Plane, resource: &Arc<Resource>, object: Value, refresh: bool) -> Result<(), ApiError> {
    let Value::Object(object) = object else { return Ok(()) };
    let target = Target {
        resource: Arc::clone(resource),
        version: resource.storage,
        namespace: None,
        name: None,
        subresource: None,
    };
    let key = Key {
        resource: resource.id,
        name: ObjectName {
            namespace: String::new(),
            name: object::meta_str(&object, "name").to_owned(),
        },
    };
    let now = plane.store.now();
    let wanted = key.clone();
    let decide = move |reading: &ReadView<'_>| match reading.get(&wanted) {
        None => Ok(Change::Put(admit::create(&target, object.clone(), now)?)),
        Some(current) if refresh => {
            let old = current.object("");
            if old.get("spec") == object.get("spec") {
                return Ok(Change::Keep(current));
            }
            let mut new: Object = old.clone();
            for part in ["spec", "status"] {
                if let Some(value) = object.get(part) {
                    new.insert(part.into(), value.clone());
                }
            }
            object::set_meta(&mut new, "generation", Some((object::generation(&old) + 1).into()));
            Ok(Change::Put(new))
        }
        Some(current) => Ok(Change::Keep(current)),
    };
    plane.store.write(key, decide).await.map(drop)
}
