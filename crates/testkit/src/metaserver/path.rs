//! What a request is about, by its path and query.

use http::Uri;

/// The objects that a path names. Paths of discovery name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The path of the collection.
    pub(super) collection: String,
    /// The single object.
    pub(super) name: Option<String>,
    /// A part of it, such as `status`.
    pub(super) subresource: Option<String>,
}

impl Target {
    pub(super) fn parse(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let prefix = match *segments.first()? {
            "apis" => 3,
            "api" => 2,
            _ => return None,
        };
        let rest = segments.get(prefix..).filter(|rest| !rest.is_empty())?;
        let namespaced = rest.len() > 2 && rest[0] == "namespaces";
        let resource = prefix + if namespaced { 2 } else { 0 };
        let segment = |number: usize| segments.get(number).map(|text| (*text).to_owned());
        Some(Self {
            collection: format!("/{}", segments[..=resource].join("/")),
            name: segment(resource + 1),
            subresource: segment(resource + 2),
        })
    }

    /// The group and version, or the version alone.
    pub(super) fn api_version(&self) -> String {
        let segments: Vec<&str> = self.collection.trim_matches('/').split('/').collect();
        match segments.as_slice() {
            ["apis", group, version, ..] => format!("{group}/{version}"),
            [_, version, ..] => (*version).to_owned(),
            _ => String::new(),
        }
    }

    /// The kind of a list, as it is made up from the name of the resource: `NodeimageList`.
    pub(super) fn guessed_list_kind(&self) -> String {
        let resource = self.collection.rsplit('/').next().unwrap_or_default();
        let singular = resource.strip_suffix('s').unwrap_or(resource);
        let mut letters = singular.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).chain("List".chars()).collect()
    }
}

/// The value of a parameter of the query.
pub(super) fn question(uri: &Uri, name: &str) -> Option<String> {
    uri.query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.replace("%3D", "=").replace("%3d", "="))
}

/// The name that a field selector asks for; others are not understood, as in the original.
pub(super) fn name_of(field_selector: &str) -> Option<String> {
    field_selector.strip_prefix("metadata.name=").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::list("/apis/g/v1/things", "/apis/g/v1/things", None, None)]
    #[case::object("/apis/g/v1/things/a", "/apis/g/v1/things", Some("a"), None)]
    #[case::status("/apis/g/v1/things/a/status", "/apis/g/v1/things", Some("a"), Some("status"))]
    #[case::core("/api/v1/nodes/n", "/api/v1/nodes", Some("n"), None)]
    #[case::namespaced("/api/v1/namespaces/d/pods/p", "/api/v1/namespaces/d/pods", Some("p"), None)]
    #[case::namespace("/api/v1/namespaces/d", "/api/v1/namespaces", Some("d"), None)]
    fn a_path_names_objects(
        #[case] path: &str,
        #[case] collection: &str,
        #[case] name: Option<&str>,
        #[case] subresource: Option<&str>,
    ) {
        let target = Target::parse(path).unwrap();
        assert_eq!(
            (
                target.collection.as_str(),
                target.name.as_deref(),
                target.subresource.as_deref()
            ),
            (collection, name, subresource)
        );
    }

    #[rstest]
    #[case::groups("/apis")]
    #[case::version("/apis/g/v1")]
    #[case::core("/api/v1")]
    #[case::health("/healthz")]
    fn discovery_names_none(#[case] path: &str) {
        assert_eq!(Target::parse(path), None);
    }

    #[test]
    fn kinds_are_guessed() {
        let target = Target::parse("/apis/apps.kruise.io/v1beta1/nodeimages").unwrap();
        assert_eq!(target.guessed_list_kind(), "NodeimageList");
        assert_eq!(target.api_version(), "apps.kruise.io/v1beta1");
    }

    #[test]
    fn a_selector_by_name_is_understood() {
        let uri: Uri = "/x?watch=true&fieldSelector=metadata.name%3Dnode-0".parse().unwrap();
        let selector = question(&uri, "fieldSelector").unwrap();
        assert_eq!(name_of(&selector).as_deref(), Some("node-0"));
        assert_eq!(question(&uri, "limit"), None);
        assert_eq!(name_of("spec.nodeName=a"), None);
    }
}
