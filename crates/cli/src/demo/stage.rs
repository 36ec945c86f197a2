//! What the demonstration shows: images, nodes and, act by act, the examples of `deploy/examples` with the ends that they
//! should have.

use std::collections::BTreeMap;

use futures::StreamExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use larder_api::NodeImage;
use larder_embedded::{Node, Runtime};
use larder_model::{ImageRef, NodeName, Phase as EntryPhase};
use larder_sample_images::Recipe;
use serde_json::{Value, json};

use super::registry::{DemoRegistry, Offer};
use crate::commands::run::submit;
use crate::failure::Failure;
use crate::job::{JobView, Phase};
use crate::manifest::{self, Document};
use crate::output;

/// The registries that the examples name and the demonstration's own stands in for.
pub(crate) const REGISTRIES: [&str; 2] = ["docker.io", "registry.example"];

/// `tiger:pass1234`, as the registry wants to see it.
const LOGIN: &str = "dGlnZXI6cGFzczEyMzQ=";

const MIB: usize = 1024 * 1024;

/// One example.
pub(crate) struct Act {
    pub(crate) title: &'static str,
    pub(crate) says: String,
    pub(crate) documents: Vec<Document>,
    pub(crate) ending: Ending,
}

/// What an example should come to.
pub(crate) enum Ending {
    /// Its job ends like this.
    Job { phase: Phase },
    /// A node gets an image by an entry that is written by hand.
    Entry { node: &'static str, image: &'static str },
}

impl Ending {
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Ending::Job { phase } => *phase,
            Ending::Entry { .. } => Phase::Complete,
        }
    }
}

/// The images that the examples name. Those of nginx and the model share a layer.
pub(crate) fn images() -> Vec<Offer> {
    let offer = |repository, tag, seed, layers, size, login| Offer {
        repository,
        tag,
        image: Recipe::random(seed, layers, size).build(),
        login,
    };
    vec![
        offer("library/nginx", "1.9.1", 10, 3, 6 * MIB, None),
        offer("library/busybox", "1.29.2", 20, 1, MIB, None),
        offer("library/ubuntu", "latest", 30, 1, 4 * MIB, None),
        offer("models/large", "v1", 12, 4, 6 * MIB, None),
        offer("team/app", "v1", 40, 2, 3 * MIB, Some(LOGIN)),
    ]
}

/// Three nodes, two of them of one type.
pub(crate) fn nodes() -> Result<Vec<Node>, Failure> {
    let node = |(name, kind): (&str, &str)| {
        let name = NodeName::parse(name).map_err(|error| Failure::wrong(error.to_string()))?;
        let labels = BTreeMap::from([("node-type".to_owned(), kind.to_owned())]);
        Ok(Node {
            name,
            labels,
            runtime: Runtime::Folder,
        })
    };
    [("node-1", "xxx"), ("node-2", "xxx"), ("node-3", "yyy")]
        .map(node)
        .into_iter()
        .collect()
}

/// The Secrets that the private example names.
pub(crate) async fn prepare(client: &Client) -> Result<(), Failure> {
    let config = json!({ "auths": { "registry.example": { "auth": LOGIN } } }).to_string();
    let secret = |name: &str| {
        document(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": config },
        }))
    };
    submit::all(client, &[secret("secret-name1"), secret("secret-name2")])
        .await
        .map(drop)
}

/// The examples, in order.
pub(crate) fn acts(registry: &DemoRegistry) -> Vec<Act> {
    let digest = registry.digest("models/large", "v1").unwrap_or_default();
    let job = |name: &str, spec: Value| {
        vec![document(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": { "name": name }, "spec": spec,
        }))]
    };
    let complete = || Ending::Job { phase: Phase::Complete };
    vec![
        Act {
            title: "two nodes by name",
            says: "One image onto two nodes by name (imagepulljob-by-name.yaml):".into(),
            documents: example(include_str!(
                "../../../../deploy/examples/kruise/imagepulljob-by-name.yaml"
            )),
            ending: complete(),
        },
        Act {
            title: "a list by label",
            says: "Two images onto the nodes with a label, one of them there already (imagelistpulljob-by-label.yaml):"
                .into(),
            documents: example(include_str!(
                "../../../../deploy/examples/kruise/imagelistpulljob-by-label.yaml"
            )),
            ending: complete(),
        },
        Act {
            title: "private, with secrets",
            says: "A private image onto all nodes, the login sealed to each (imagepulljob-private-registry.yaml):"
                .into(),
            documents: example(include_str!(
                "../../../../deploy/examples/kruise/imagepulljob-private-registry.yaml"
            )),
            ending: complete(),
        },
        Act {
            title: "by digest",
            says: "An image by digest onto all nodes at once; one layer is on some of them already:".into(),
            documents: job(
                "model",
                json!({ "image": format!("registry.example/models/large@{digest}"), "parallelism": 3 }),
            ),
            ending: complete(),
        },
        Act {
            title: "a tag that is not there",
            says: "A tag that does not exist: the job must end as failed, at once, with the reason:".into(),
            documents: job("typo", json!({ "image": "nginx:1.9.l", "parallelism": 3 })),
            ending: Ending::Job { phase: Phase::Failed },
        },
        Act {
            title: "by hand, one node",
            says: "An entry written by hand into one node's NodeImage (kubectl patch nodeimage node-3 …):".into(),
            documents: Vec::new(),
            ending: Ending::Entry {
                node: "node-3",
                image: "ubuntu:latest",
            },
        },
    ]
}

/// Writes an entry into a NodeImage, as the guides do with kubectl, and waits for its result.
pub(crate) async fn edit_node_image(
    client: &Client,
    node: &str,
    image: &str,
    act: &Act,
) -> Result<Vec<JobView>, Failure> {
    let image = ImageRef::parse(image).map_err(|error| Failure::wrong(error.to_string()))?;
    let nodes: Api<NodeImage> = Api::all(client.clone());
    let entry = json!({ "tag": image.tag_text(), "pullPolicy": { "ttlSecondsAfterFinished": 300 } });
    let patch = json!({ "spec": { "images": { image.name(): { "tags": [entry] } } } });
    let written = nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map_err(|error| Failure::from_api("writing the NodeImage", &error))?;
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut objects = watcher(nodes, config).default_backoff().touched_objects().boxed();
    while let Some(object) = objects.next().await {
        let Some(result) = object
            .ok()
            .and_then(|object| object.result(image.name(), &image.tag_text()).cloned())
        else {
            continue;
        };
        if result.phase().is_final() {
            let done = result.phase() == EntryPhase::Succeeded;
            output::line(&format!("nodeimage/{node}: {} {}", image, result.phase));
            return Ok(vec![JobView {
                kind: "NodeImage",
                name: node.to_owned(),
                phase: if done { Phase::Complete } else { Phase::Failed },
                desired: 1,
                succeeded: i32::from(done),
                failed: i32::from(!done),
                bytes_total: result.bytes_total,
                bytes_done: result.bytes_done,
                message: result.message.unwrap_or_default(),
                ..JobView::default()
            }]);
        }
    }
    Err(Failure::unreachable(format!(
        "the watch ended before «{}» did",
        act.title
    )))
}

fn document(object: Value) -> Document {
    Document {
        place: "demonstration".into(),
        object,
    }
}

/// The examples are part of the program and are read by its tests; one that cannot be read would be empty here.
fn example(text: &str) -> Vec<Document> {
    manifest::parse("example", text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_example_can_be_read_and_has_its_image() {
        let registry = DemoRegistry::start(images()).await.unwrap();
        for act in acts(&registry) {
            let by_hand = matches!(act.ending, Ending::Entry { .. });
            assert_eq!(act.documents.is_empty(), by_hand, "{}", act.title);
        }
        assert!(registry.digest("models/large", "v1").unwrap().starts_with("sha256:"));
    }
}
