//! The words that every other crate speaks: image references, digests, node names, sizes, phases, reasons; and how foreign text
//! is made safe to show.
//!
//! Each type is valid by construction: text is checked once, where it enters, and not again. Nothing
//! here does IO, reads a clock, draws a random number or waits, and nothing knows Kubernetes.

mod byte_size;
mod check;
mod digest;
mod escape;
mod image_ref;
mod node_name;
mod percent;
mod phase;
mod pull_when;
mod reason;
mod text;

pub use byte_size::{ByteSize, ByteSizeError};
pub use check::Check;
pub use digest::{Algorithm, Digest, DigestError};
pub use escape::{escape_json, escape_line, escape_lines, escape_yaml};
pub use image_ref::{ImageRef, ImageRefError, Reference, Tag};
pub use node_name::{NodeName, NodeNameError};
pub use percent::{NotAPercentage, Percent};
pub use phase::Phase;
pub use pull_when::PullWhen;
pub use reason::{Reason, Retry};
pub use text::UnknownWord;
