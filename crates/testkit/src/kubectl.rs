//! kubectl, by its exact path: another one on the search path does not get in the way.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;

use tokio::process::Command;

use crate::environment::{KUBERNETES, KUBERNETES_DEBIAN, cached};
use crate::{Result, command};

/// Which kubectl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubectl {
    /// 1.20, from Debian's packages.
    Debian,
    /// 1.36, of the newest release that tests run against.
    Current,
}

/// Runs kubectl with these arguments and gives back its outcome, good or bad.
pub async fn kubectl<A: AsRef<OsStr>>(
    which: Kubectl,
    kubeconfig: &Path,
    args: impl IntoIterator<Item = A>,
) -> Result<Output> {
    command::outcome("running kubectl", prepared(which, kubeconfig, args)?).await
}

/// Runs `kubectl edit` with these arguments; the editor is a shell command that gets the name of the file behind it.
pub async fn kubectl_edit<A: AsRef<OsStr>>(
    kubeconfig: &Path,
    editor: &str,
    args: impl IntoIterator<Item = A>,
) -> Result<Output> {
    let mut kubectl = prepared(Kubectl::Current, kubeconfig, [OsStr::new("edit")])?;
    kubectl.args(args).env("KUBE_EDITOR", editor);
    command::outcome("running kubectl edit", kubectl).await
}

fn prepared<A: AsRef<OsStr>>(which: Kubectl, kubeconfig: &Path, args: impl IntoIterator<Item = A>) -> Result<Command> {
    let path = match which {
        Kubectl::Debian => cached(KUBERNETES_DEBIAN, "kubectl")?,
        Kubectl::Current => cached(KUBERNETES, "kubectl")?,
    };
    let mut kubectl = Command::new(path);
    kubectl.arg("--kubeconfig").arg(kubeconfig).args(args);
    // A cache of discovery that outlives the server would mix up control planes on the same port.
    if let Some(folder) = kubeconfig.parent() {
        kubectl.env("HOME", folder);
    }
    Ok(kubectl)
}
