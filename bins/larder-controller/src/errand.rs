//! What the program does once instead of running: before an install, before an uninstall, and to see that all is well.
//! The chart's hooks run them. Each ends by itself, within a time of its own.

use std::time::Duration;

use clap::Subcommand;
use kube::Client;
use thiserror::Error;

use crate::{check, install_crds, uninstall};

/// No single request takes longer.
pub(crate) const REQUEST: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum Errand {
    /// Apply the CRDs over whatever stands there, and wait until they are served
    InstallCrds {
        /// Also while OpenKruise serves the same kinds; otherwise that is refused, with exit code 3
        #[arg(long)]
        even_beside_openkruise: bool,
    },
    /// Stop the controller, withdraw all orders, wait for the nodes to remove their pins, and free the jobs
    Uninstall {
        /// How long nodes may take
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        timeout_seconds: u64,

        /// Name of the controller's Deployment
        #[arg(long, value_name = "NAME", default_value = uninstall::DEPLOYMENT)]
        deployment: String,
    },
    /// See that the CRDs are ours, that a controller leads and that an agent answers on every node that is ready
    Check {
        /// How long they may take
        #[arg(long, value_name = "SECONDS", default_value_t = 180)]
        timeout_seconds: u64,
    },
}

/// Why an errand was not done.
#[derive(Debug, Error)]
pub(crate) enum ErrandError {
    /// The API server refused something or does not answer.
    #[error("cannot {doing}")]
    Api { doing: String, source: Box<kube::Error> },
    /// It does not answer in time.
    #[error("the API server took more than {} s to {doing}", REQUEST.as_secs())]
    Slow { doing: String },
    /// What was to be reached was not.
    #[error("{0}")]
    NotReached(String),
    /// It would do harm, and trying again would change nothing.
    #[error("{0}")]
    Refused(String),
}

impl Errand {
    pub(crate) async fn run(&self, client: Client, namespace: &str, identity: String) -> Result<(), ErrandError> {
        match self {
            Self::InstallCrds { even_beside_openkruise } => install_crds::run(client, *even_beside_openkruise).await,
            Self::Uninstall {
                timeout_seconds,
                deployment,
            } => {
                let timeout = Duration::from_secs(*timeout_seconds);
                uninstall::run(client, namespace, deployment, identity, timeout).await
            }
            Self::Check { timeout_seconds } => {
                check::run(client, namespace, Duration::from_secs(*timeout_seconds)).await
            }
        }
    }
}

/// A request with its limit; `doing` completes the sentence "cannot …".
pub(crate) async fn ask<T>(
    doing: impl Into<String>,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ErrandError> {
    let doing = doing.into();
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(ErrandError::Api {
            doing,
            source: Box::new(source),
        }),
        Err(_) => Err(ErrandError::Slow { doing }),
    }
}

impl ErrandError {
    /// The object is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.is_not_found()))
    }
}
