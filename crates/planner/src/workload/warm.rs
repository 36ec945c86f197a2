//! The job that keeps the images of a labelled workload or namespace on the nodes where their pods may run.
//!
//! It belongs to the workload and follows it. Of its spec Larder keeps what the pod templates say, and leaves alone what
//! people may set there: how many nodes at once, pins, timeouts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::ObjectMeta;
use larder_api::names::WARM_LABEL;
use larder_api::{ImageListPullJob, ImageListPullJobSpec};
use serde_json::{Value, json};

use super::{Accounts, Note, Refusal, Workload, image_list};
use crate::jitter;

/// Nodes at once, when the job is created.
const PARALLELISM: i32 = 10;

/// Longest name of a job, so that it can be the value of a label.
const NAME_MAX: usize = 63;

/// Who has the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`, `Namespace`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Where the job is: the owner's namespace, or the owner itself.
    pub namespace: String,
}

/// What to do about a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It is as it should be.
    Nothing,
    /// There is none.
    Create(Box<ImageListPullJob>),
    /// A JSON patch, guarded by the uid.
    Patch(Value),
    /// It is not wanted any more, or belongs to an object that was there before.
    Delete {
        /// Which one.
        uid: String,
    },
    /// The name is taken by a job that somebody else wrote.
    NameTaken,
}

/// `warm-deployment-web`; a longer name is cut and ends in a hash of the whole.
pub fn job_name(kind: &str, name: &str) -> String {
    let whole = format!("warm-{}-{name}", kind.to_ascii_lowercase());
    if whole.len() <= NAME_MAX {
        return whole;
    }
    let hash = format!("{:08x}", jitter::spread(&[kind, name], 1 << 32));
    let kept: String = whole.chars().take(NAME_MAX - hash.len() - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.']))
}

/// The job that an owner should have, with what people should know of it; None if there are no images.
pub fn wanted_job(
    owner: &Owner,
    workloads: &[Workload],
    accounts: &Accounts,
) -> Result<Option<(ImageListPullJob, Vec<String>)>, Refusal> {
    let list = match image_list(workloads, accounts) {
        Ok(list) => list,
        Err(Refusal::NoImages) => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let mut notes: Vec<String> = list.notes.iter().map(Note::to_string).collect();
    notes.extend((!list.nodes_are_exact).then(|| {
        "one selector cannot express the node affinity, so the images are pulled onto every node that may match"
            .to_owned()
    }));
    let mut spec = list.spec();
    spec.template.parallelism = Some(IntOrString::Int(PARALLELISM));
    spec.template.completion_policy.kind = Some("Never".to_owned());
    let metadata = ObjectMeta {
        name: Some(job_name(&owner.kind, &owner.name)),
        namespace: Some(owner.namespace.clone()),
        labels: Some([(WARM_LABEL.to_owned(), "true".to_owned())].into()),
        owner_references: Some(vec![OwnerReference {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    };
    let job = ImageListPullJob {
        metadata,
        spec,
        status: None,
    };
    Ok(Some((job, notes)))
}

/// From the job that there is, if any, to the one that should be, if any.
pub fn step(wanted: Option<&ImageListPullJob>, existing: Option<&ImageListPullJob>) -> Step {
    let Some(existing) = existing else {
        return wanted.map_or(Step::Nothing, |job| Step::Create(Box::new(job.clone())));
    };
    let Some(owner) = owner_of(existing) else {
        return wanted.map_or(Step::Nothing, |_| Step::NameTaken);
    };
    if existing.metadata.deletion_timestamp.is_some() {
        return Step::Nothing;
    }
    let wanted = wanted.filter(|wanted| owner_of(wanted).is_some_and(|of| of.uid == owner.uid));
    let uid = existing.metadata.uid.clone().unwrap_or_default();
    match wanted {
        None => Step::Delete { uid },
        Some(wanted) => match patch(&existing.spec, &wanted.spec) {
            changes if changes.is_empty() => Step::Nothing,
            changes => {
                let guard = json!({"op": "test", "path": "/metadata/uid", "value": uid});
                Step::Patch(std::iter::once(guard).chain(changes).collect())
            }
        },
    }
}

/// Whom a job is kept for; None if it is not one of these jobs.
pub fn owner_of(job: &ImageListPullJob) -> Option<&OwnerReference> {
    let labels = job.metadata.labels.as_ref()?;
    let is_labelled = labels.get(WARM_LABEL).is_some_and(|value| value == "true");
    let owners = job.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| is_labelled && owner.controller == Some(true));
    owners.find(|owner| job.metadata.name.as_deref() == Some(&job_name(&owner.kind, &owner.name)))
}

/// The fields that follow the pod templates, each with its value.
fn followed(spec: &ImageListPullJobSpec) -> [(&'static str, Option<Value>); 5] {
    let template = &spec.template;
    let secrets = Some(&template.pull_secrets).filter(|secrets| !secrets.is_empty());
    [
        ("images", Some(json!(spec.images))),
        (
            "imagePullPolicy",
            spec.image_pull_policy.as_ref().map(|policy| json!(policy)),
        ),
        ("selector", template.selector.as_ref().map(|selector| json!(selector))),
        ("tolerations", template.tolerations.as_ref().map(|list| json!(list))),
        ("pullSecrets", secrets.map(|secrets| json!(secrets))),
    ]
}

fn patch(existing: &ImageListPullJobSpec, wanted: &ImageListPullJobSpec) -> Vec<Value> {
    let pairs = followed(existing).into_iter().zip(followed(wanted));
    let change = |((field, before), (_, after)): ((&str, Option<Value>), (_, Option<Value>))| {
        let path = format!("/spec/{field}");
        match (before, after) {
            (before, after) if before == after => None,
            (_, Some(value)) => Some(json!({"op": "add", "path": path, "value": value})),
            (_, None) => Some(json!({"op": "remove", "path": path})),
        }
    };
    pairs.filter_map(change).collect()
}

#[cfg(test)]
mod tests;
