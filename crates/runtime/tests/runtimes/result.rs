//! What the tests saw, for the table in docs/runtimes.md.

use std::fs;
use std::path::Path;

use larder_runtime::{RuntimeVersion, Support};
use larder_testkit::{ContainerdVersion, RuntimeKind};

use crate::node::Node;

/// Writes what a runtime did in a case; both are named as in `xtask/src/runtimes.rs`.
pub(crate) fn record(kind: RuntimeKind, case: &str, saw: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtimes").join(key(kind));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(case), format!("{saw}\n")).unwrap();
}

/// The same for something that a runtime can or cannot do.
pub(crate) async fn record_support(node: &Node, kind: RuntimeKind, case: &str, support: &Support) {
    match support.why_not() {
        None => record(kind, case, "yes"),
        Some(why) => {
            let version = node.runtime.version().await.unwrap();
            let why = why.replace(&version.to_string(), &short(&version));
            record(kind, case, &format!("no: {why}"));
        }
    }
}

/// Without the last part, which Debian changes with each correction.
pub(crate) fn short(version: &RuntimeVersion) -> String {
    let text = version.to_string();
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    parts[..2].join(".")
}

fn key(kind: RuntimeKind) -> &'static str {
    match kind {
        RuntimeKind::Containerd(ContainerdVersion::V1_6) => "containerd-1.6",
        RuntimeKind::Containerd(ContainerdVersion::V1_7) => "containerd-1.7",
        RuntimeKind::Containerd(ContainerdVersion::V2) => "containerd-2",
        RuntimeKind::CriO => "cri-o",
        RuntimeKind::Docker => "docker",
    }
}
