//! Helm, by its exact path, with folders of its own: neither its caches nor its plugins are those of the user.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tokio::process::Command;

use crate::environment::{HELM, cached};
use crate::{Result, command};

/// Longer than the time that Helm itself waits for hooks and pods, five minutes.
const DEADLINE: Duration = Duration::from_mins(6);

/// Runs helm with these arguments and gives back its outcome, good or bad.
pub async fn helm<A: AsRef<OsStr>>(kubeconfig: &Path, args: impl IntoIterator<Item = A>) -> Result<Output> {
    let mut helm = Command::new(cached(HELM, "helm")?);
    helm.arg("--kubeconfig").arg(kubeconfig).args(args);
    if let Some(folder) = kubeconfig.parent() {
        let own = folder.join("helm");
        helm.env("HELM_CACHE_HOME", own.join("cache"))
            .env("HELM_CONFIG_HOME", own.join("config"))
            .env("HELM_DATA_HOME", own.join("data"))
            .env("HOME", folder);
    }
    command::outcome_within(DEADLINE, "running helm", helm).await
}
