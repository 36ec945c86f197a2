//! containerd's configuration file, in the two dialects.

use std::path::Path;

use super::{ContainerdOptions, ContainerdVersion};

/// Left off everywhere: snapshotters that need special file systems, and what several instances would fight over.
const DISABLED: &str = r#"disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri",
]"#;

pub(super) fn text(folder: &Path, options: &ContainerdOptions) -> String {
    let downloads = options.max_concurrent_downloads;
    let discard = options.discard_unpacked_layers;
    let buffer = options.layer_fetch_buffer.unwrap_or(0);
    let folder = folder.display();
    let places = format!(
        r#"
root = "{folder}/root"
state = "{folder}/state"
{DISABLED}
[grpc]
address = "{folder}/containerd.sock"
[ttrpc]
address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/opt"
"#
    );
    match options.version {
        ContainerdVersion::V1_6 | ContainerdVersion::V1_7 => format!(
            r#"version = 2{places}
[plugins."io.containerd.grpc.v1.cri"]
max_concurrent_downloads = {downloads}
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
discard_unpacked_layers = {discard}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{folder}/cni"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{folder}/certs.d"
"#
        ),
        ContainerdVersion::V2 => format!(
            r#"version = 3{places}
[plugins."io.containerd.cri.v1.images"]
max_concurrent_downloads = {downloads}
discard_unpacked_layers = {discard}
concurrent_layer_fetch_buffer = {buffer}
[plugins."io.containerd.cri.v1.images".registry]
config_path = "{folder}/certs.d"
[plugins."io.containerd.transfer.v1.local"]
config_path = "{folder}/certs.d"
max_concurrent_downloads = {downloads}
concurrent_layer_fetch_buffer = {buffer}
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{folder}/cni"]
conf_dir = "{folder}/cni"
"#
        ),
    }
}

/// Reads the table of `ctr plugins ls`: `TYPE ID PLATFORMS STATUS`.
pub(crate) fn cri_state(plugins: &str) -> Result<(), String> {
    let cri = plugins
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|columns| matches!(columns.as_slice(), ["io.containerd.grpc.v1", "cri", ..]));
    match cri.as_deref() {
        Some([.., "ok"]) => Ok(()),
        Some([.., state]) => Err(format!("CRI is in state {state}")),
        _ => Err("CRI is not there".into()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::ready("io.containerd.grpc.v1    cri    linux/amd64    ok", Ok(()))]
    #[case::broken("io.containerd.grpc.v1    cri    linux/amd64    error", Err("CRI is in state error".into()))]
    #[case::absent("io.containerd.grpc.v1    images   -    ok", Err("CRI is not there".into()))]
    fn state_of_cri(#[case] plugins: &str, #[case] want: Result<(), String>) {
        assert_eq!(cri_state(plugins), want);
    }
}
