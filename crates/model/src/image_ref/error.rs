//! What can be wrong with an image reference, in sentences that say what to change.

use crate::DigestError;

/// Why a text is not an image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageRefError {
    /// Nothing was given.
    #[error("the image reference is empty; write for example nginx:1.27")]
    Empty,
    /// The id of an image in some runtime, which no registry knows.
    #[error("`{0}` is the id of an image, not a reference; write the image's name, for example nginx@sha256:…")]
    ImageId(String),
    /// A URL.
    #[error("`{0}` is a URL; leave out the part up to `://`")]
    Scheme(String),
    /// The name is longer than registries take.
    #[error("the image name has {found} characters, at most {max} are allowed")]
    TooLong {
        /// Characters found.
        found: usize,
        /// Characters allowed.
        max: usize,
    },
    /// A capital letter where only small ones are allowed.
    #[error("`{0}` has capital letters; image names are lower case")]
    Uppercase(String),
    /// The host, or what was read as one.
    #[error("`{0}` is not a registry host; write a host name or an address, IPv6 in brackets")]
    Host(String),
    /// The port behind the host.
    #[error("`{0}` is not a port; write a number between 1 and 65535 after the registry host")]
    Port(String),
    /// One part of the path between slashes.
    #[error(
        "`{0}` is not a part of an image name; use lower-case letters and digits, joined by `.`, `_`, `__` or hyphens"
    )]
    Path(String),
    /// The tag.
    #[error("`{0}` is not a tag; use up to 128 letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`")]
    Tag(String),
    /// The digest.
    #[error("the digest after `@` cannot be read")]
    Digest(#[from] DigestError),
    /// A tag or digest inside what should be a name alone.
    #[error("`{0}` should be a name alone; give its tag or digest separately")]
    NameWithReference(String),
}
