//! Where the programs of the test bed are, and what the test runner says about itself. The only reader of the
//! environment in this crate.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The newest Kubernetes that `tests/servers/setup` builds. Of older versions it builds the API server alone.
pub(crate) const KUBERNETES: &str = "kubernetes-1.36.3";
/// Debian's old kubectl, unpacked by the same script.
pub(crate) const KUBERNETES_DEBIAN: &str = "kubernetes-client-debian";
/// Debian's containerd 1.6, unpacked by the same script.
pub(crate) const CONTAINERD_DEBIAN: &str = "containerd-debian";
/// Debian's etcd, unpacked by the same script.
pub(crate) const ETCD_DEBIAN: &str = "etcd-debian";
/// Debian's docker-registry, unpacked by the same script.
pub(crate) const REGISTRY_DEBIAN: &str = "docker-registry-debian";
/// Debian's runc, unpacked by the same script.
pub(crate) const RUNC_DEBIAN: &str = "runc-debian";
/// Debian's network plugins, unpacked by the same script.
pub(crate) const CNI_DEBIAN: &str = "cni-debian";
/// A program that does nothing, built by the same script.
pub(crate) const PAUSE: &str = "pause-1";
/// `tests/go-client`, built by the same script.
pub(crate) const GO_CLIENT: &str = "go-client-1";
/// Helm, built by the same script.
pub(crate) const HELM: &str = "helm-3.22.0";
/// promtool, built by the same script.
pub(crate) const PROMETHEUS: &str = "prometheus-0.315.0";
/// The current containerd, built by the same script.
pub(crate) const CONTAINERD: &str = "containerd-2.4.2";
/// The last of containerd's releases before 2.0, built by the same script.
pub(crate) const CONTAINERD_1_7: &str = "containerd-1.7.28";
/// CRI-O, built by the same script.
pub(crate) const CRI_O: &str = "cri-o-1.34.0";
/// Debian's conmon, without which CRI-O does not start, unpacked by the same script.
pub(crate) const CONMON_DEBIAN: &str = "conmon-debian";
/// Debian's Docker 20.10, unpacked by the same script.
pub(crate) const DOCKER_DEBIAN: &str = "docker-debian";
/// CRI for Docker, built by the same script.
pub(crate) const CRI_DOCKERD: &str = "cri-dockerd-0.3.14";

/// The version of the API server that the tests run against, for example `1.27.4`.
pub(crate) fn kubernetes_version() -> String {
    let newest = || KUBERNETES.trim_start_matches("kubernetes-").to_owned();
    variable("LARDER_TEST_KUBERNETES").unwrap_or_else(newest)
}

/// A program of the test bed that stands in the cache folder, for example `kubernetes-1.36.3/kubectl`.
pub(crate) fn cached(folder: &str, program: &str) -> Result<PathBuf> {
    present(cache_folder().join("servers").join(folder).join(program))
}

/// A command that a Debian package installs, looked for as `tests/servers/setup` does.
pub(crate) fn installed(command: &str) -> Result<PathBuf> {
    let folders = variable("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).find_map(|folder| present(folder.join(command)).ok());
    found.ok_or_else(|| Error::Missing { path: command.into() })
}

fn present(path: PathBuf) -> Result<PathBuf> {
    if path.is_file() {
        Ok(path)
    } else {
        Err(Error::Missing { path })
    }
}

/// An error for users that cannot start this server.
pub(crate) fn require_root(server: &str) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Io {
        doing: format!("starting {server}, which works for root only: run these tests as root"),
        source: std::io::ErrorKind::PermissionDenied.into(),
    })
}

/// The same rule as in `tests/servers/setup`.
fn cache_folder() -> PathBuf {
    if let Some(folder) = variable("LARDER_CACHE") {
        return PathBuf::from(folder);
    }
    let home = || std::env::home_dir().unwrap_or_default().join(".cache");
    variable("XDG_CACHE_HOME")
        .map_or_else(home, PathBuf::from)
        .join("larder")
}

/// The id that nextest gives to one run of the tests; all its test processes see the same one.
pub(crate) fn nextest_run_id() -> Option<String> {
    variable("NEXTEST_RUN_ID")
}

/// Where servers keep their data: memory if there is enough of it, which makes etcd and containerd quick.
pub(crate) fn data_folder() -> PathBuf {
    const ENOUGH: u64 = 1 << 30;
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    if free >= ENOUGH {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests have no command line of their own; this module stands in for it"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
