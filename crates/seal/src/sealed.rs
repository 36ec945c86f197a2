//! Sealing and opening.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_model::Reason;
use rustls::crypto::hpke::EncapsulatedSecret;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::binding::length_prefixed;
use crate::key::{KEY_LEN, hex_prefix, suite};
use crate::{Binding, KeyPair, Login, PublicKey, login};

/// Says what the box is for, so that a box of another protocol with the same key is not taken for one of ours.
const PURPOSE: &[u8] = b"larder registry credentials v1";

/// First byte of the sealed bytes.
const VERSION: u8 = 1;

/// Some registries use JSON keys of two to three kilobytes as passwords; a NodeImage must stay below 256.
const MAX_PLAINTEXT: usize = 16 * 1024;

/// Credentials that one node can open. Holds nothing secret in the clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The name by which entries refer to it.
    pub id: String,
    /// Fingerprint of the key it was sealed to.
    pub key: String,
    /// The sealed bytes in base64.
    pub data: String,
}

/// Why credentials could not be sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Too much for a NodeImage.
    #[error("the credentials have {found} bytes, at most {MAX_PLAINTEXT} can be sealed; use a smaller pull secret")]
    TooLarge {
        /// Bytes found.
        found: usize,
    },
    /// The node's public key cannot be used for sealing.
    #[error("nothing can be sealed to the node's public key; its agent has to make a new one")]
    UnusableKey,
}

/// Why sealed credentials could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// They are not for us, not for this, or not as they were sealed. The box does not tell which, by design.
    #[error(
        "the sealed credentials {id} do not open: they were sealed for another key, node, image or job, or changed on the way"
    )]
    Refused {
        /// Which.
        id: String,
    },
    /// They opened, and what is inside is from another version of this software.
    #[error("the sealed credentials {id} opened but cannot be read; controller and agent must be of versions that fit")]
    Malformed {
        /// Which.
        id: String,
    },
}

impl OpenError {
    /// The reason to report.
    pub fn reason(&self) -> Reason {
        Reason::CredentialsUnreadable
    }
}

/// The id that [`seal()`] would give. It depends on the key, the binding and `source`, so that who finds it in a NodeImage
/// knows that there is nothing to seal again.
///
/// `source` says which state of the Secrets the credentials come from, for example their uids and resource versions. It
/// must not be secret, nor made from the credentials: a hash of a password can be guessed.
pub fn sealed_id(key: &PublicKey, binding: &Binding<'_>, source: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(length_prefixed([key.fingerprint().as_str(), source]));
    hash.update(binding.to_bytes());
    hex_prefix(hash.finalize())
}

/// Seals credentials to a node's key for one use.
pub fn seal(key: &PublicKey, binding: &Binding<'_>, source: &str, logins: &[Login]) -> Result<Sealed, SealError> {
    let text = login::to_text(logins).ok_or(SealError::TooLarge { found: usize::MAX })?;
    let found = text.expose_secret().len();
    if MAX_PLAINTEXT < found {
        return Err(SealError::TooLarge { found });
    }
    let (encapsulated, ciphertext) = suite()
        .seal(
            PURPOSE,
            &binding.to_bytes(),
            text.expose_secret().as_bytes(),
            &key.to_hpke(),
        )
        .map_err(|_| SealError::UnusableKey)?;
    let bytes = [&[VERSION][..], &encapsulated.0, &ciphertext].concat();
    Ok(Sealed {
        id: sealed_id(key, binding, source),
        key: key.fingerprint(),
        data: STANDARD.encode(bytes),
    })
}

/// Opens credentials that were sealed to this key for this use.
pub fn open(pair: &KeyPair, binding: &Binding<'_>, sealed: &Sealed) -> Result<Vec<Login>, OpenError> {
    let text = unseal(pair, binding, &sealed.data).ok_or_else(|| OpenError::Refused { id: sealed.id.clone() })?;
    login::from_text(&text).ok_or_else(|| OpenError::Malformed { id: sealed.id.clone() })
}

fn unseal(pair: &KeyPair, binding: &Binding<'_>, data: &str) -> Option<SecretString> {
    let bytes = STANDARD.decode(data).ok()?;
    let (version, rest) = bytes.split_first()?;
    let (encapsulated, ciphertext) = rest.split_at_checked(KEY_LEN)?;
    if *version != VERSION {
        return None;
    }
    let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
    let opened = suite()
        .open(&encapsulated, PURPOSE, &binding.to_bytes(), ciphertext, pair.private())
        .ok()?;
    String::from_utf8(opened).ok().map(SecretString::from)
}
