//! Per-region rewrites: which overriders match a node, and what the job's images and Secrets become there.
//!
//! Every overrider that matches is applied, in the order of the list, each to the result of the one before. A rewrite that
//! makes no sense on some node is that node's failure, not the job's. A digest says which content is meant, so it is never
//! dropped: a change that would drop it is refused.

use std::collections::BTreeMap;

use larder_api::image_pre_pull_job::{ComponentOverride, OverriderItem};
use thiserror::Error;

use super::images::JobImage;
use super::label_selector::{self, LabelLineError};
use crate::select::{LabelRule, UnknownOperator};
use crate::task::TaskImage;

mod name;
#[cfg(test)]
mod tests;

use name::{ImageName, SecretName};

/// The overriders of a job, checked once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overriders(Vec<Overrider>);

#[derive(Clone, Debug, PartialEq)]
struct Overrider {
    nodes: LabelRule,
    images: Vec<Change<ImagePart>>,
    secrets: Vec<Change<SecretPart>>,
}

/// One change of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change<Part> {
    part: Part,
    operator: Operator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImagePart {
    Registry,
    Repository,
    Tag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretPart {
    Namespace,
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Add(String),
    Remove,
    Replace(String),
}

/// What is wrong with an overrider, whatever the node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("imagePrePullOverriders[{index}]: {problem}")]
pub struct OverriderError {
    index: usize,
    problem: OverriderProblem,
}

/// What is wrong with one overrider.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OverriderProblem {
    /// Half of it would not be looked at.
    #[error("its fields stand inside imagePrePullOverrider and beside it; write them in one place")]
    BothSpellings,
    /// Nobody is meant.
    #[error("it says for which nodes in no way; give nodeLabel, or labelSelector ({{}} means all nodes)")]
    NoNodes,
    /// Two ways to say who is meant.
    #[error("nodeLabel and labelSelector cannot be given together")]
    TwoSelectors,
    /// The one-line selector.
    #[error("nodeLabel: {0}")]
    NodeLabel(LabelLineError),
    /// The structured selector.
    #[error("labelSelector: {0}")]
    LabelSelector(UnknownOperator),
    /// A component that does not exist.
    #[error("the component {0:?} is unknown; use Registry, Repository, Tag, or of a secret Namespace, SecretName")]
    Component(String),
    /// An operator that does not exist.
    #[error("the operator {0:?} is unknown; use add, remove or replace")]
    Operator(String),
    /// Nothing to add or to put in place.
    #[error("the operator {0:?} needs a value")]
    NoValue(String),
}

/// Why a node cannot be given its images.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the overriders make no valid image of {written:?} on this node: {why}")]
pub struct ResolveError {
    written: String,
    why: String,
}

impl Overriders {
    /// Reads a job's overriders.
    pub fn parse(items: &[OverriderItem]) -> Result<Self, OverriderError> {
        let read = |(index, item)| Overrider::parse(item).map_err(|problem| OverriderError { index, problem });
        items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which of them match a node. Nodes with the same answer get the same images.
    pub fn matching(&self, labels: &BTreeMap<String, String>) -> Vec<usize> {
        let matching = |(index, overrider): (usize, &Overrider)| overrider.nodes.matches(labels).then_some(index);
        self.0.iter().enumerate().filter_map(matching).collect()
    }

    /// What a job's images become where these overriders match.
    pub fn resolve(&self, images: &[JobImage], matching: &[usize]) -> Result<Vec<TaskImage>, ResolveError> {
        let overriders: Vec<&Overrider> = matching.iter().filter_map(|index| self.0.get(*index)).collect();
        let mut resolved: Vec<TaskImage> = Vec::with_capacity(images.len());
        for image in images {
            let refused = |why: String| ResolveError {
                written: image.written.clone(),
                why,
            };
            let one = rewritten(image, &overriders).map_err(refused)?;
            let same = |other: &&TaskImage| other.image == one.image && other.original != one.original;
            if let Some(other) = resolved.iter().find(same) {
                let why = format!(
                    "{:?} becomes {} too; name the repository in one of them",
                    other.written, one.image
                );
                return Err(refused(why));
            }
            resolved.push(one);
        }
        Ok(resolved)
    }
}

fn rewritten(image: &JobImage, overriders: &[&Overrider]) -> Result<TaskImage, String> {
    let mut name = ImageName::of(&image.written);
    let mut secret = SecretName::of(image.secret.as_ref());
    for overrider in overriders {
        for change in &overrider.images {
            name.apply(change)?;
        }
        for change in &overrider.secrets {
            secret.apply(change);
        }
    }
    let untouched = overriders.iter().all(|overrider| overrider.images.is_empty());
    Ok(TaskImage {
        written: image.written.clone(),
        original: image.reference.clone(),
        image: if untouched {
            image.reference.clone()
        } else {
            name.into_reference()?
        },
        secrets: secret.into_reference()?.into_iter().collect(),
    })
}

impl Overrider {
    fn parse(item: &OverriderItem) -> Result<Self, OverriderProblem> {
        if item.image_pre_pull_overrider.is_some() && says_anything(&item.unwrapped) {
            return Err(OverriderProblem::BothSpellings);
        }
        let overrider = item.overrider();
        let line = overrider.node_label.as_deref().filter(|line| !line.is_empty());
        let nodes = match (line, &overrider.label_selector) {
            (Some(_), Some(_)) => return Err(OverriderProblem::TwoSelectors),
            (None, None) => return Err(OverriderProblem::NoNodes),
            (Some(line), None) => label_selector::parse(line).map_err(OverriderProblem::NodeLabel)?,
            (None, Some(selector)) => LabelRule::parse(selector).map_err(OverriderProblem::LabelSelector)?,
        };
        let changes = overrider.overriders.as_ref();
        Ok(Self {
            nodes,
            images: read(changes.map_or(&[], |changes| &changes.image_overriders), image_part)?,
            secrets: read(changes.map_or(&[], |changes| &changes.secret_overriders), secret_part)?,
        })
    }
}

/// Empty fields count as not given.
fn says_anything(overrider: &larder_api::image_pre_pull_job::Overrider) -> bool {
    let changes = overrider.overriders.as_ref();
    overrider.node_label.as_deref().is_some_and(|line| !line.is_empty())
        || overrider.label_selector.is_some()
        || changes.is_some_and(|changes| !changes.image_overriders.is_empty() || !changes.secret_overriders.is_empty())
}

fn read<Part>(
    changes: &[ComponentOverride],
    part: fn(&str) -> Option<Part>,
) -> Result<Vec<Change<Part>>, OverriderProblem> {
    let one = |change: &ComponentOverride| {
        let part = part(&change.component).ok_or_else(|| OverriderProblem::Component(change.component.clone()))?;
        let value = change.value.clone().filter(|value| !value.is_empty());
        let value = || value.ok_or_else(|| OverriderProblem::NoValue(change.operator.clone()));
        let operator = match change.operator.as_str() {
            "add" => Operator::Add(value()?),
            "replace" => Operator::Replace(value()?),
            "remove" => Operator::Remove,
            other => return Err(OverriderProblem::Operator(other.to_owned())),
        };
        Ok(Change { part, operator })
    };
    changes.iter().map(one).collect()
}

fn image_part(component: &str) -> Option<ImagePart> {
    match component {
        "Registry" => Some(ImagePart::Registry),
        "Repository" => Some(ImagePart::Repository),
        "Tag" => Some(ImagePart::Tag),
        _ => None,
    }
}

/// The proposal's sample writes the first spelling of each, its text the second.
fn secret_part(component: &str) -> Option<SecretPart> {
    match component {
        "Namespace" | "namespace" => Some(SecretPart::Namespace),
        "SecretName" | "secretName" => Some(SecretPart::Name),
        _ => None,
    }
}
