//! The Go program of `tests/go-client`, by its exact path.

use std::path::PathBuf;

use crate::Result;
use crate::environment::{GO_CLIENT, cached};

/// Where the program is.
pub fn go_client() -> Result<PathBuf> {
    cached(GO_CLIENT, "go-client")
}
