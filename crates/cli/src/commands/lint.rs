//! `larder lint`: the rules of the CRDs, offline, with suggestions for mistakes that are known from other documents.
//!
//! There is no second implementation of the rules: each object is offered to the embedded API server as a dry run, and what it
//! answers is printed. What only the controller can see (the parts of image objects, for one) is read by the functions that
//! the controller reads it by. `source` corrects the text before that, `suggest` says what to write instead.

mod source;
mod suggest;

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use larder_api::{ImageListPullJob, ImagePrePullJob, ImagePullJob};
use larder_localplane::{Config, Localplane};
use larder_model::ImageRef;
use larder_planner::kruise::campaign::campaign;
use larder_planner::kruise::list;
use larder_planner::kubeedge::PrePull;
use serde_json::{Value, json};

use crate::args::Lint;
use crate::failure::{Failure, chain};
use crate::manifest::{self, Document};
use crate::output;
use crate::table::wrap;

/// Columns by which a line goes on below itself.
const INDENT: usize = 4;

pub(crate) async fn run(arguments: Lint) -> Result<(), Failure> {
    let files: Vec<Checked> = arguments
        .files
        .iter()
        .map(|path| read(path))
        .collect::<Result<_, _>>()?;
    let crds = larder_api::crds();
    let plane = Localplane::start(Config::new(crds.clone())).await;
    let plane = plane.map_err(|error| Failure::wrong(format!("the rules cannot be loaded: {}", chain(&error))))?;
    let client = Client::new(plane.service(), "default");
    let mut faults = 0;
    for file in &files {
        faults += file.mistakes.len();
        for mistake in &file.mistakes {
            say(mistake);
        }
        for document in &file.documents {
            faults += report(&client, &crds, document).await?;
        }
    }
    plane.shutdown().await;
    if faults == 0 { Ok(()) } else { Err(Failure::said()) }
}

/// A file whose text was checked.
struct Checked {
    /// What is wrong with its text.
    mistakes: Vec<String>,
    /// Its objects, as they are without the mistakes.
    documents: Vec<Document>,
}

fn read(path: &Path) -> Result<Checked, Failure> {
    let file = manifest::read_text(path)?;
    let corrected = source::correct(&file.text);
    let mistake = |mistake: &source::Mistake| format!("{}, line {}: {}", file.shown, mistake.line, mistake.sentence);
    let mut mistakes: Vec<String> = corrected.mistakes.iter().map(mistake).collect();
    let documents = match manifest::parse(&file.shown, &corrected.text) {
        Ok(documents) => documents,
        Err(failure) if mistakes.is_empty() => return Err(failure),
        Err(failure) => {
            mistakes.push(failure.sentence().to_owned());
            Vec::new()
        }
    };
    Ok(Checked { mistakes, documents })
}

/// Prints what is wrong with one object, and returns how many faults that is.
async fn report(client: &Client, crds: &[CustomResourceDefinition], document: &Document) -> Result<usize, Failure> {
    let title = format!("{}: {}", document.place, document.title());
    if !is_ours(crds, document.text("/apiVersion")) {
        say(&format!("{title}: not checked, it is none of Larder's kinds"));
        return Ok(0);
    }
    let faults = check(client, crds, document).await?;
    if faults.is_empty() {
        say(&format!("{title}: ok"));
    }
    for fault in &faults {
        say(&format!("{title}: {fault}"));
    }
    for hint in suggest::hints(&document.object) {
        say(&format!("{title}: hint: {hint}"));
    }
    Ok(faults.len())
}

/// Prints a line; on a terminal it is broken between words and goes on below, moved in.
fn say(line: &str) {
    let Some(width) = output::width() else {
        return output::line(line);
    };
    for (number, part) in wrap(line, width.saturating_sub(INDENT)).iter().enumerate() {
        let indent = if number == 0 { 0 } else { INDENT };
        output::line(&format!("{}{part}", " ".repeat(indent)));
    }
}

/// The faults of one object, each in a sentence.
async fn check(
    client: &Client,
    crds: &[CustomResourceDefinition],
    document: &Document,
) -> Result<Vec<String>, Failure> {
    let Some(served) = Served::find(crds, document.text("/apiVersion"), document.text("/kind")) else {
        let served = "ImagePullJob, ImageListPullJob, NodeImage, ImagePrePullJob";
        return Ok(vec![format!(
            "{} has no such kind, or not in that version; there are {served}",
            document.text("/apiVersion")
        )]);
    };
    let mut object = document.object.clone();
    let mut faults = suggest::correct_types(&served.schema, &mut object);
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    // Which namespaces exist is the cluster's business.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    // Asked twice: an API server that looks for unknown fields looks at nothing else when it finds one.
    let address = |validation: &str| format!("{}?dryRun=All&fieldValidation={validation}", served.collection);
    let rules = offer(client, &address("Ignore"), &object).await?;
    faults.extend(rules.into_iter().map(|fault| suggest::with_suggestion(fault, &object)));
    let strict = offer(client, &address("Strict"), &object).await?;
    faults.extend(suggest::unknown_fields(&served.schema, &object, &unknown_in(&strict)));
    if faults.is_empty() {
        faults.extend(refused_later(document.text("/kind"), object));
    }
    Ok(faults)
}

/// The paths that an API server names as unknown: `strict decoding error: unknown field "spec.a", unknown field "spec.b"`.
fn unknown_in(faults: &[String]) -> Vec<String> {
    let strict = faults
        .iter()
        .filter_map(|fault| fault.split_once("strict decoding error: "));
    let fields = strict.flat_map(|(_, fields)| fields.split("unknown field \"").skip(1));
    fields
        .filter_map(|field| field.rsplit_once('"'))
        .map(|(path, _)| path.to_owned())
        .collect()
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
            unreadable(&job.spec.image).or_else(|| campaign(&job).err())
        }
        "ImageListPullJob" => {
            let job: ImageListPullJob = serde_json::from_value(object).ok()?;
            let image = job.spec.images.iter().find_map(|image| unreadable(image));
            image.or_else(|| {
                let mut children = list::children(&job).ok()?.into_values();
                children.find_map(|spec| campaign(&list::child(&job, spec)).err())
            })
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

/// A version of one of our kinds.
struct Served {
    /// The address of its objects.
    collection: String,
    schema: Value,
}

impl Served {
    /// None if no kind of ours is served in that version.
    fn find(crds: &[CustomResourceDefinition], api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/')?;
        let crd = crds
            .iter()
            .find(|crd| crd.spec.group == group && crd.spec.names.kind == kind)?;
        let served = crd.spec.versions.iter().find(|served| served.name == version)?;
        let schema = served.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        let namespace = if crd.spec.scope == "Namespaced" {
            "/namespaces/default"
        } else {
            ""
        };
        Some(Self {
            collection: format!("/apis/{group}/{version}{namespace}/{}", crd.spec.names.plural),
            schema: serde_json::to_value(schema).ok()?,
        })
    }
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

    #[test]
    fn the_paths_of_unknown_fields() {
        let said = "Bad request: strict decoding error: unknown field \"a\", unknown field \"spec.x.y/z\"".to_owned();
        assert_eq!(unknown_in(&[said]), ["a", "spec.x.y/z"]);
        assert!(unknown_in(&["spec.image: Required value".to_owned()]).is_empty());
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
