//! A node's key pair.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305;
use rustls::crypto::hpke::{Hpke, HpkePrivateKey, HpkePublicKey};
use sha2::{Digest, Sha256};

/// The one cipher suite. A second one would need a version of its own in [`crate::Sealed`].
pub(crate) fn suite() -> &'static dyn Hpke {
    DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305
}

/// An X25519 key has 32 bytes.
pub(crate) const KEY_LEN: usize = 32;

/// The half of a key pair that everybody may know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

/// Text that is no public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the node's public key is not {KEY_LEN} bytes in base64; its agent has to publish it again")]
pub struct PublicKeyError;

impl PublicKey {
    /// Reads the base64 text that stands in a NodeImage.
    pub fn parse(text: &str) -> Result<Self, PublicKeyError> {
        let bytes = STANDARD.decode(text).map_err(|_| PublicKeyError)?;
        Self::from_bytes(&bytes).ok_or(PublicKeyError)
    }

    /// A short text that tells keys apart.
    pub fn fingerprint(&self) -> String {
        hex_prefix(Sha256::digest(self.0))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn to_hpke(&self) -> HpkePublicKey {
        HpkePublicKey(self.0.to_vec())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// Half of a SHA-256 in hexadecimal: enough to tell things apart, short enough to stand beside each credential.
pub(crate) fn hex_prefix(hash: impl AsRef<[u8]>) -> String {
    hash.as_ref()
        .iter()
        .take(16)
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(hex_digit)
        .collect()
}

fn hex_digit(nibble: u8) -> Option<char> {
    char::from_digit(u32::from(nibble), 16)
}

/// Both halves. Stays on its node.
pub struct KeyPair {
    public: PublicKey,
    private: HpkePrivateKey,
}

impl KeyPair {
    /// A new pair; `None` if the operating system gives no randomness.
    pub(crate) fn generate() -> Option<Self> {
        let (public, private) = suite().generate_key_pair().ok()?;
        Some(Self {
            public: PublicKey::from_bytes(&public.0)?,
            private,
        })
    }

    /// Puts two halves together; `None` if they do not belong together.
    pub(crate) fn from_halves(public: PublicKey, private: Vec<u8>) -> Option<Self> {
        let pair = Self {
            public,
            private: private.into(),
        };
        let probe = b"do these halves fit";
        let (encapsulated, sealed) = suite().seal(probe, &[], probe, &pair.public.to_hpke()).ok()?;
        let opened = suite().open(&encapsulated, probe, &[], &sealed, &pair.private).ok()?;
        (opened == probe).then_some(pair)
    }

    /// The half to publish.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn private(&self) -> &HpkePrivateKey {
        &self.private
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("public", &self.public.to_string())
            .finish_non_exhaustive()
    }
}
