//! Finds the runtime that the kubelet of this machine uses.

use std::{fmt, os::unix::fs::FileTypeExt as _, path::Path, time::Duration};

use crate::{ImageRuntime as _, RuntimeEndpoint, RuntimeVersion, cri::CriRuntime};

/// Where sockets are, below the root, in the order of asking.
///
/// Distributions that bring a containerd of their own come first: where one of their sockets answers, the kubelet uses
/// it, whatever else is installed on the machine (Debian's Docker brings a containerd whose CRI answers, too). The rest
/// is OpenKruise's order.
const SOCKETS: [&str; 9] = [
    "run/k3s/containerd/containerd.sock", // K3s and RKE2
    "run/k0s/containerd.sock",
    "var/snap/microk8s/common/run/containerd.sock",
    "run/containerd.sock",
    "run/containerd/containerd.sock",
    "run/crio.sock",
    "run/crio/crio.sock",
    "run/cri-dockerd.sock",
    "run/cri-dockerd/cri-dockerd.sock",
];

/// How long one socket may take to say who it is.
const LIMIT: Duration = Duration::from_secs(5);

/// A socket that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    /// Where.
    pub endpoint: RuntimeEndpoint,
    /// Who.
    pub version: RuntimeVersion,
}

/// No socket answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDetected {
    /// Each place, and why it was no runtime.
    pub tried: Vec<(RuntimeEndpoint, String)>,
}

/// Asks every known socket below `root` who it is; the first that answers CRI v1 wins.
pub async fn detect(root: &Path) -> Result<Detected, NotDetected> {
    let mut tried = Vec::new();
    for socket in SOCKETS {
        let endpoint = RuntimeEndpoint::at(root.join(socket));
        match ask(&endpoint, root).await {
            Ok(version) => return Ok(Detected { endpoint, version }),
            Err(why) => tried.push((endpoint, why)),
        }
    }
    Err(NotDetected { tried })
}

async fn ask(endpoint: &RuntimeEndpoint, root: &Path) -> Result<RuntimeVersion, String> {
    let file = std::fs::metadata(endpoint.path()).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "is not there".to_owned(),
        _ => error.to_string(),
    })?;
    if !file.file_type().is_socket() {
        return Err("is no socket".to_owned());
    }
    let runtime = CriRuntime::with_limit(endpoint, root, LIMIT).map_err(|error| error.text())?;
    runtime.version().await.map_err(|error| error.text())
}

impl fmt::Display for NotDetected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no container runtime answers; name its socket with --runtime-endpoint. Tried: ")?;
        for (number, (endpoint, why)) in self.tried.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{} {why}", endpoint.path().display())?;
        }
        Ok(())
    }
}

impl std::error::Error for NotDetected {}

#[cfg(test)]
mod tests;
