//! Names that do not meet when tests share a server.

use std::sync::atomic::{AtomicU32, Ordering};

/// A name that starts with `prefix` and that no other test uses: fit for a namespace, a node or a repository.
pub fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}-{:04x}", std::process::id(), rand::random::<u16>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_differ() {
        assert_ne!(unique_name("a"), unique_name("a"));
    }
}
