//! What sealed credentials are good for, as bytes that no two bindings share.

use larder_model::{ImageRef, NodeName};

/// The one use that sealed credentials serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    /// The node.
    pub node: &'a NodeName,
    /// Uid of the node's NodeImage: a node that was made anew is another one.
    pub node_image_uid: &'a str,
    /// The image that will be pulled, and with it the registry that will see the password.
    pub image: &'a ImageRef,
    /// Uid of the job, or of whatever else the work is done for.
    pub claim_uid: &'a str,
}

impl Binding<'_> {
    /// Every part behind its length, so that moving a letter from one part to the next gives other bytes.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        length_prefixed([
            self.node.as_str(),
            self.node_image_uid,
            self.image.registry(),
            self.image.repository(),
            &self.image.tag_text(),
            self.claim_uid,
        ])
    }
}

pub(crate) fn length_prefixed<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn different_parts_give_different_bytes(a in prop::collection::vec("[ab]{0,3}", 0..4), b in prop::collection::vec("[ab]{0,3}", 0..4)) {
            let bytes = |parts: &[String]| length_prefixed(parts.iter().map(String::as_str));
            prop_assert_eq!(bytes(&a) == bytes(&b), a == b);
        }
    }
}
