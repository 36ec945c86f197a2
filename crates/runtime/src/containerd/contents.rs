//! What of an image has to be fetched, and whether by us. Pure: documents in, decisions out.

use larder_model::Digest;
use larder_registry::manifest::Descriptor;
use serde::Deserialize;

use crate::sha256::sha256_of;

/// Less than this is not worth a lease and further requests.
const SMALL: u64 = 4 << 20;

/// Snapshotters that unpack what lies in the content store. Others (SOCI, stargz, nydus) fetch by themselves.
const LOCAL_SNAPSHOTTERS: [&str; 6] = ["overlayfs", "native", "btrfs", "zfs", "devmapper", "blockfile"];

/// Media types of ordinary layers, without the suffix that names the compression.
const LAYER_TYPES: [&str; 2] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
];
const COMPRESSIONS: [&str; 5] = ["", "+gzip", "+zstd", ".gzip", ".zstd"];

/// Whether layers have to be in the content store for this snapshotter.
pub(super) fn is_local_snapshotter(name: &str) -> bool {
    LOCAL_SNAPSHOTTERS.contains(&name)
}

/// Whether this is a layer as any other: not encrypted, not foreign, of a known kind.
pub(super) fn is_ordinary_layer(layer: &Descriptor) -> bool {
    LAYER_TYPES.iter().any(|base| {
        let rest = layer.media_type.strip_prefix(base);
        rest.is_some_and(|rest| COMPRESSIONS.contains(&rest))
    })
}

/// Whether so little is missing that nothing is gained.
pub(super) fn is_small(missing: &[Descriptor]) -> bool {
    missing.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size)) < SMALL
}

/// Names of the snapshots that the layers of an image unpack to, from the bottom up. `None`: the configuration does not
/// fit the layers.
pub(super) fn snapshot_keys(config: &[u8], layers: usize) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Config {
        rootfs: RootFs,
    }
    #[derive(Deserialize)]
    struct RootFs {
        diff_ids: Vec<Digest>,
    }
    let config: Config = serde_json::from_slice(config).ok()?;
    if config.rootfs.diff_ids.len() != layers {
        return None;
    }
    let mut keys: Vec<String> = Vec::with_capacity(layers);
    for diff_id in config.rootfs.diff_ids {
        let key = match keys.last() {
            None => diff_id.to_string(),
            Some(parent) => sha256_of(format!("{parent} {diff_id}").as_bytes()).to_string(),
        };
        keys.push(key);
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn layer(media_type: &str, size: u64) -> Descriptor {
        Descriptor {
            media_type: media_type.to_owned(),
            digest: Digest::sha256(&"a".repeat(64)).unwrap(),
            size,
            platform: None,
        }
    }

    #[rstest]
    #[case::oci("application/vnd.oci.image.layer.v1.tar+gzip", true)]
    #[case::zstd("application/vnd.oci.image.layer.v1.tar+zstd", true)]
    #[case::plain("application/vnd.oci.image.layer.v1.tar", true)]
    #[case::docker("application/vnd.docker.image.rootfs.diff.tar.gzip", true)]
    #[case::encrypted("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", false)]
    #[case::foreign("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", false)]
    #[case::nondistributable("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", false)]
    #[case::unknown("application/wasm", false)]
    fn ordinary_layers(#[case] media_type: &str, #[case] want: bool) {
        assert_eq!(is_ordinary_layer(&layer(media_type, 1)), want);
    }

    #[rstest]
    #[case("overlayfs", true)]
    #[case("stargz", false)]
    #[case("soci", false)]
    #[case("nydus", false)]
    #[case("", false)]
    fn local_snapshotters(#[case] name: &str, #[case] want: bool) {
        assert_eq!(is_local_snapshotter(name), want);
    }

    #[test]
    fn little_is_left_to_the_runtime() {
        assert!(is_small(&[]));
        assert!(is_small(&[layer("l", SMALL - 1)]));
        assert!(!is_small(&[layer("l", SMALL / 2), layer("l", SMALL / 2)]));
        assert!(!is_small(&[layer("l", u64::MAX), layer("l", 1)]));
    }

    #[test]
    fn snapshots_are_named_by_all_layers_below() {
        let ids = ["a", "b"].map(|digit| format!("sha256:{}", digit.repeat(64)));
        let config = serde_json::json!({"rootfs": {"type": "layers", "diff_ids": ids}}).to_string();
        let keys = snapshot_keys(config.as_bytes(), 2).unwrap();
        assert_eq!(keys[0], ids[0]);
        assert_eq!(
            keys[1],
            sha256_of(format!("{} {}", ids[0], ids[1]).as_bytes()).to_string()
        );
        assert_eq!(snapshot_keys(config.as_bytes(), 3), None);
        assert_eq!(snapshot_keys(b"{}", 0), None);
    }
}
