//! What a request asks for: resource and name from the path, options from the query, format from the headers.
//!
//! Pure; knows the registry, not the objects.

use std::{str::FromStr, sync::Arc};

use http::{HeaderMap, header};

use crate::{
    error::{ApiError, Subject},
    registry::{Registry, Resource, Version},
};

/// A resource, perhaps one object of it, perhaps one of its subresources.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    /// Index of the served version.
    pub(crate) version: usize,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Target {
    /// Reads a path below `/api` or `/apis`.
    pub(crate) fn parse(registry: &Registry, path: &str) -> Result<Self, ApiError> {
        let decoded = percent_decode(path);
        let mut parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
        let (group, version) = match parts.as_slice() {
            ["api", version, ..] => ("", *version),
            ["apis", group, version, ..] => (*group, *version),
            _ => return Err(ApiError::no_such_resource()),
        };
        parts.drain(..if group.is_empty() { 2 } else { 3 });
        let known = |plural: &str| registry.at(group, version, plural);
        let (namespace, rest) = match parts.as_slice() {
            // `/namespaces/x` and its subresources are a Namespace itself; one part more and it is what is in it.
            ["namespaces", name, rest @ ..] if !rest.is_empty() && !matches!(rest, ["status"]) => {
                (Some((*name).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some((*name).to_owned()), None),
            [plural, name, subresource] => (*plural, Some((*name).to_owned()), Some((*subresource).to_owned())),
            _ => return Err(ApiError::no_such_resource()),
        };
        let (resource, version) = known(plural).ok_or_else(ApiError::no_such_resource)?;
        if namespace.is_some() && !resource.namespaced {
            return Err(ApiError::no_such_resource());
        }
        if namespace.is_none() && resource.namespaced && name.is_some() {
            return Err(ApiError::no_such_resource());
        }
        Ok(Self {
            resource: Arc::clone(resource),
            version,
            namespace,
            name,
            subresource,
        })
    }

    /// The served version.
    pub(crate) fn version(&self) -> &Version {
        &self.resource.versions[self.version]
    }

    /// The words by which refusals name this resource.
    pub(crate) fn subject(&self) -> Subject {
        self.resource.subject(self.version())
    }

    /// The name in the path; collections have none.
    pub(crate) fn named(&self) -> Result<&str, ApiError> {
        self.name.as_deref().ok_or_else(ApiError::method_not_allowed)
    }
}

/// Query parameters, each as often as it was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (
                    percent_decode(&key.replace('+', " ")),
                    percent_decode(&value.replace('+', " ")),
                )
            })
            .collect();
        Self(pairs)
    }

    /// The parameter's first value, if it is given and not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.raw(key).filter(|value| !value.is_empty())
    }

    fn raw(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on: given without a value, or with anything but `false` and `0`.
    pub(crate) fn switch(&self, key: &str) -> bool {
        self.raw(key).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    /// A switch that can be on, off or not given.
    pub(crate) fn switch_if_given(&self, key: &str) -> Option<bool> {
        self.raw(key).map(|_| self.switch(key))
    }

    /// A number.
    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, ApiError> {
        self.get(key)
            .map(|value| {
                value
                    .parse()
                    .map_err(|_| ApiError::bad_request(format!("{key}: {value:?} is not a number in range")))
            })
            .transpose()
    }

    /// Whether the request shall only be tried.
    pub(crate) fn dry_run(&self, subject: &Subject) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::invalid(
                &Subject {
                    kind: "Options".into(),
                    group: "meta.k8s.io".into(),
                    ..subject.clone()
                },
                "",
                &[crate::error::Cause::unsupported(
                    "dryRun",
                    &format!("{other:?}"),
                    &["\"All\"".to_owned()],
                )],
            )),
        }
    }
}

/// What to do with fields the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(crate) fn of(query: &Query) -> Result<Self, ApiError> {
        match query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => Err(ApiError::bad_request(format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The objects themselves.
    Whole,
    /// A table for people, with each row's object whole, by its metadata, or not at all.
    Table,
    /// `metadata` alone.
    Metadata,
}

const SERVED: &str = "application/json, application/json;as=Table;v=v1;g=meta.k8s.io";

/// Chooses the first format in `Accept` that is served here.
pub(crate) fn format(headers: &HeaderMap) -> Result<Format, ApiError> {
    let accept: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
        .collect();
    if accept.is_empty() {
        return Ok(Format::Whole);
    }
    accept
        .iter()
        .find_map(|entry| one_format(entry))
        .ok_or_else(|| ApiError::not_acceptable(SERVED))
}

fn one_format(entry: &str) -> Option<Format> {
    let mut parts = entry.split(';').map(str::trim);
    if !matches!(parts.next()?, "application/json" | "*/*" | "application/*") {
        return None;
    }
    let mut form = None;
    let mut version = "v1";
    let mut group = "meta.k8s.io";
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => form = Some(value),
            Some(("v", value)) => version = value,
            Some(("g", value)) => group = value,
            _ => {}
        }
    }
    match form {
        None => Some(Format::Whole),
        Some(_) if group != "meta.k8s.io" || version != "v1" => None,
        Some("Table") => Some(Format::Table),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Format::Metadata),
        Some(_) => None,
    }
}

/// The media type of the body, without parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map_or("", |value| value.split(';').next().unwrap_or_default().trim())
}

/// Undoes `%41`; what is no valid escape stays as it is.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(byte) = escape {
            plain.push(byte);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_asked("", Some(Format::Whole))]
    #[case::plain("application/json", Some(Format::Whole))]
    #[case::anything("*/*", Some(Format::Whole))]
    #[case::kubectl_get(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        Some(Format::Table)
    )]
    #[case::metadata(
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        Some(Format::Metadata)
    )]
    #[case::protobuf_first("application/vnd.kubernetes.protobuf, application/json", Some(Format::Whole))]
    #[case::protobuf_only("application/vnd.kubernetes.protobuf", None)]
    #[case::unknown_form("application/json;as=Chart;v=v1;g=meta.k8s.io", None)]
    fn negotiates(#[case] accept: &str, #[case] want: Option<Format>) {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        }
        assert_eq!(format(&headers).ok(), want);
    }

    #[rstest]
    #[case::absent("a=1", None)]
    #[case::bare("watch", Some(true))]
    #[case::empty("watch=", Some(true))]
    #[case::one("watch=1", Some(true))]
    #[case::yes("watch=true", Some(true))]
    #[case::zero("watch=0", Some(false))]
    #[case::no("watch=false", Some(false))]
    fn switches(#[case] query: &str, #[case] want: Option<bool>) {
        assert_eq!(Query::parse(query).switch_if_given("watch"), want);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&limit=5&bad=%zz");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(query.number::<usize>("limit").unwrap(), Some(5));
        assert_eq!(query.get("bad"), Some("%zz"));
        query.number::<usize>("bad").unwrap_err();
    }
}
