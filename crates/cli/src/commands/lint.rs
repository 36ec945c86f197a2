//! `larder lint`: the rules of the CRDs, offline.
//!
//! There is no second implementation of them: each object is offered to the embedded API server as a dry run, and what it
//! answers is printed. What only the controller can see (the parts of image objects, for one) is read by the functions that
//! the controller reads it by.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use larder_localplane::{Config, Localplane};
use larder_model::ImageRef;
use larder_planner::prepull::PrePull;
use serde_json::{Value, json};

use crate::args::Lint;
use crate::failure::{Failure, chain};
use crate::manifest::{self, Document};
use crate::output;

pub(crate) async fn run(arguments: Lint) -> Result<(), Failure> {
    let documents = manifest::read_all(&arguments.files)?;
    let crds = larder_api::crds();
    let plane = Localplane::start(Config::new(crds.clone())).await;
    let plane = plane.map_err(|error| Failure::wrong(format!("the rules cannot be loaded: {}", chain(&error))))?;
    let client = Client::new(plane.service(), "default");
    let mut faults = 0;
    for document in &documents {
        let title = format!("{}: {}", document.place, document.title());
        if !is_ours(&crds, document.text("/apiVersion")) {
            output::line(&format!("{title}: not checked, it is none of Larder's kinds"));
            continue;
        }
        let found = check(&client, &crds, document).await?;
        faults += found.len();
        if found.is_empty() {
            output::line(&format!("{title}: ok"));
        }
        for fault in found {
            output::line(&format!("{title}: {fault}"));
        }
    }
    plane.shutdown().await;
    if faults == 0 { Ok(()) } else { Err(Failure::said()) }
}

/// The faults of one object, each in a sentence.
async fn check(
    client: &Client,
    crds: &[CustomResourceDefinition],
    document: &Document,
) -> Result<Vec<String>, Failure> {
    let Some(collection) = collection(crds, document.text("/apiVersion"), document.text("/kind")) else {
        let served = "ImagePullJob, ImageListPullJob, NodeImage, ImagePrePullJob";
        return Ok(vec![format!(
            "{} has no such kind, or not in that version; there are {served}",
            document.text("/apiVersion")
        )]);
    };
    let mut object = document.object.clone();
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    // Which namespaces exist is the cluster's business.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    // Asked twice: an API server that looks for unknown fields looks at nothing else when it finds one.
    let mut faults = offer(
        client,
        &format!("{collection}?dryRun=All&fieldValidation=Ignore"),
        &object,
    )
    .await?;
    let strict = offer(
        client,
        &format!("{collection}?dryRun=All&fieldValidation=Strict"),
        &object,
    )
    .await?;
    let unknown = strict
        .iter()
        .filter_map(|fault| fault.split_once("strict decoding error: "));
    faults.extend(unknown.flat_map(|(_, fields)| fields.split(", ")).map(str::to_owned));
    if faults.is_empty() {
        faults.extend(refused_later(document.text("/kind"), object));
    }
    Ok(faults)
}

/// What the API server lets through and the controller would refuse.
fn refused_later(kind: &str, object: Value) -> Option<String> {
    let unreadable = |image: &str| {
        let error = ImageRef::parse(image).err()?;
        Some(format!("{image}: {error}"))
    };
    match kind {
        "ImagePullJob" => {
            let job: ImagePullJob = serde_json::from_value(object).ok()?;
            unreadable(&job.spec.image)
        }
        "ImageListPullJob" => {
            let job: ImageListPullJob = serde_json::from_value(object).ok()?;
            job.spec.images.iter().find_map(|image| unreadable(image))
        }
        "ImagePrePullJob" => {
            let job: ImagePrePullJob = serde_json::from_value(object).ok()?;
            PrePull::of(&job).err().map(|refusal| refusal.to_string())
        }
        _ => None,
    }
}

/// What the API server has against an object.
async fn offer(client: &Client, address: &str, object: &Value) -> Result<Vec<String>, Failure> {
    let body = serde_json::to_vec(object).map_err(|error| Failure::wrong(error.to_string()))?;
    let request = http::Request::post(address)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| Failure::wrong(error.to_string()))?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(Vec::new()),
        Err(kube::Error::Api(status)) => {
            let causes = status
                .details
                .as_ref()
                .map(|details| details.causes.as_slice())
                .unwrap_or_default();
            // The API server adds that it looked no further, in the words of a program.
            let faults = causes
                .iter()
                .filter(|cause| cause.field != "<nil>")
                .map(|cause| format!("{}: {}", cause.field, cause.message))
                .collect::<Vec<_>>();
            Ok(if faults.is_empty() {
                vec![status.message.clone()]
            } else {
                faults
            })
        }
        Err(error) => Err(Failure::from_api("checking", &error)),
    }
}

/// Whether a group is one of those that we serve kinds of.
fn is_ours(crds: &[CustomResourceDefinition], api_version: &str) -> bool {
    let group = api_version.split('/').next().unwrap_or_default();
    crds.iter().any(|crd| crd.spec.group == group)
}

/// The address of a kind's objects, if it is one of ours and serves that version.
fn collection(crds: &[CustomResourceDefinition], api_version: &str, kind: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/')?;
    let crd = crds
        .iter()
        .find(|crd| crd.spec.group == group && crd.spec.names.kind == kind)?;
    crd.spec.versions.iter().find(|served| served.name == version)?;
    let namespace = if crd.spec.scope == "Namespaced" {
        "/namespaces/default"
    } else {
        ""
    };
    Some(format!("/apis/{group}/{version}{namespace}/{}", crd.spec.names.plural))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn pre_pull(images: &Value) -> Value {
        json!({
            "apiVersion": "operations.kubeedge.io/v1alpha1", "kind": "ImagePrePullJob", "metadata": { "name": "x" },
            "spec": { "imagePrePullTemplate": { "images": images, "nodeNames": ["edge"] } },
        })
    }

    #[rstest]
    #[case::number("ImagePrePullJob", pre_pull(&json!([7])), true)]
    #[case::capitals("ImagePrePullJob", pre_pull(&json!(["B/c"])), true)]
    #[case::secret_without_namespace("ImagePrePullJob", pre_pull(&json!([{"repo": "a", "imageSecret": "nosecret"}])), true)]
    #[case::fine("ImagePrePullJob", pre_pull(&json!(["nginx", {"registry": "r.example", "repo": "a", "tag": "1"}])), false)]
    #[case::host_in_brackets(
        "ImagePullJob",
        json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {}, "spec": {"image": "[1:2]/x"}}),
        true
    )]
    fn what_the_controller_would_refuse(#[case] kind: &str, #[case] object: Value, #[case] refused: bool) {
        assert_eq!(refused_later(kind, object).is_some(), refused);
    }
}
