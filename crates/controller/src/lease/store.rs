//! The Lease object in the API server: read, create and replace, each within five seconds.
//!
//! Replacing carries the version that was read, so it fails when anybody wrote in between. The times in the Lease are
//! written for people who look at it; nothing here reads them back.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use thiserror::Error;
use tokio::time::timeout;

use super::state::{Observed, Record, Swap};

/// Longer than any answer takes, and short enough that a leader whose request hangs has stopped writing in time.
const CALL: Duration = Duration::from_secs(5);

/// Why a Lease could not be read or written.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    #[error("somebody else wrote the lease first")]
    Conflict,
    #[error("no answer within {CALL:?}")]
    NoAnswer,
    #[error("the API server does not serve it")]
    Api(#[from] kube::Error),
}

pub(super) struct Store {
    leases: Api<Lease>,
    name: String,
    duration: Duration,
}

impl Store {
    pub(super) fn new(leases: Api<Lease>, name: String, duration: Duration) -> Self {
        Self { leases, name, duration }
    }

    pub(super) async fn look(&self) -> Result<Observed, StoreError> {
        let found = within(self.leases.get_opt(&self.name)).await?;
        Ok(found.map_or(Observed::Absent, |lease| Observed::Present(record(&lease))))
    }

    /// `acquired` is when this holder became leader; None if that is what this write is for.
    pub(super) async fn swap(&self, swap: &Swap, acquired: Option<Timestamp>) -> Result<Record, StoreError> {
        let lease = self.lease(swap, acquired);
        let parameters = PostParams::default();
        let written = match swap.base {
            None => within(self.leases.create(&parameters, &lease)).await?,
            Some(_) => within(self.leases.replace(&self.name, &parameters, &lease)).await?,
        };
        Ok(record(&written))
    }

    fn lease(&self, swap: &Swap, acquired: Option<Timestamp>) -> Lease {
        let now = now();
        // A lease that was given back keeps the field, because the API server wants one.
        let seconds = swap
            .holder
            .as_ref()
            .map_or(1, |_| i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX));
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: swap.base.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                acquire_time: Some(MicroTime(acquired.unwrap_or(now))),
                holder_identity: Some(swap.holder.clone().unwrap_or_default()),
                lease_duration_seconds: Some(seconds),
                lease_transitions: Some(swap.transitions),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        }
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(seconds.unwrap_or_default()),
        transitions: spec.lease_transitions.unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, StoreError> {
    match timeout(CALL, call).await {
        Err(_) => Err(StoreError::NoAnswer),
        Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
            Err(StoreError::Conflict)
        }
        Ok(answer) => Ok(answer?),
    }
}

/// The wall clock, for people who read the Lease.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the election that reads the clock, and only to show it"
)]
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::error_chain::chain;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_api_server_alone() {
        let status = Status::failure("namespaces \"larder\" not found", "NotFound").with_code(404);
        let error = StoreError::from(kube::Error::Api(Box::new(status)));
        let told = "the API server does not serve it: namespaces \"larder\" not found";
        assert_eq!(chain(&error), told);
    }
}
