//! The guides' examples, end to end and as they stand in `deploy/examples`: three containerd nodes, real agents, a real
//! controller, real registries. The nodes know by their `hosts.toml` that `docker.io` and `registry.example` are the
//! registries of the test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod entries;
mod failures;
mod jobs;
mod logins;
mod metadata;
mod refresh;

use std::path::Path;

use larder_e2e::{Cluster, Setup};
use larder_testkit::image::Recipe;
use larder_testkit::{Auth, Pushed, Registry};

/// A cluster, the registry that it takes for docker.io, and the one that it takes for registry.example.
struct Guide {
    cluster: Cluster,
    hub: Registry,
    private: Registry,
}

impl Guide {
    async fn open() -> Self {
        let hub = Registry::start(Auth::Open).await.unwrap();
        let private = Registry::start(Auth::basic("cook", "salt")).await.unwrap();
        let setup = Setup {
            recorded: true,
            ..Setup::nodes(3)
        };
        let cluster = Cluster::start_with(setup).await;
        for node in &cluster.nodes {
            for (name, registry) in [("docker.io", &hub), ("registry.example", &private)] {
                let url = format!("http://{}", registry.host());
                let hosts = format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
                node.containerd.set_hosts(name, &hosts).unwrap();
            }
        }
        Self { cluster, hub, private }
    }

    /// Puts an image into the registry that stands for docker.io.
    async fn publish(&self, seed: u64, name: &str, tag: &str) -> Pushed {
        let recipe = Recipe::random(seed, 2, 100 * 1024);
        let repository = format!("library/{name}");
        self.hub.push(&recipe.build(), &repository, tag).await.unwrap()
    }

    /// Applies a file of `deploy/examples/kruise`.
    async fn apply(&self, example: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples/kruise");
        let file = folder.join(example);
        let arguments = ["apply", "-f", file.to_str().unwrap()];
        self.cluster.kubectl(&arguments).await.unwrap();
    }

    /// The numbers of the nodes that have this image of docker.io.
    async fn holders(&self, image: &str, digest: &str) -> Vec<usize> {
        let reference = format!("docker.io/library/{image}");
        let mut holders = Vec::new();
        for (number, node) in self.cluster.nodes.iter().enumerate() {
            if node.has_image(&reference, digest).await {
                holders.push(number);
            }
        }
        holders
    }
}

/// One cluster for all: the parts do not touch each other's images.
#[tokio::test]
async fn the_examples_of_the_guides_as_they_stand() {
    let guide = Guide::open().await;
    tokio::join!(
        // These two use nginx:1.9.1, one after the other.
        async {
            jobs::by_name_by_label_and_by_pods(&guide).await;
            metadata::reaches_the_runtime(&guide).await;
            jobs::a_list(&guide).await;
        },
        refresh::always_asks_the_registry_and_if_not_present_does_not(&guide),
        logins::a_job_waits_for_its_secrets(&guide),
        failures::are_found_as_the_guide_says(&guide),
        failures::names_and_labels_exclude_each_other(&guide),
        entries::by_patch_and_by_edit(&guide),
        entries::begin_empty_with_the_labels_of_the_node(&guide),
    );
}
