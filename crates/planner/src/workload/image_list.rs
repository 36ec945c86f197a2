//! The ImageListPullJob that gets the images of some workloads onto the nodes where their pods may run.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Toleration;
use larder_api::ImageListPullJobSpec;
use larder_api::template::{NodeSelector, PullTemplate};
use larder_model::{ImageRef, ImageRefError};
use thiserror::Error;

use super::Workload;
use super::images::{PodImage, of_pods};
use super::nodes::{Alternative, WorkloadNodes, alternatives, merge};
use crate::select::UnknownOperator;

/// Most images in one job.
const IMAGES_MAX: usize = 255;

/// The ServiceAccount of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// The pull secrets of ServiceAccounts, by namespace and name. One that is not there has none.
pub type Accounts = BTreeMap<(String, String), Vec<String>>;

/// What the pods of some workloads need.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageList {
    /// Where the job has to be: it uses Secrets of its own namespace.
    pub namespace: String,
    /// The images, as they are written, each once.
    pub images: Vec<String>,
    /// Whether a pod asks the registry each time.
    pub always: bool,
    /// Names of Secrets.
    pub pull_secrets: Vec<String>,
    /// The nodes; None for all.
    pub selector: Option<NodeSelector>,
    /// The taints that do not matter; none if the nodes are named and all taints are considered already.
    pub tolerations: Vec<Toleration>,
    /// The selector has these nodes and no others; otherwise [`WorkloadNodes`] tells.
    pub nodes_are_exact: bool,
    /// What a person should know.
    pub notes: Vec<Note>,
}

/// Something that the job does not do, or does in a way that may surprise.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Note {
    /// The image is left out.
    #[error("{workload}: {image} is left out, because its imagePullPolicy is Never")]
    NeverPulled {
        /// Whose pods.
        workload: String,
        /// The image.
        image: String,
    },
    /// The container is left out.
    #[error(
        "{workload}: a container without an image of its own is left out, because its image is set when the pod is created"
    )]
    SetLater {
        /// Whose pods.
        workload: String,
    },
    /// The image is left out.
    #[error("{workload}: {image} is no image: {error}")]
    Invalid {
        /// Whose pods.
        workload: String,
        /// What is written there.
        image: String,
        /// What is wrong with it.
        error: ImageRefError,
    },
    /// The workload adds no nodes.
    #[error("{workload}: its node affinity matches no node")]
    NoNodes {
        /// Whose pods.
        workload: String,
    },
    /// Workloads ask for different nodes.
    #[error(
        "the workloads run on different nodes, and every image is pulled onto the nodes of all of them; to avoid this, use one job for each workload"
    )]
    NodesDiffer,
}

/// Why there is no such job.
#[derive(Debug, Error)]
pub enum Refusal {
    /// Nothing to pull.
    #[error("no image is left to pull")]
    NoImages,
    /// More than one job can hold.
    #[error("there are {0} images, and a job can have {IMAGES_MAX}; use several jobs")]
    TooManyImages(usize),
    /// A job uses Secrets of its own namespace alone.
    #[error("the workloads use pull secrets of the namespaces {}, and a job can use those of its own namespace only; use one job for each namespace", .0.join(" and "))]
    SeveralNamespaces(Vec<String>),
    /// Pods that can run nowhere.
    #[error("no node can match the node affinity of the workloads")]
    NoNodes,
    /// A node affinity that Kubernetes would refuse.
    #[error(transparent)]
    Operator(#[from] UnknownOperator),
}

/// The ServiceAccounts whose pull secrets are needed, by namespace and name: Kubernetes gives them to pods that name none.
pub fn service_accounts(workloads: &[Workload]) -> BTreeSet<(String, String)> {
    workloads
        .iter()
        .filter(|one| own_secrets(one).is_empty())
        .map(account)
        .collect()
}

/// The job for these workloads.
pub fn image_list(workloads: &[Workload], accounts: &Accounts) -> Result<ImageList, Refusal> {
    // The exact rule reads every operator.
    WorkloadNodes::new(workloads)?;
    let mut notes = Vec::new();
    let (images, always) = images(workloads, &mut notes);
    match images.len() {
        0 => return Err(Refusal::NoImages),
        count if IMAGES_MAX < count => return Err(Refusal::TooManyImages(count)),
        _ => {}
    }
    let (secret_namespace, pull_secrets) = pull_secrets(workloads, accounts)?;
    let first = workloads.first().map(|workload| workload.namespace.as_str());
    let asked: Vec<Vec<Alternative>> = workloads.iter().map(alternatives).collect();
    let nowhere = workloads.iter().zip(&asked).filter(|(_, asked)| asked.is_empty());
    notes.extend(nowhere.map(|(workload, _)| Note::NoNodes {
        workload: workload.title(),
    }));
    let distinct: BTreeSet<&Vec<Alternative>> = asked.iter().filter(|asked| !asked.is_empty()).collect();
    notes.extend((1 < distinct.len()).then_some(Note::NodesDiffer));
    let merged = merge(&asked.concat()).ok_or(Refusal::NoNodes)?;
    Ok(ImageList {
        namespace: secret_namespace.or(first).unwrap_or_default().to_owned(),
        images,
        always,
        pull_secrets,
        selector: merged.selector,
        tolerations: merged.tolerations,
        nodes_are_exact: merged.is_exact,
        notes,
    })
}

/// Each image once, however it is written, in the order of the workloads; and whether one of them is asked for each time.
fn images(workloads: &[Workload], notes: &mut Vec<Note>) -> (Vec<String>, bool) {
    let mut seen: BTreeSet<ImageRef> = BTreeSet::new();
    let mut images = Vec::new();
    let mut any_always = false;
    let titled = workloads.iter().flat_map(|workload| {
        let pods = of_pods(&workload.pods).into_iter();
        pods.map(|image| (workload.title(), image))
    });
    for (workload, image) in titled {
        let note = match image {
            PodImage::Needed { text, image, always } => {
                any_always |= always;
                if seen.insert(image) {
                    images.push(text.to_owned());
                }
                continue;
            }
            PodImage::NeverPulled(image) => Note::NeverPulled {
                workload,
                image: image.to_owned(),
            },
            PodImage::SetLater => Note::SetLater { workload },
            PodImage::Invalid(image, error) => Note::Invalid {
                workload,
                image: image.to_owned(),
                error,
            },
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    (images, any_always)
}

/// The one namespace whose Secrets are needed, if any are, and their names.
fn pull_secrets<'a>(workloads: &'a [Workload], accounts: &Accounts) -> Result<(Option<&'a str>, Vec<String>), Refusal> {
    let mut secrets: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for workload in workloads {
        let mut names = own_secrets(workload);
        if names.is_empty() {
            names = accounts.get(&account(workload)).cloned().unwrap_or_default();
        }
        if !names.is_empty() {
            secrets.entry(&workload.namespace).or_default().extend(names);
        }
    }
    if 1 < secrets.len() {
        let namespaces = secrets.into_keys().map(str::to_owned).collect();
        return Err(Refusal::SeveralNamespaces(namespaces));
    }
    Ok(match secrets.pop_first() {
        Some((namespace, names)) => (Some(namespace), names.into_iter().collect()),
        None => (None, Vec::new()),
    })
}

fn own_secrets(workload: &Workload) -> Vec<String> {
    let secrets = workload.pods.image_pull_secrets.iter().flatten();
    let names = secrets.map(|secret| secret.name.clone());
    names.filter(|name| !name.is_empty()).collect()
}

fn account(workload: &Workload) -> (String, String) {
    let pods = &workload.pods;
    let given = [&pods.service_account_name, &pods.service_account];
    let given = given.into_iter().flatten().find(|name| !name.is_empty());
    let name = given.map_or(DEFAULT_ACCOUNT, String::as_str);
    (workload.namespace.clone(), name.to_owned())
}

impl ImageList {
    /// Selects these nodes instead, which were found by [`WorkloadNodes`].
    pub fn name_nodes(&mut self, names: Vec<String>) {
        self.selector = Some(NodeSelector {
            names,
            ..NodeSelector::default()
        });
        self.tolerations = Vec::new();
        self.nodes_are_exact = true;
    }

    /// The job's spec; how many nodes at once, and when it ends, is left to the caller.
    pub fn spec(&self) -> ImageListPullJobSpec {
        let policy = if self.always { "Always" } else { "IfNotPresent" };
        ImageListPullJobSpec {
            images: self.images.clone(),
            image_pull_policy: Some(policy.to_owned()),
            template: PullTemplate {
                pull_secrets: self.pull_secrets.clone(),
                selector: self.selector.clone(),
                tolerations: Some(self.tolerations.clone()).filter(|list| !list.is_empty()),
                ..PullTemplate::default()
            },
        }
    }
}
