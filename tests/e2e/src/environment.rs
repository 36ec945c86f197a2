//! What a run is told from outside: tests have no command line of their own. The only reader of the environment in this
//! crate.

use std::path::PathBuf;

/// A folder that holds the programs already: a run of hours then keeps them while the sources change.
pub(crate) fn programs() -> Option<PathBuf> {
    variable("LARDER_PROGRAMS").map(PathBuf::from)
}

/// The number that a run draws its chances from: `LARDER_SEED`, which repeats an earlier run, else a new one.
pub fn seed() -> u64 {
    variable("LARDER_SEED").map_or_else(rand::random, |text| text.parse().unwrap())
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests have no command line of their own; this stands in for it"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
