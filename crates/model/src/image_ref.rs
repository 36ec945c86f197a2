//! Image references with Docker's normalisation: what people type becomes registry, repository, and one tag or digest.
//!
//! `nginx`, `docker.io/nginx` and `docker.io/library/nginx:latest` are one value. Where a tag and a digest are both
//! given the digest is kept, because it alone says which content is meant. Nothing here asks a registry.

mod error;
mod grammar;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

pub use error::ImageRefError;

use crate::Digest;
use crate::text::{quoted, serde_as_text};

const DEFAULT_TAG: &str = "latest";

/// A reference to one image: where it lies, what it is called, and which tag or digest of it.
///
/// Ordered by familiar name, so that a sorted list reads as people expect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageRef {
    name: String,
    registry: String,
    repository: String,
    reference: Reference,
}

/// Which of a repository's images is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// By name; may point to something else tomorrow.
    Tag(Tag),
    /// By content.
    Digest(Digest),
}

/// A tag: up to 128 letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl ImageRef {
    /// Reads and normalises what a person wrote.
    pub fn parse(text: &str) -> Result<Self, ImageRefError> {
        grammar::refuse_what_is_no_reference(text)?;
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(Digest::parse(digest)?)),
            None => (text, None),
        };
        let (registry, rest) = grammar::split_registry(rest);
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(Tag::parse(tag)?)),
            None => (rest, None),
        };
        let reference = match (digest, tag) {
            (Some(digest), _) => Reference::Digest(digest),
            (None, Some(tag)) => Reference::Tag(tag),
            (None, None) => Reference::Tag(Tag(DEFAULT_TAG.to_owned())),
        };
        Self::assemble(registry, path, reference)
    }

    /// Puts a familiar name and a tag or digest together, as they stand in a NodeImage.
    pub fn from_parts(familiar_name: &str, tag_or_digest: &str) -> Result<Self, ImageRefError> {
        if familiar_name.contains('@') {
            return Err(ImageRefError::NameWithReference(quoted(familiar_name)));
        }
        if familiar_name.is_empty() || tag_or_digest.is_empty() {
            return Err(ImageRefError::Empty);
        }
        grammar::refuse_scheme(familiar_name)?;
        let (registry, path) = grammar::split_registry(familiar_name);
        if path.contains(':') {
            return Err(ImageRefError::NameWithReference(quoted(familiar_name)));
        }
        // A tag holds no colon and a digest always does, so the two cannot be taken for each other.
        let reference = if tag_or_digest.contains(':') {
            Reference::Digest(Digest::parse(tag_or_digest)?)
        } else {
            Reference::Tag(Tag::parse(tag_or_digest)?)
        };
        Self::assemble(registry, path, reference)
    }

    fn assemble(registry: &str, path: &str, reference: Reference) -> Result<Self, ImageRefError> {
        let registry = grammar::checked_registry(registry)?;
        let repository = grammar::checked_repository(registry, path)?;
        let name = grammar::familiar_name(registry, &repository);
        Ok(Self {
            name,
            registry: registry.to_owned(),
            repository,
            reference,
        })
    }

    /// The familiar name, which is the key in `NodeImage.spec.images`: `nginx`, `foo/bar`, `host:5000/x/y`.
    ///
    /// Docker Hub's host is left out, except where the rest would then be read as something else.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tag or digest.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// What stands in a NodeImage's `tag`: `latest` or `sha256:…`.
    pub fn tag_text(&self) -> String {
        self.reference.to_string()
    }

    /// The host, with its port if one was given: `docker.io`, `host:5000`, `[::1]:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path inside the registry: `library/nginx`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The short form for people and for CRI: `nginx:latest` or `nginx@sha256:…`.
    pub fn familiar(&self) -> String {
        format!("{}{}{}", self.name, self.reference.separator(), self.reference)
    }

    /// The full form: `docker.io/library/nginx:latest` or `docker.io/library/nginx@sha256:…`.
    pub fn canonical(&self) -> String {
        format!(
            "{}/{}{}{}",
            self.registry,
            self.repository,
            self.reference.separator(),
            self.reference
        )
    }
}

impl Reference {
    fn separator(&self) -> char {
        match self {
            Reference::Tag(_) => ':',
            Reference::Digest(_) => '@',
        }
    }

    /// The digest, where the reference is one.
    pub fn digest(&self) -> Option<&Digest> {
        match self {
            Reference::Tag(_) => None,
            Reference::Digest(digest) => Some(digest),
        }
    }
}

impl Tag {
    /// Checks and takes a tag.
    pub fn parse(text: &str) -> Result<Self, ImageRefError> {
        grammar::check_tag(text)?;
        Ok(Self(text.to_owned()))
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.familiar())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Tag(tag) => tag.fmt(f),
            Reference::Digest(digest) => digest.fmt(f),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ImageRef {
    type Err = ImageRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for ImageRef {
    type Error = ImageRefError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::parse(text)
    }
}

impl FromStr for Tag {
    type Err = ImageRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

serde_as_text!(ImageRef);
serde_as_text!(Tag);
