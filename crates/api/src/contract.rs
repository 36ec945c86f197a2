//! What the controller and a node's agent agree on: how a NodeImage is read and written between them.
//!
//! | part | written by | read by |
//! |---|---|---|
//! | `metadata.labels`, `spec` | the controller (and people, by hand) | the agent |
//! | `status` | the node's agent | the controller |
//!
//! Neither side writes the other's part, and neither replaces the object: [`spec_patch`] and [`status_patch`] make the writes.
//! Only the labels are written as a whole, as a copy of those of the Node.
//!
//! - **Order.** What an agent obeys is named by the object's uid and generation ([`OrderId`]). A new uid is adopted, a
//!   higher generation too; a lower one only after a fresh read confirms it (somebody restored etcd).
//! - **Version and claim.** A write with a new claim raises the entry's `version`, and the claim remembers it
//!   ([`ImageTagSpec::claim`]). A result counts for a claim if it answers that version or a later one ([`answer`]). An entry
//!   that is removed and made again has a version that none had before ([`first_version`]). A success stays in
//!   `lastSucceeded`, where no later failure overwrites it: what a job has, no other job takes back.
//! - **Time.** Orders carry durations only. `activeDeadlineSeconds` are the seconds that were left when the version was
//!   written; the agent counts them from its first sight of that version, on a clock that never jumps.
//! - **Credentials.** An entry names sealed credentials by id; they stand once per node ([`credentials`]).
//!
//! Everything here is a function of values.

mod claims;
mod order;
mod patch;

use serde::Serialize;
use thiserror::Error;

pub use claims::{Answer, answer, first_version};
pub use order::{OrderId, Standing};
pub use patch::{job_status_patch, json_of, spec_patch, status_patch};

use crate::node_image::{ImageTagSpec, ImageTagStatus, NodeImage, NodeImageSpec, SealedCredential};

/// Most image names in one NodeImage, as upstream.
pub const IMAGE_NAMES_MAX: usize = 256;

/// Largest NodeImage in bytes of JSON; a node whose object would grow beyond it counts as full. etcd takes 1.5 MB, but ten
/// thousand of these pass through every watch.
pub const NODE_IMAGE_BYTES_MAX: usize = 256 * 1024;

/// Longest `message` in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// An entry names a credential that is not there.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the entry names the sealed credential {id}, which this NodeImage does not hold")]
pub struct MissingCredential {
    /// The id that is named.
    pub id: String,
}

/// The sealed credentials that one entry may use, in the entry's order.
pub fn credentials<'a>(
    spec: &'a NodeImageSpec,
    entry: &ImageTagSpec,
) -> Result<Vec<&'a SealedCredential>, MissingCredential> {
    let find = |id: &String| {
        let found = spec.sealed_credentials.iter().find(|sealed| sealed.id == *id);
        found.ok_or_else(|| MissingCredential { id: id.clone() })
    };
    entry.credentials.iter().map(find).collect()
}

impl NodeImage {
    /// The entry for a familiar image name and tag.
    pub fn entry(&self, name: &str, tag: &str) -> Option<&ImageTagSpec> {
        self.spec.images.get(name)?.tags.iter().find(|entry| entry.tag == tag)
    }

    /// What the agent says about a familiar image name and tag.
    pub fn result(&self, name: &str, tag: &str) -> Option<&ImageTagStatus> {
        self.status
            .as_ref()?
            .image_statuses
            .get(name)?
            .tags
            .iter()
            .find(|status| status.tag == tag)
    }
}

/// How long an API type is as JSON.
pub fn json_bytes<T: Serialize>(value: &T) -> usize {
    let mut count = Count(0);
    // Counting cannot fail, and our own types have no failing serializer.
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// Counts what is written, and keeps none of it.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Cuts a message to [`MESSAGE_BYTES_MAX`], at a character boundary, and marks the cut.
pub fn shorten(message: &str) -> String {
    const MARK: &str = "…";
    if message.len() <= MESSAGE_BYTES_MAX {
        return message.to_owned();
    }
    let kept = message.floor_char_boundary(MESSAGE_BYTES_MAX - MARK.len());
    format!("{}{MARK}", &message[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_come_in_the_entrys_order() {
        let sealed = |id: &str| SealedCredential {
            id: id.into(),
            ..SealedCredential::default()
        };
        let spec = NodeImageSpec {
            sealed_credentials: vec![sealed("a"), sealed("b")],
            ..NodeImageSpec::default()
        };
        let entry = ImageTagSpec {
            credentials: vec!["b".into(), "a".into()],
            ..ImageTagSpec::default()
        };
        let found: Vec<&str> = credentials(&spec, &entry)
            .unwrap()
            .iter()
            .map(|sealed| sealed.id.as_str())
            .collect();
        assert_eq!(found, ["b", "a"]);
    }

    #[test]
    fn a_credential_that_is_not_there_is_named() {
        let entry = ImageTagSpec {
            credentials: vec!["gone".into()],
            ..ImageTagSpec::default()
        };
        let error = credentials(&NodeImageSpec::default(), &entry).unwrap_err();
        assert_eq!(error, MissingCredential { id: "gone".into() });
    }

    #[test]
    fn bytes_are_those_of_the_text() {
        let value = serde_json::json!({"a": "ü\n", "b": [1, null, {"c": true}]});
        assert_eq!(json_bytes(&value), value.to_string().len());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = "ü".repeat(2000);
        let short = shorten(&long);
        assert!(short.len() <= MESSAGE_BYTES_MAX);
        assert!(short.ends_with('…'));
        assert_eq!(shorten("fine"), "fine");
    }
}
