//! SHA-256 as a [`Digest`].

use larder_model::Digest;
use sha2::{Digest as _, Sha256};

/// Digest of these bytes.
pub(crate) fn sha256_of(bytes: &[u8]) -> Digest {
    finish(Sha256::new_with_prefix(bytes))
}

/// Digest of everything that was put into the hasher.
#[expect(clippy::expect_used, reason = "a SHA-256 always has 64 hexadecimal digits")]
pub(crate) fn finish(hasher: Sha256) -> Digest {
    let hex = hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            for nibble in [byte >> 4, byte & 15] {
                hex.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
            hex
        });
    Digest::sha256(&hex).expect("invariant: 64 lower-case hexadecimal digits are a SHA-256 digest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_input_has_the_well_known_digest() {
        assert_eq!(
            sha256_of(b"").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
