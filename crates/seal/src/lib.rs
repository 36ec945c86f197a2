//! Registry credentials that exactly one node can open, for exactly one image and claim.
//!
//! Each node has a key pair; the private key stays in a file on the node, the public key is in the node's
//! NodeImage. The controller [`seal()`]s credentials to that key together with a [`Binding`]: node name,
//! NodeImage uid, registry, image and claim. The node can [`open`] them only under the very same binding, so an
//! account that may edit NodeImages but not read Secrets cannot move a password to another node, registry or job.
//!
//! The box is HPKE (RFC 9180) in base mode, X25519 with HKDF-SHA256 and ChaCha20-Poly1305, as rustls offers it on top of
//! AWS-LC: a standard construction, tested there against the standard's vectors, already part of every binary that
//! speaks TLS, and fast on boards without AES instructions. Nothing is put together by hand here except the encoding
//! of the binding. Randomness is the library's own, from the operating system.
//!
//! Nothing here knows Kubernetes, and nothing secret appears in `Debug`, `Display` or an error.

mod binding;
mod key;
mod key_file;
mod login;
mod sealed;
#[cfg(test)]
mod tests;

pub use binding::Binding;
pub use key::{KeyPair, PublicKey, PublicKeyError};
pub use key_file::KeyFileError;
pub use login::Login;
pub use sealed::{OpenError, SealError, Sealed, open, seal, sealed_id};
