//! Under which names a node of the demonstration really has its images: read from its own folder, past everything that was
//! reported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Where an OCI layout keeps an image's name.
const NAME: &str = "org.opencontainers.image.ref.name";

/// A second name follows the pull; it takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// How often the folder is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// The folders of all nodes.
pub(super) struct ImageStores {
    nodes: PathBuf,
}

impl ImageStores {
    /// Those of this data folder.
    pub(super) fn of(data: &Path) -> Self {
        Self {
            nodes: data.join("nodes"),
        }
    }

    /// The names that a node has for an image, as soon as it has all of these; whatever it has when the time is over.
    pub(super) async fn names(&self, node: &str, wanted: &[&str]) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let all = self.all(node);
            let found: Vec<String> = wanted
                .iter()
                .filter(|name| all.contains(**name))
                .map(|name| (*name).to_owned())
                .collect();
            if found.len() == wanted.len() || LIMIT < begun.elapsed() {
                return found;
            }
            sleep(LOOK).await;
        }
    }

    fn all(&self, node: &str) -> BTreeSet<String> {
        let index = self.nodes.join(node).join("images/index.json");
        let index: Value = std::fs::read(index)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let manifests = index["manifests"].as_array().into_iter().flatten();
        let names = manifests.filter_map(|manifest| manifest["annotations"][NAME].as_str());
        names.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("nodes/node-1/images");
        std::fs::create_dir_all(&images).unwrap();
        let index = json!({ "manifests": [{ "annotations": { NAME: "a/b:1" } }, {}] });
        std::fs::write(images.join("index.json"), index.to_string()).unwrap();
        let stores = ImageStores::of(folder.path());
        assert_eq!(stores.names("node-1", &["a/b:1", "c/b:1"]).await, ["a/b:1"]);
        assert!(stores.names("node-2", &["a/b:1"]).await.is_empty());
    }
}
