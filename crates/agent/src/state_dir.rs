//! The agent's directory on disk: the node's key and the ledger, readable by the agent alone.

use std::path::Path;

use larder_private_files::{DirectoryError, claim_directory};
use larder_seal::{KeyFileError, KeyPair};

const KEY_FILE: &str = "node.key";
pub(crate) const LEDGER_FILE: &str = "ledger.redb";

/// Why the agent has no key.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The key in it.
    #[error(transparent)]
    Key(#[from] KeyFileError),
}

/// The node's key pair; makes the directory and the key if they do not exist yet.
pub fn node_key(state_dir: &Path) -> Result<KeyPair, StateError> {
    prepare(state_dir)?;
    Ok(KeyPair::load_or_create(&state_dir.join(KEY_FILE))?)
}

/// Makes the directory, or makes sure that other users cannot enter it.
pub(crate) fn prepare(state_dir: &Path) -> Result<(), DirectoryError> {
    // A key that is being written has a name that starts with `.tmp`.
    claim_directory(state_dir, &[KEY_FILE, LEDGER_FILE, ".tmp"])
}
