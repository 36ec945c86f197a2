//! The comparison itself: pure, of two definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::ResourceExt as _;

/// So many missing fields are named; of the others, the number.
const NAMED: usize = 5;

/// What `theirs` lacks to hold everything that `ours` can; None if it lacks nothing.
pub fn shortcoming(ours: &CustomResourceDefinition, theirs: Option<&CustomResourceDefinition>) -> Option<String> {
    let name = ours.name_any();
    let Some(theirs) = theirs else {
        return Some(format!("the CRD {name} is not installed"));
    };
    if let Some(why) = not_established(theirs) {
        return Some(format!("the CRD {name} is not served yet: {why}"));
    }
    ours.spec.versions.iter().find_map(|version| {
        let lack = match theirs
            .spec
            .versions
            .iter()
            .find(|other| other.name == version.name && other.served)
        {
            None => Some(format!("does not serve version {}", version.name)),
            Some(other) => version_lacks(version, other),
        };
        lack.map(|lack| format!("the CRD {name} in this cluster {lack}"))
    })
}

/// Why the API server does not serve it. Without conditions, as in a file, nothing speaks against it.
fn not_established(crd: &CustomResourceDefinition) -> Option<String> {
    let conditions = crd.status.as_ref()?.conditions.as_ref()?;
    let refused = conditions.iter().find(|condition| {
        ["NamesAccepted", "Established"].contains(&condition.type_.as_str()) && condition.status == "False"
    })?;
    Some(refused.message.clone().unwrap_or_else(|| refused.type_.clone()))
}

fn version_lacks(ours: &CustomResourceDefinitionVersion, theirs: &CustomResourceDefinitionVersion) -> Option<String> {
    let has_status = |version: &CustomResourceDefinitionVersion| {
        version
            .subresources
            .as_ref()
            .is_some_and(|subresources| subresources.status.is_some())
    };
    if has_status(ours) && !has_status(theirs) {
        return Some(format!("has no status subresource in version {}", ours.name));
    }
    let mut missing = Vec::new();
    if let (Some(ours), Some(theirs)) = (schema(ours), schema(theirs)) {
        collect(ours, theirs, "", &mut missing);
    }
    if missing.is_empty() {
        return None;
    }
    let named = missing
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        number => format!(" and {number} more"),
    };
    Some(format!(
        "comes from somebody else: version {} lacks {named}{more}",
        ours.name
    ))
}

fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Collects the paths of all fields that `theirs` would drop. Below a missing one nothing more is said.
fn collect(ours: &JSONSchemaProps, theirs: &JSONSchemaProps, path: &str, missing: &mut Vec<String>) {
    let keeps_all = theirs.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, field) in ours.properties.iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match theirs.properties.as_ref().and_then(|properties| properties.get(name)) {
            Some(other) => collect(field, other, &path, missing),
            None if keeps_all => {}
            None => missing.push(path),
        }
    }
    if keeps_all {
        return;
    }
    if ours.x_kubernetes_preserve_unknown_fields == Some(true) {
        missing.push(format!("{path} as anything"));
    }
    match (items(ours), items(theirs)) {
        (Some(ours), Some(theirs)) => collect(ours, theirs, &format!("{path}[]"), missing),
        (Some(_), None) => missing.push(format!("{path}[]")),
        (None, _) => {}
    }
    match (values(ours), values(theirs)) {
        (Values::Schema(ours), Values::Schema(theirs)) => collect(ours, theirs, &format!("{path}.*"), missing),
        (Values::Schema(_) | Values::Any, Values::None) => missing.push(format!("{path}.*")),
        (Values::None, _) | (_, Values::Any) | (Values::Any, Values::Schema(_)) => {}
    }
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(list) => list.first(),
    }
}

/// What a map may hold.
enum Values<'a> {
    None,
    Any,
    Schema(&'a JSONSchemaProps),
}

fn values(schema: &JSONSchemaProps) -> Values<'_> {
    match schema.additional_properties.as_ref() {
        None | Some(JSONSchemaPropsOrBool::Bool(false)) => Values::None,
        Some(JSONSchemaPropsOrBool::Bool(true)) => Values::Any,
        Some(JSONSchemaPropsOrBool::Schema(schema)) => Values::Schema(schema),
    }
}

#[cfg(test)]
mod tests;
