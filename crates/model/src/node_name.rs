//! Names of nodes: RFC 1123 subdomains, as Kubernetes demands of a Node's name.

use std::fmt;
use std::str::FromStr;

use crate::text::{quoted, serde_as_text};

/// The limit Kubernetes puts on a name that is a subdomain.
const MAX_LEN: usize = 253;

/// The name of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

/// Why a text is not the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeNameError {
    /// Nothing was given.
    #[error("the node name is empty")]
    Empty,
    /// Longer than Kubernetes allows.
    #[error("the node name has {0} characters, at most {MAX_LEN} are allowed")]
    TooLong(usize),
    /// Not labels of lower-case letters, digits and hyphens, joined by dots.
    #[error(
        "`{0}` is not a node name; use lower-case letters, digits, `-` and `.`, with a letter or digit at both ends of every part"
    )]
    Malformed(String),
}

impl NodeName {
    /// Checks and takes a name.
    pub fn parse(text: &str) -> Result<Self, NodeNameError> {
        if text.is_empty() {
            return Err(NodeNameError::Empty);
        }
        if MAX_LEN < text.len() {
            return Err(NodeNameError::TooLong(text.chars().count()));
        }
        if !text.split('.').all(is_label) {
            return Err(NodeNameError::Malformed(quoted(text)));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for NodeName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = NodeNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

serde_as_text!(NodeName);

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("node-1")]
    #[case::one_letter("a")]
    #[case::digits("10")]
    #[case::dotted("ip-10-0-0-1.eu-west-1.compute.internal")]
    #[case::long_label("x123456789012345678901234567890123456789012345678901234567890123456789")]
    fn accepts(#[case] text: &str) {
        let name = NodeName::parse(text).unwrap();
        assert_eq!(name.as_str(), text);
        assert_eq!(serde_json::from_str::<NodeName>(&format!("\"{text}\"")).unwrap(), name);
    }

    #[rstest]
    #[case::upper_case("Node")]
    #[case::underscore("a_b")]
    #[case::hyphen_first("-a")]
    #[case::hyphen_last("a-")]
    #[case::hyphen_before_dot("a-.b")]
    #[case::empty_label("a..b")]
    #[case::dot_first(".a")]
    #[case::dot_last("a.")]
    #[case::slash("a/b")]
    #[case::space("a b")]
    #[case::umlaut("knötchen")]
    fn refuses(#[case] text: &str) {
        assert_eq!(NodeName::parse(text), Err(NodeNameError::Malformed(text.to_owned())));
    }

    #[test]
    fn refuses_nothing_and_too_much() {
        assert_eq!(NodeName::parse(""), Err(NodeNameError::Empty));
        assert!(NodeName::parse(&"a".repeat(253)).is_ok());
        assert_eq!(NodeName::parse(&"a".repeat(254)), Err(NodeNameError::TooLong(254)));
    }
}
