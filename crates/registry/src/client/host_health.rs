//! Which hosts of a repository failed, so that one that is away is not asked for every part of an image.
//!
//! A host that failed comes after all others from then on, and is asked again only when they fail too. A host that merely
//! lacks a blob comes last for that blob alone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use larder_model::{Digest, Reason};

use super::RegistryError;

/// What one host did so far.
#[derive(Debug, Default)]
pub(super) struct HostHealth {
    has_failed: AtomicBool,
    lacks: Mutex<BTreeSet<Digest>>,
}

impl HostHealth {
    /// Takes note of a failure. `blob` is what was asked for, where it was a blob.
    pub(super) fn failed(&self, blob: Option<&Digest>, error: &RegistryError) {
        if is_failure_of_the_host(error) {
            self.has_failed.store(true, Ordering::Relaxed);
        } else if let Some(blob) = blob {
            self.lacks().insert(blob.clone());
        }
    }

    /// The host answered.
    pub(super) fn answered(&self) {
        self.has_failed.store(false, Ordering::Relaxed);
    }

    /// Whether the host should be asked before those that failed.
    pub(super) fn is_good_for(&self, blob: Option<&Digest>) -> bool {
        !self.has_failed.load(Ordering::Relaxed) && blob.is_none_or(|blob| !self.lacks().contains(blob))
    }

    fn lacks(&self) -> std::sync::MutexGuard<'_, BTreeSet<Digest>> {
        self.lacks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether another request to the same host would probably fail too.
fn is_failure_of_the_host(error: &RegistryError) -> bool {
    error.retry_after.is_some()
        || matches!(
            error.reason,
            Reason::Unreachable | Reason::Stalled | Reason::Timeout | Reason::Dns | Reason::Tls | Reason::RateLimited
        )
}

/// Why every host failed. The registry's own error says more than that of a mirror, whichever came last.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    of_registry: Option<RegistryError>,
    of_mirror: Option<RegistryError>,
}

impl Failures {
    pub(crate) fn add(&mut self, is_mirror: bool, error: RegistryError) {
        let place = if is_mirror {
            &mut self.of_mirror
        } else {
            &mut self.of_registry
        };
        *place = Some(error);
    }

    pub(crate) fn into_error(self) -> RegistryError {
        self.of_registry.or(self.of_mirror).unwrap_or_else(|| {
            RegistryError::new(
                Reason::Internal,
                "no host in hosts.toml has the capability that is needed",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn digest(digit: &str) -> Digest {
        Digest::sha256(&digit.repeat(64)).unwrap()
    }

    #[rstest]
    #[case::away(Reason::Unreachable, false, false)]
    #[case::no_name(Reason::Dns, false, false)]
    #[case::limits(Reason::RateLimited, false, false)]
    #[case::lacks_the_blob(Reason::NotFound, false, true)]
    #[case::refuses_the_blob(Reason::AuthDenied, false, true)]
    fn what_a_failure_says_about_later_requests(
        #[case] reason: Reason,
        #[case] good_for_the_same: bool,
        #[case] good_for_others: bool,
    ) {
        let health = HostHealth::default();
        assert!(health.is_good_for(Some(&digest("a"))));
        health.failed(Some(&digest("a")), &RegistryError::new(reason, "failed"));
        assert_eq!(health.is_good_for(Some(&digest("a"))), good_for_the_same);
        assert_eq!(health.is_good_for(Some(&digest("b"))), good_for_others);
        health.answered();
        assert!(health.is_good_for(Some(&digest("b"))));
    }

    #[test]
    fn the_registrys_own_error_counts_whichever_came_last() {
        let mut failures = Failures::default();
        failures.add(false, RegistryError::new(Reason::NotFound, "of the registry"));
        failures.add(true, RegistryError::new(Reason::Dns, "of a mirror"));
        assert_eq!(failures.into_error().message, "of the registry");
        assert_eq!(Failures::default().into_error().reason, Reason::Internal);
    }
}
