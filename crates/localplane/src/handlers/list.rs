//! GET of a collection: selectors, pages, and lists as of a revision.

use axum::response::Response;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::RequestContext;
use crate::{
    answer::{self, ListMeta},
    error::{ApiError, Cause, Subject},
    request::{Query, Target},
    selector::{FieldSelector, LabelSelector},
    store::{ListQuery, Listing, Store},
    stored::{ObjectName, Shared},
};

/// Both selectors of a request.
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    pub(crate) fn of(target: &Target, query: &Query) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = query.get("fieldSelector").unwrap_or_default();
        let fields = FieldSelector::parse(fields, &target.resource).map_err(ApiError::bad_request)?;
        Ok(Self { labels, fields })
    }

    pub(crate) fn matches(&self, object: &Shared) -> bool {
        self.fields.matches(object) && self.labels.matches(|key| object.label(key))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

/// Where the next page starts. Opaque to clients.
#[derive(Debug, Serialize, Deserialize)]
struct Continue {
    /// Revision of the first page; none for a list that goes on with whatever is there now.
    rv: Option<u64>,
    namespace: String,
    name: String,
}

impl Continue {
    fn token(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_string(self).unwrap_or_default())
    }

    fn parse(token: &str) -> Result<Self, ApiError> {
        URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .ok_or_else(|| ApiError::bad_request("continue key is not valid: it did not come from this server"))
    }
}

pub(super) fn list(context: &RequestContext) -> Result<Response, ApiError> {
    let selection = Selection::of(&context.target, &context.query)?;
    let limit = context.query.number::<usize>("limit")?.filter(|limit| 0 < *limit);
    let store = &context.plane.store;
    let (at, after) = position(&context.query, store)?;
    let query = ListQuery {
        resource: context.target.resource.id,
        namespace: context.target.namespace.as_deref(),
        name: selection.fields.name(),
        after: after.as_ref(),
        limit: limit.unwrap_or(usize::MAX),
        at,
        matches: &|object| selection.matches(object),
    };
    let listing = store.list(&query).map_err(|_| match &after {
        Some(after) => ApiError::expired_page(
            Continue {
                rv: None,
                namespace: after.namespace.clone(),
                name: after.name.clone(),
            }
            .token(),
        ),
        None => ApiError::expired(format!(
            "The provided resource version is not available: {}",
            at.unwrap_or_default()
        )),
    })?;
    let meta = meta_of(&listing, &selection);
    let now = store.now();
    Ok(answer::list(
        &context.target,
        listing,
        &meta,
        context.format,
        &context.query,
        now,
    ))
}

fn meta_of(listing: &Listing, selection: &Selection) -> ListMeta {
    let token = listing.rest.as_ref().map(|(last, _)| {
        Continue {
            rv: Some(listing.revision),
            namespace: last.namespace.clone(),
            name: last.name.clone(),
        }
        .token()
    });
    ListMeta {
        revision: listing.revision,
        token,
        // With a selector the cluster's API server does not know how many are left either.
        remaining: listing
            .rest
            .as_ref()
            .map(|(_, more)| *more)
            .filter(|_| selection.is_empty()),
    }
}

/// The revision and the object to start from.
fn position(query: &Query, store: &Store) -> Result<(Option<u64>, Option<ObjectName>), ApiError> {
    let exact = check_match(query)?;
    if let Some(token) = query.get("continue") {
        if query.get("resourceVersion").is_some_and(|version| version != "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let Continue { rv, namespace, name } = Continue::parse(token)?;
        return Ok((rv, Some(ObjectName { namespace, name })));
    }
    let version = revision(query)?;
    let current = store.revision();
    if let Some(version) = version.filter(|version| current < *version) {
        return Err(ApiError::future_revision(version, current));
    }
    Ok((version.filter(|_| exact), None))
}

/// The `resourceVersion` parameter.
pub(crate) fn revision(query: &Query) -> Result<Option<u64>, ApiError> {
    query
        .get("resourceVersion")
        .map(|version| {
            version.parse().map_err(|_| {
                ApiError::bad_request(format!(
                    "resourceVersion: Invalid value: {version:?}: it must be a number"
                ))
            })
        })
        .transpose()
}

/// Whether exactly the given revision is asked for.
fn check_match(query: &Query) -> Result<bool, ApiError> {
    let version = query.get("resourceVersion");
    let refuse = |cause: Cause| Err(list_options(&cause));
    let Some(wanted) = query.get("resourceVersionMatch") else {
        if query.switch_if_given("sendInitialEvents").is_none() {
            return Ok(false);
        }
        return refuse(Cause::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        ));
    };
    match wanted {
        _ if version.is_none() => refuse(Cause::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        _ if query.get("continue").is_some() => refuse(Cause::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        )),
        "Exact" if version == Some("0") => refuse(Cause::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        "Exact" => Ok(true),
        "NotOlderThan" => Ok(false),
        other => refuse(Cause::unsupported(
            "resourceVersionMatch",
            &format!("{other:?}"),
            &["\"Exact\"".into(), "\"NotOlderThan\"".into(), "\"\"".into()],
        )),
    }
}

/// A refusal of list or watch options.
pub(crate) fn list_options(cause: &Cause) -> ApiError {
    let subject = Subject {
        group: "meta.k8s.io".into(),
        plural: "listoptions".into(),
        kind: "ListOptions".into(),
    };
    ApiError::invalid(&subject, "", std::slice::from_ref(cause))
}
