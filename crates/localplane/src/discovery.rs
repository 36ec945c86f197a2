//! What is served, as clients ask for it: group by group, or all at once.

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    answer::json_response,
    registry::{Registry, Resource, Version},
};

const AGGREGATED: [(&str, &str); 2] = [("apidiscovery.k8s.io", "v2"), ("apidiscovery.k8s.io", "v2beta1")];

/// `/api`
pub(crate) fn core_versions(registry: &Registry, headers: &HeaderMap) -> Response {
    if let Some(version) = aggregated(headers) {
        return aggregated_response(registry, version, str::is_empty);
    }
    let body = json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    });
    json_response(StatusCode::OK, body.to_string())
}

/// `/apis`
pub(crate) fn groups(registry: &Registry, headers: &HeaderMap) -> Response {
    if let Some(version) = aggregated(headers) {
        return aggregated_response(registry, version, |group| !group.is_empty());
    }
    let groups: Vec<Value> = registry
        .group_versions()
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_json(group, versions))
        .collect();
    let body = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
    json_response(StatusCode::OK, body.to_string())
}

/// `/apis/<group>`
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Response> {
    let groups = registry.group_versions();
    let (group, versions) = groups.iter().find(|(group, _)| !group.is_empty() && group == name)?;
    let mut body = group_json(group, versions);
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Some(json_response(StatusCode::OK, body.to_string()))
}

fn group_json(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "versions": all, "preferredVersion": all.first()})
}

/// `/api/v1` and `/apis/<group>/<version>`
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Response> {
    let served: Vec<(&Resource, &Version)> = endpoints(registry, group, version).collect();
    if served.is_empty() {
        return None;
    }
    let mut list = Vec::new();
    for (resource, served) in served {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs(),
            "storageVersionHash": storage_hash(resource),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        if served.status {
            list.push(json!({
                "name": format!("{}/status", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let body = json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": list,
    });
    Some(json_response(StatusCode::OK, body.to_string()))
}

fn endpoints<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a Resource, &'a Version)> {
    registry.resources().iter().filter_map(move |resource| {
        let served = resource
            .versions
            .iter()
            .find(|served| served.group == group && served.name == version)?;
        Some((resource.as_ref(), served))
    })
}

/// Clients use it to see whether two resources are the same thing; any stable text will do.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let name = format!("{}/{}", resource.group, resource.kind);
    let folded = name.bytes().fold([0_u8; 8], |mut hash, byte| {
        hash.rotate_left(1);
        hash[0] = hash[0].wrapping_mul(31).wrapping_add(byte);
        hash
    });
    base64::engine::general_purpose::STANDARD.encode(folded)
}

/// The version of aggregated discovery that the client prefers to the plain lists.
fn aggregated(headers: &HeaderMap) -> Option<&'static str> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    accept.split(',').find_map(|entry| {
        AGGREGATED
            .iter()
            .find(|(group, version)| {
                entry.contains("as=APIGroupDiscoveryList")
                    && entry.contains(&format!("g={group}"))
                    && entry.split(';').any(|part| part.trim() == format!("v={version}"))
            })
            .map(|(_, version)| *version)
    })
}

fn aggregated_response(registry: &Registry, version: &'static str, wanted: impl Fn(&str) -> bool) -> Response {
    let items: Vec<Value> = registry
        .group_versions()
        .iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = endpoints(registry, group, version)
                        .map(|(resource, served)| aggregated_resource(resource, served))
                        .collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({})
            } else {
                json!({"name": group})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    });
    let mut response = json_response(StatusCode::OK, body.to_string());
    let media_type = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    if let Ok(value) = HeaderValue::from_str(&media_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn aggregated_resource(resource: &Resource, served: &Version) -> Value {
    let kind = json!({"group": served.group, "version": served.name, "kind": resource.kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if served.status {
        entry["subresources"] = json!([{
            "subresource": "status",
            "responseKind": kind,
            "verbs": ["get", "patch", "update"],
        }]);
    }
    entry
}
