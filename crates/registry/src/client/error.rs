//! What went wrong with a registry, sorted into the closed set of reasons.

use std::error::Error;
use std::io;
use std::time::Duration;

use larder_model::Reason;
use reqwest::StatusCode;

use super::transport::{LookupFailed, RefusedRedirect};
use crate::manifest::ManifestError;

/// A failure of a registry, or on the way to it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RegistryError {
    /// What kind of failure.
    pub reason: Reason,
    /// What we were doing, and the registry's own words if it had some.
    pub message: String,
    /// How long the registry asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The status of an answer that is a refusal.
    pub(super) status: Option<StatusCode>,
    /// The refusal came from a host to which the registry redirects.
    pub(super) is_elsewhere: bool,
    /// No connection could be made.
    pub is_unconnected: bool,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl RegistryError {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
            status: None,
            is_elsewhere: false,
            is_unconnected: false,
            source: None,
        }
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What is wrong with the image's manifest, where that is what failed.
    pub fn manifest_error(&self) -> Option<&ManifestError> {
        self.source.as_deref()?.downcast_ref()
    }

    /// A request that got no answer. The address is left out of the cause: a redirected one may carry a signature.
    pub(super) fn from_send(doing: &str, error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut failure = Self::new(reason_of(&error), format!("{doing} failed"));
        failure.is_unconnected = error.is_connect() && failure.reason != Reason::Tls;
        failure.caused_by(error)
    }

    /// An answer that is a refusal.
    pub(super) fn from_status(doing: &str, status: StatusCode, said: &str, retry_after: Option<Duration>) -> Self {
        let reason = match status.as_u16() {
            401 | 403 => Reason::AuthDenied,
            404 => Reason::NotFound,
            429 => Reason::RateLimited,
            408 | 500..=599 => Reason::Unreachable,
            _ => Reason::Internal,
        };
        let said = if said.is_empty() {
            String::new()
        } else {
            format!(": {said}")
        };
        let mut error = Self::new(reason, format!("{doing} was answered with {status}{said}"));
        error.retry_after = retry_after;
        error.status = Some(status);
        error
    }

    /// A failure to keep what was received.
    pub(super) fn from_write(doing: &str, error: io::Error) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let reason = if full { Reason::NoSpace } else { Reason::Internal };
        Self::new(reason, format!("{doing} failed")).caused_by(error)
    }

    /// A registry that asked for a pause, which is not over yet.
    pub(super) fn paused(doing: &str, left: Duration) -> Self {
        // Rounded up: a wait of less than a second is still a wait.
        let left = Duration::from_secs(left.as_secs() + u64::from(0 < left.subsec_nanos()));
        let message = format!(
            "{doing} was put off: the registry asked to retry after {} s",
            left.as_secs()
        );
        let mut error = Self::new(Reason::RateLimited, message);
        error.retry_after = Some(left);
        error
    }

    /// Whether the registry has to be asked for a new address: signed addresses of blob stores end.
    pub(crate) fn wants_a_new_address(&self) -> bool {
        self.is_elsewhere && self.reason == Reason::AuthDenied
    }

    /// Whether the host cannot give a part of a blob. It may still be able to give the whole of it.
    pub(crate) fn refuses_ranges(&self) -> bool {
        let refusals = [
            StatusCode::BAD_REQUEST,
            StatusCode::METHOD_NOT_ALLOWED,
            StatusCode::RANGE_NOT_SATISFIABLE,
            StatusCode::NOT_IMPLEMENTED,
        ];
        self.status.is_some_and(|status| refusals.contains(&status))
    }

    /// Whether sending the same request again may help at once.
    pub(crate) fn is_passing(&self) -> bool {
        self.retry_after.is_none() && matches!(self.reason, Reason::Unreachable | Reason::Stalled | Reason::Timeout)
    }
}

fn reason_of(error: &reqwest::Error) -> Reason {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(current) = cause {
        // TLS looks at the name before the resolver does.
        if current.is::<LookupFailed>() || current.is::<rustls::pki_types::InvalidDnsNameError>() {
            return Reason::Dns;
        }
        if current.is::<rustls::Error>() {
            return Reason::Tls;
        }
        if let Some(refused) = current.downcast_ref::<RefusedRedirect>() {
            return match refused {
                RefusedRedirect::Downgrade => Reason::Tls,
                RefusedRedirect::Circle | RefusedRedirect::OtherHost => Reason::Unreachable,
            };
        }
        // An I/O error hides the error inside it from `source`.
        let inside = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match inside {
            Some(inside) => Some(inside),
            None => current.source(),
        };
    }
    if error.is_builder() {
        Reason::Internal
    } else {
        Reason::Unreachable
    }
}
