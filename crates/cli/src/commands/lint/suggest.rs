//! What to write instead: suggestions for the faults that an API server finds, from the object and the schema of its kind.
//! Pure: they are sentences about values.

use std::collections::BTreeMap;

use serde_json::Value;

/// The fields of `metadata` that people write; a CRD's schema does not list them.
const METADATA: [&str; 5] = ["name", "generateName", "namespace", "labels", "annotations"];

/// From this similarity on a field is taken for a misspelled one.
const SIMILAR: f64 = 0.85;

/// A fault for each field that the schema does not know, and for fields that belong elsewhere one for each place.
pub(super) fn unknown_fields(schema: &Value, object: &Value, paths: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut misplaced: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for path in paths {
        match Unknown::find(schema, object, path) {
            Some(Unknown::Misplaced(parent)) => misplaced.entry(parent).or_default().push(path),
            Some(Unknown::BareLabel(instead)) => {
                faults.push(format!(
                    "unknown field {path:?}: labels belong below matchLabels; write {instead}"
                ));
            }
            Some(Unknown::Misspelled(name)) => faults.push(format!("unknown field {path:?}; did you mean {name}?")),
            None => faults.push(format!("unknown field {path:?}")),
        }
    }
    let misplaced = misplaced.into_iter().map(|(parent, paths)| match paths.as_slice() {
        [path] => format!("unknown field {path:?}: it belongs below {parent}; correct its indentation"),
        paths => {
            let paths: Vec<String> = paths.iter().map(|path| format!("{path:?}")).collect();
            let paths = paths.join(", ");
            format!("unknown fields {paths}: they belong below {parent}; correct their indentation")
        }
    });
    misplaced.chain(faults).collect()
}

/// What an unknown field was probably meant to be.
enum Unknown {
    /// A field that the schema has below this parent.
    Misplaced(String),
    /// A label in a selector, without `matchLabels`; this is how to write it.
    BareLabel(String),
    /// Another field of the same parent.
    Misspelled(String),
}

impl Unknown {
    fn find(schema: &Value, object: &Value, path: &str) -> Option<Self> {
        let mut parents = Vec::new();
        let (name, value) = locate(object, path, &mut parents)?;
        let fields = &below(schema, &parents)?["properties"];
        if fields["matchLabels"].is_object() && value.is_string() {
            let selector = parents.last()?;
            return Some(Self::BareLabel(format!(
                "{selector}: {{matchLabels: {{{name}: {value}}}}}"
            )));
        }
        if let Some(parent) = home(schema, name) {
            return Some(Self::Misplaced(parent));
        }
        let similar = |known: &&String| SIMILAR <= strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase());
        let known = fields.as_object()?.keys().find(similar)?;
        Some(Self::Misspelled(known.clone()))
    }
}

/// The parents below which the schema knows a field of this name; of several those nearest to the top.
fn home(schema: &Value, name: &str) -> Option<String> {
    if METADATA.contains(&name) {
        return Some("metadata".to_owned());
    }
    let mut found = Vec::new();
    places(&schema["properties"]["spec"], "spec", name, &mut found);
    let depth = |path: &String| path.matches('.').count();
    let least = found.iter().map(depth).min()?;
    found.retain(|path| depth(path) == least);
    Some(found.join(" or "))
}

fn places(schema: &Value, path: &str, name: &str, found: &mut Vec<String>) {
    let fields = match &schema["items"] {
        Value::Object(items) => items.get("properties"),
        _ => schema.get("properties"),
    };
    for (field, schema) in fields.and_then(Value::as_object).into_iter().flatten() {
        if field == name {
            found.push(path.to_owned());
        }
        places(schema, &format!("{path}.{field}"), name, found);
    }
}

/// The name and value at a path such as `spec.images[0].repo`, and the names above it. Names may hold dots themselves.
fn locate<'v>(value: &'v Value, path: &str, parents: &mut Vec<String>) -> Option<(&'v str, &'v Value)> {
    for (name, value) in value.as_object()? {
        let Some(mut rest) = path.strip_prefix(name.as_str()) else {
            continue;
        };
        if rest.is_empty() {
            return Some((name, value));
        }
        let mut value = value;
        while let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            value = value.get(index.parse::<usize>().ok()?)?;
            rest = after;
        }
        if let Some(rest) = rest.strip_prefix('.') {
            parents.push(name.clone());
            if let Some(found) = locate(value, rest, parents) {
                return Some(found);
            }
            parents.pop();
        }
    }
    None
}

/// The schema of a parent.
fn below<'s>(schema: &'s Value, parents: &[String]) -> Option<&'s Value> {
    parents.iter().try_fold(schema, |schema, name| {
        let field = schema["properties"].get(name)?;
        Some(field.get("items").unwrap_or(field))
    })
}

/// A fault of the API server, with what to write if that can be told.
pub(super) fn with_suggestion(fault: String, object: &Value) -> String {
    let Some((path, _)) = fault.split_once(": ") else {
        return fault;
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let better = name_like(name);
    if path == "metadata.name" && !better.is_empty() && better != name {
        return format!("{fault}; write name: {better}");
    }
    fault
}

/// A name that Kubernetes accepts, from one with capital letters or other characters.
fn name_like(name: &str) -> String {
    let mut better = String::new();
    let mut after_small = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && after_small {
            better.push('-');
        }
        after_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        better.push(match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '.' | '-') => c,
            _ => '-',
        });
    }
    better.trim_matches(['-', '.']).to_owned()
}

/// What YAML reads as another type than the one that is expected: `key:value` without a space is a text, items without `- ` are
/// one object. Gives the sentences and corrects the object, so that the checks can go on.
pub(super) fn correct_types(schema: &Value, object: &mut Value) -> Vec<String> {
    let mut sentences = Vec::new();
    for field in ["labels", "annotations"] {
        if let Some(value) = object.pointer_mut(&format!("/metadata/{field}")) {
            split_text(value, &format!("metadata.{field}"), &mut sentences);
        }
    }
    correct_below(schema, object, "", &mut sentences);
    sentences
}

fn correct_below(schema: &Value, object: &mut Value, path: &str, sentences: &mut Vec<String>) {
    let (Some(fields), Some(object)) = (schema["properties"].as_object(), object.as_object_mut()) else {
        return;
    };
    for (name, schema) in fields {
        let Some(value) = object.get_mut(name) else { continue };
        let path = format!("{path}{name}");
        if schema["type"] == "object" {
            split_text(value, &path, sentences);
        }
        if schema["type"] == "array" && value.is_object() {
            sentences.push(format!(
                "{path}: it has to be a list; begin each item with `- `, and indent its other lines below the first"
            ));
            *value = Value::Array(vec![value.take()]);
        }
        correct_below(schema, value, &format!("{path}."), sentences);
    }
}

fn split_text(value: &mut Value, path: &str, sentences: &mut Vec<String>) {
    let Some(text) = value.as_str() else { return };
    let Some((name, content)) = text.split_once(':') else {
        return;
    };
    if name.is_empty() || content.is_empty() || text.contains(char::is_whitespace) {
        return;
    }
    sentences.push(format!(
        "{path}: {text:?} is one text; put a space after the colon: `{name}: {content}`"
    ));
    let content: Value = serde_saphyr::from_str(content).unwrap_or_else(|_| content.into());
    *value = serde_json::json!({ name: content });
}

/// What is accepted, and better written in another way.
pub(super) fn hints(object: &Value) -> Vec<String> {
    let template = &object["spec"]["imagePrePullTemplate"];
    let images = match &template["images"] {
        Value::Array(items) => items.iter().collect(),
        map @ Value::Object(_) => vec![map],
        _ => Vec::new(),
    };
    let respo = images
        .iter()
        .enumerate()
        .filter(|(_, image)| image.get("respo").is_some());
    let respo = respo.map(|(index, _)| format!("images[{index}].respo is read as repo; write repo"));
    let lists = [
        &object["spec"]["selector"]["names"],
        &template["nodeNames"],
        &template["nodes"],
    ];
    let nodes = lists.into_iter().filter_map(Value::as_array).flatten();
    let nodes = nodes.filter_map(Value::as_str);
    let capitals = nodes.filter(|node| node.contains(|c: char| c.is_ascii_uppercase()));
    let capitals = capitals.map(|node| {
        let better = node.to_ascii_lowercase();
        format!("no node can be named {node:?}, since names have no capital letters; write {better}")
    });
    respo.chain(capitals).collect()
}

#[cfg(test)]
mod tests;
