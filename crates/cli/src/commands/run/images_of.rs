//! `larder run --images-of`: one ImageListPullJob for the images of workloads. `source` says where their definitions come
//! from, `live` reads them from a cluster; which images, nodes and Secrets they need is decided by
//! [`larder_planner::workload`].

mod live;
pub(crate) mod source;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Client;
use larder_api::ImageListPullJob;
use larder_planner::workload::{self, Accounts, ImageList, Note, Workload, WorkloadNodes};
use serde_json::Value;

use self::source::Source;
use crate::args::{Cluster, Format};
use crate::failure::Failure;
use crate::manifest::Document;
use crate::{client, output};

/// How many nodes pull an image at once: the setting that OpenKruise's guides recommend.
const PARALLELISM: i32 = 10;

/// The job is deleted this long after its end, in which `larder why` can explain it. A pipeline makes a job each time it runs.
const TTL_SECONDS: i32 = 3_600;

/// Most characters of a source in the job's name, to which the API server adds five and a list job's children more.
const NAME_LENGTH: usize = 40;

/// The job for a source, and the cluster to create it in.
pub(super) async fn job(cluster: &Cluster, source: &Source, format: Format) -> Result<(Client, Document), Failure> {
    let from_file = match source {
        Source::Manifests(path) => Some(source::read_manifests(path)?),
        Source::Object { .. } | Source::Namespace(_) => None,
    };
    let client = client::connect(cluster).await?;
    let documents = match (from_file, source) {
        (Some(documents), _) => documents,
        (None, Source::Object { kind, name }) => vec![live::object(&client, kind, name).await?],
        (None, Source::Namespace(name)) => live::namespace(&client, name).await?,
        (None, Source::Manifests(_)) => Vec::new(),
    };
    let workloads = workloads(source, &documents, client.default_namespace())?;
    let accounts = accounts(&client, &workloads, &documents).await?;
    let list = workload::image_list(&workloads, &accounts);
    let mut list = list.map_err(|refusal| Failure::wrong(format!("{source}: {refusal}")))?;
    refuse_invalid(source, &list)?;
    if !list.nodes_are_exact {
        name_nodes(&client, &workloads, &mut list).await?;
    }
    for note in &list.notes {
        output::note(&note.to_string());
    }
    if format == Format::Table {
        say_images(&workloads, &list);
    }
    let document = document(source, &list)?;
    Ok((client, document))
}

/// The objects that have pods. Others are counted and said; none at all is a failure.
fn workloads(source: &Source, documents: &[Document], namespace: &str) -> Result<Vec<Workload>, Failure> {
    let mut found = Vec::new();
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for document in documents {
        let read = workload::read(&document.object, namespace);
        let read =
            read.map_err(|error| Failure::wrong(format!("{}: {}: {error}", document.place, document.title())))?;
        match read {
            Some(workload) => found.push(workload),
            None => *others.entry(document.text("/kind")).or_default() += 1,
        }
    }
    let others: Vec<String> = others.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let others = others.join(", ");
    match (found.is_empty(), others.is_empty()) {
        (true, true) => Err(Failure::wrong(format!(
            "{source}: no workload was found; it must have at least one Deployment, Pod or other object with pods"
        ))),
        (true, false) => Err(Failure::wrong(format!(
            "{source}: no object has pods; these were found: {others}"
        ))),
        (false, true) => Ok(found),
        (false, false) => {
            output::note(&format!("objects without pods are skipped: {others}"));
            Ok(found)
        }
    }
}

/// The pull secrets of ServiceAccounts: those of the manifests first, which may not be in the cluster yet.
async fn accounts(client: &Client, workloads: &[Workload], documents: &[Document]) -> Result<Accounts, Failure> {
    let mut accounts = Accounts::new();
    let given = documents
        .iter()
        .filter(|document| document.text("/kind") == "ServiceAccount");
    let given: BTreeMap<(&str, &str), &Value> = given
        .map(|document| {
            let namespace = match document.text("/metadata/namespace") {
                "" => client.default_namespace(),
                namespace => namespace,
            };
            ((namespace, document.text("/metadata/name")), &document.object)
        })
        .collect();
    for (namespace, name) in workload::service_accounts(workloads) {
        let account = match given.get(&(namespace.as_str(), name.as_str())) {
            Some(object) => serde_json::from_value::<ServiceAccount>((*object).clone())
                .map(Some)
                .map_err(|error| Failure::wrong(format!("ServiceAccount {name}: {error}")))?,
            None => live::service_account(client, &namespace, &name).await?,
        };
        let secrets = account.and_then(|account| account.image_pull_secrets);
        let names = secrets.into_iter().flatten().map(|secret| secret.name);
        accounts.insert((namespace, name), names.collect());
    }
    Ok(accounts)
}

/// A pipeline should not go on with an image that no node can have.
fn refuse_invalid(source: &Source, list: &ImageList) -> Result<(), Failure> {
    let invalid = list.notes.iter().filter(|note| matches!(note, Note::Invalid { .. }));
    let invalid: Vec<String> = invalid.map(ToString::to_string).collect();
    if invalid.is_empty() {
        Ok(())
    } else {
        Err(Failure::wrong(format!("{source}: {}", invalid.join("; "))))
    }
}

/// Where no selector says it, the nodes are named: those that match now.
async fn name_nodes(client: &Client, workloads: &[Workload], list: &mut ImageList) -> Result<(), Failure> {
    let matching = WorkloadNodes::new(workloads).map_err(|error| Failure::wrong(error.to_string()))?;
    let Some(names) = live::node_names(client, &matching).await? else {
        output::note(
            "the nodes cannot be listed, so the images are pulled onto every node that may match: one selector cannot \
             express the node affinity",
        );
        return Ok(());
    };
    if names.is_empty() {
        return Err(Failure::wrong(
            "no node of the cluster matches the nodeSelector, node affinity and tolerations of the workloads",
        ));
    }
    list.name_nodes(names);
    Ok(())
}

fn say_images(workloads: &[Workload], list: &ImageList) {
    let titles: Vec<String> = workloads.iter().map(Workload::title).collect();
    output::line(&format!("Images of {}:", titles.join(", ")));
    for image in &list.images {
        output::line(&format!("  {image}"));
    }
}

fn document(source: &Source, list: &ImageList) -> Result<Document, Failure> {
    let mut spec = list.spec();
    spec.template.parallelism = Some(IntOrString::Int(PARALLELISM));
    spec.template.completion_policy.ttl_seconds_after_finished = Some(TTL_SECONDS);
    let mut job = ImageListPullJob::new("", spec);
    job.metadata.name = None;
    job.metadata.generate_name = Some(name_prefix(source));
    job.metadata.namespace = Some(list.namespace.clone());
    let object = serde_json::to_value(&job).map_err(|error| Failure::wrong(format!("{source}: {error}")))?;
    Ok(Document {
        place: source.to_string(),
        object,
    })
}

/// What the job's name begins with: `images-of-deployment-web-`.
fn name_prefix(source: &Source) -> String {
    let source = match source {
        Source::Manifests(_) => "manifests".to_owned(),
        Source::Object { kind, name } => format!("{}-{name}", kind.word()),
        Source::Namespace(name) => format!("namespace-{name}"),
    };
    let short: String = source.chars().take(NAME_LENGTH).collect();
    format!("images-of-{}-", short.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests;
