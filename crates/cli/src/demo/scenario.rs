//! What the demonstration shows: images, nodes and the examples, most of them from `deploy/examples`, with the ends that they
//! should have.

use std::collections::BTreeMap;

use kube::Client;
use larder_api::names::EDGE_NODE_LABEL;
use larder_embedded::{Node, Runtime};
use larder_model::NodeName;
use larder_sample_images::Recipe;
use serde_json::{Value, json};

use super::registry::{DemoRegistry, Offer};
use crate::commands::run::submit;
use crate::failure::Failure;
use crate::job::Phase;
use crate::manifest::{self, Document};

/// The registries that the examples name and the demonstration's own stands in for.
pub(crate) const REGISTRIES: [&str; 2] = ["docker.io", "registry.example"];

/// The registry of a region, for which another one stands in.
pub(crate) const REGIONAL: [&str; 1] = ["hangzhou.registry.example"];

/// The image of the regions, and its name in the regional registry.
const TILL: &str = "registry.example/shop/till:v1";
const TILL_IN_HANGZHOU: &str = "hangzhou.registry.example/shop/till:v1";

/// `tiger:pass1234`, as the registry wants to see it.
const LOGIN: &str = "dGlnZXI6cGFzczEyMzQ=";

const MIB: usize = 1024 * 1024;

/// One example.
pub(crate) struct Example {
    pub(crate) title: &'static str,
    pub(crate) says: &'static str,
    /// What a person would type or read.
    pub(crate) how: &'static str,
    pub(crate) documents: Vec<Document>,
    pub(crate) ending: Ending,
    /// Under which names nodes shall have an image afterwards.
    pub(crate) names: Vec<ExpectedNames>,
}

/// Under which names a node shall have an image.
pub(crate) struct ExpectedNames {
    pub(crate) node: &'static str,
    pub(crate) names: &'static [&'static str],
}

/// How an example is followed to its end, and which end it should have.
pub(crate) enum Ending {
    /// Its job ends like this.
    Job(Expected),
    /// A node gets an image by an entry that is written by hand.
    Entry { node: &'static str, image: &'static str },
}

/// The end that an example should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) phase: Phase,
    /// Nodes, or images of a list, that are done.
    pub(crate) done: i32,
    /// The one reason of all failures.
    pub(crate) reason: Option<&'static str>,
}

impl Ending {
    pub(crate) fn expected(&self) -> Expected {
        match self {
            Ending::Job(expected) => *expected,
            Ending::Entry { .. } => Expected {
                phase: Phase::Complete,
                done: 1,
                reason: None,
            },
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
        offer("library/busybox", "1.29.2", 20, 1, 4 * MIB, None),
        offer("library/ubuntu", "latest", 30, 1, 5 * MIB, None),
        offer("models/large", "v1", 12, 4, 6 * MIB, None),
        offer("team/app", "v1", 40, 2, 4 * MIB, Some(LOGIN)),
        till(),
    ]
}

/// What the region's own registry has.
pub(crate) fn regional_images() -> Vec<Offer> {
    vec![till()]
}

fn till() -> Offer {
    Offer {
        repository: "shop/till",
        tag: "v1",
        image: Recipe::random(50, 2, 3 * MIB).build(),
        login: None,
    }
}

/// Three edge nodes, two of them of one type, two of them of one region.
pub(crate) fn nodes() -> Result<Vec<Node>, Failure> {
    let node = |(name, kind, region): (&str, &str, &str)| {
        let name = NodeName::parse(name).map_err(|error| Failure::wrong(error.to_string()))?;
        let labels = [("node-type", kind), ("region", region), (EDGE_NODE_LABEL, "")];
        let labels: BTreeMap<String, String> = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        Ok(Node {
            name,
            labels,
            runtime: Runtime::Folder,
        })
    };
    [
        ("node-1", "xxx", "beijing"),
        ("node-2", "xxx", "hangzhou"),
        ("node-3", "yyy", "hangzhou"),
    ]
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

/// The name of a file in `deploy/examples`, and its text.
macro_rules! example_file {
    ($path:literal) => {
        (
            concat!("deploy/examples/", $path),
            include_str!(concat!("../../../../deploy/examples/", $path)),
        )
    };
}

/// The examples, in order.
pub(crate) fn examples(registry: &DemoRegistry) -> Vec<Example> {
    let digest = registry.digest("models/large", "v1").unwrap_or_default();
    let regions = from_file(
        "two regions",
        "KubeEdge's job: a registry for each region, one name on all nodes",
        example_file!("kubeedge/imageprepulljob-by-region.yaml"),
        3,
    );
    vec![
        from_file(
            "two nodes by name",
            "One image onto two nodes that are named",
            example_file!("kruise/imagepulljob-by-name.yaml"),
            2,
        ),
        from_file(
            "a list by label",
            "Two images onto all nodes with a label; one is there already",
            example_file!("kruise/imagelistpulljob-by-label.yaml"),
            2,
        ),
        from_file(
            "private registry",
            "A private image onto all nodes, the login sealed to each",
            example_file!("kruise/imagepulljob-private-registry.yaml"),
            3,
        ),
        Example {
            names: ["node-1", "node-2", "node-3"].map(till_on).into(),
            ..regions
        },
        by_digest(digest),
        missing_tag(),
        by_hand(),
    ]
}

/// An example of the repository that completes with so many done.
fn from_file(title: &'static str, says: &'static str, (how, text): (&'static str, &'static str), done: i32) -> Example {
    Example {
        title,
        says,
        how,
        documents: parsed(text),
        ending: complete(done),
        names: Vec::new(),
    }
}

fn by_digest(digest: &str) -> Example {
    let image = format!("registry.example/models/large@{digest}");
    Example {
        title: "by digest",
        says: "An image by digest, onto all nodes at once",
        how: "image: registry.example/models/large@sha256:…, parallelism: 3",
        documents: job("model", &json!({ "image": image, "parallelism": 3 })),
        ending: complete(3),
        names: Vec::new(),
    }
}

fn missing_tag() -> Example {
    Example {
        title: "a missing tag",
        says: "A tag that does not exist: must fail, at once, with the reason",
        how: "image: nginx:1.9.l, parallelism: 3",
        documents: job("typo", &json!({ "image": "nginx:1.9.l", "parallelism": 3 })),
        ending: Ending::Job(Expected {
            phase: Phase::Failed,
            done: 0,
            reason: Some("NotFound"),
        }),
        names: Vec::new(),
    }
}

fn by_hand() -> Example {
    Example {
        title: "by hand, one node",
        says: "An entry written by hand into one node's NodeImage",
        how: "kubectl patch nodeimage node-3 --type=merge -p …",
        documents: Vec::new(),
        ending: Ending::Entry {
            node: "node-3",
            image: "ubuntu:latest",
        },
        names: Vec::new(),
    }
}

fn complete(done: i32) -> Ending {
    Ending::Job(Expected {
        phase: Phase::Complete,
        done,
        reason: None,
    })
}

fn job(name: &str, spec: &Value) -> Vec<Document> {
    vec![document(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": { "name": name }, "spec": spec,
    }))]
}

fn till_on(node: &'static str) -> ExpectedNames {
    ExpectedNames {
        node,
        names: if node == "node-1" {
            &[TILL]
        } else {
            &[TILL, TILL_IN_HANGZHOU]
        },
    }
}

fn document(object: Value) -> Document {
    Document {
        place: "demonstration".into(),
        object,
    }
}

/// The examples are part of the program and are read by its tests; one that cannot be read would be empty here.
fn parsed(text: &str) -> Vec<Document> {
    manifest::parse("example", text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::summary;

    #[tokio::test]
    async fn every_example_can_be_read_and_has_its_image() {
        let registry = DemoRegistry::start(images()).await.unwrap();
        for example in examples(&registry) {
            let by_hand = matches!(example.ending, Ending::Entry { .. });
            assert_eq!(example.documents.is_empty(), by_hand, "{}", example.title);
            assert!(example.title.len() <= summary::TITLE, "{}", example.title);
        }
        assert!(registry.digest("models/large", "v1").unwrap().starts_with("sha256:"));
    }
}
