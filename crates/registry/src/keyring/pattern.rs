//! One key of a keyring: `host[:port][/path]` with globs in the host, and whether an image falls under it.

use std::cmp::Ordering;
use std::fmt;

use super::glob::LabelGlob;

/// A registry, or a part of one, that credentials are meant for.
#[derive(Debug, Clone)]
pub struct ImagePattern {
    text: String,
    host: Vec<LabelGlob>,
    port: Option<String>,
    path: String,
}

/// A key that can never fit an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// There is nothing before the path.
    #[error("`{0}` names no registry host; write it as host[:port][/path]")]
    NoHost(String),
    /// A glob that is not finished.
    #[error("`{0}` has a broken glob in its host; close every `[` and put something between the brackets")]
    BadGlob(String),
}

impl ImagePattern {
    /// Reads a key as pull secrets, docker's files and `matchImages` have it, with or without a scheme.
    pub fn parse(key: &str) -> Result<Self, PatternError> {
        let rest = key
            .strip_prefix("https://")
            .or_else(|| key.strip_prefix("http://"))
            .unwrap_or(key);
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        // The API's own path prefix says nothing about the image.
        let path = match path {
            "/v1" | "/v2" => "",
            _ if path.starts_with("/v1/") || path.starts_with("/v2/") => &path[3..],
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        let authority = authority.to_ascii_lowercase();
        let (host, port) = split_port(&authority);
        if host.is_empty() {
            return Err(PatternError::NoHost(key.to_owned()));
        }
        let labels = if is_ipv6(host) {
            Some(vec![LabelGlob::literal(host)])
        } else {
            host.split('.').map(LabelGlob::parse).collect()
        };
        let host = labels.ok_or_else(|| PatternError::BadGlob(key.to_owned()))?;
        let port = port.map(str::to_owned);
        Ok(Self {
            text: format!("{authority}{path}"),
            host,
            port,
            path: path.to_owned(),
        })
    }

    /// Whether these credentials are meant for this repository of this registry.
    pub fn matches(&self, registry: &str, repository: &str) -> bool {
        let registry = registry.to_ascii_lowercase();
        let (host, port) = split_port(&registry);
        let labels: Vec<&str> = if is_ipv6(host) {
            vec![host]
        } else {
            host.split('.').collect()
        };
        self.port.as_deref() == port
            && self.host.len() == labels.len()
            && format!("/{repository}").starts_with(&self.path)
            && self.host.iter().zip(labels).all(|(glob, label)| glob.matches(label))
    }

    /// The key without scheme and API version.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn is_ipv6(host: &str) -> bool {
    // `[0-9]*.example.com` is a glob; an address has colons inside its only pair of brackets.
    host.starts_with('[') && host.ends_with(']') && host.contains(':')
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => (host, Some(port)),
        _ => (authority, None),
    }
}

impl fmt::Display for ImagePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl PartialEq for ImagePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ImagePattern {}

impl PartialOrd for ImagePattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ImagePattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

#[cfg(test)]
mod tests {
    use larder_model::ImageRef;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::host("a.io", "a.io/x", true)]
    #[case::other_host("a.io", "b.io/x", false)]
    #[case::glob_label("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu.amazonaws.com/x", true)]
    #[case::glob_inside_a_label("app*.k8s.io", "app1.k8s.io/x", true)]
    #[case::glob_does_not_cross_labels("*.io", "a.k8s.io/x", false)]
    #[case::fewer_labels("*.k8s.io", "k8s.io/x", false)]
    #[case::port_equal("a.io:5000", "a.io:5000/x", true)]
    #[case::port_differs("a.io:5000", "a.io:5001/x", false)]
    #[case::port_missing_in_image("a.io:5000", "a.io/x", false)]
    #[case::port_missing_in_key("a.io", "a.io:5000/x", false)]
    #[case::path("a.io/team", "a.io/team/x", true)]
    #[case::path_of_another("a.io/team", "a.io/other/x", false)]
    #[case::path_is_a_plain_prefix("a.io/team", "a.io/teams/x", true)]
    #[case::path_with_slash_last("a.io/team/", "a.io/team/x", true)]
    #[case::path_with_slash_last_is_a_folder("a.io/team/", "a.io/teams/x", false)]
    #[case::https("https://a.io", "a.io/x", true)]
    #[case::http("http://a.io/team", "a.io/team/x", true)]
    #[case::api_v1("https://a.io/v1/", "a.io/x", true)]
    #[case::api_v2_without_slash("https://a.io/v2", "a.io/x", true)]
    #[case::api_v2_with_path("https://a.io/v2/team", "a.io/team/x", true)]
    #[case::slash_alone("a.io/", "a.io/x", true)]
    #[case::hub_is_spelt_out("docker.io/library", "nginx", true)]
    #[case::capital_letters_in_host("A.IO", "a.io/x", true)]
    #[case::localhost("localhost:5000", "localhost:5000/x", true)]
    #[case::ipv6("[::1]:5000", "[::1]:5000/x", true)]
    #[case::ipv6_without_port("[2001:db8::1]", "[2001:db8::1]/x", true)]
    #[case::ipv6_other("[::1]:5000", "[::2]:5000/x", false)]
    #[case::class_in_first_label("[ab].io", "b.io/x", true)]
    fn fits(#[case] key: &str, #[case] image: &str, #[case] want: bool) {
        let image = ImageRef::parse(image).unwrap();
        assert_eq!(
            ImagePattern::parse(key)
                .unwrap()
                .matches(image.registry(), image.repository()),
            want
        );
    }

    #[rstest]
    #[case::empty("", PatternError::NoHost(String::new()))]
    #[case::path_alone("/x", PatternError::NoHost("/x".into()))]
    #[case::scheme_alone("https://", PatternError::NoHost("https://".into()))]
    #[case::open_bracket("[a.io", PatternError::BadGlob("[a.io".into()))]
    fn refuses(#[case] key: &str, #[case] want: PatternError) {
        assert_eq!(ImagePattern::parse(key), Err(want));
    }
}
