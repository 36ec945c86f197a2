//! `larder why`: the planner's own explanation of each node of a job, from the objects in the API.

mod waiting_jobs;

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::Client;
use larder_api::node_image::ImageTagStatus;
use larder_api::{ImagePrePullJob, ImagePullJob, NodeImage};
use larder_controller::explain::{self, ExplainedState, Explanation};
use larder_model::{ImageRef, Phase};
use serde::{Serialize, Serializer};

use crate::args::{Cluster, Why};
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::jobs::{self, Job};
use crate::printable::Printable;
use crate::table::{Column, Narrow, fitted};
use crate::{cause, client, job, output};

use self::waiting_jobs::WaitingJobs;

/// The output of `-o json`, on which scripts rely.
#[derive(Debug, Serialize)]
struct Answer {
    job: String,
    /// Why the job as a whole came to nothing, where there is no node that could tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    nodes: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Row {
    node: String,
    #[serde(serialize_with = "word")]
    state: ExplainedState,
    reason: Option<String>,
    explanation: String,
}

pub(crate) async fn run(cluster: &Cluster, arguments: Why) -> Result<(), Failure> {
    let client = client::connect(cluster).await?;
    let jobs = jobs::list(&client, false).await?;
    let found = jobs::find(&jobs, &arguments.job)?;
    let node = arguments.node.as_deref();
    let mut rows = match found {
        Job::Pull(job) => of_pull_jobs(&client, &[job], node).await?,
        Job::List(list) => of_pull_jobs(&client, &jobs::children(&jobs, list), node).await?,
        Job::PrePull(job) => of_pre_pull_job(&client, job, node).await?,
    };
    rows.sort_by_key(|row| (row.state, row.node.clone()));
    let view = found.view();
    let answer = Answer {
        job: view.title(),
        message: Some(view.message)
            .filter(|message| rows.is_empty() && view.phase == job::Phase::Failed && !message.is_empty()),
        nodes: rows,
    };
    output::value(arguments.output, &answer, || shown(&answer, output::width()))
}

async fn of_pull_jobs(client: &Client, jobs: &[&ImagePullJob], node: Option<&str>) -> Result<Vec<Row>, Failure> {
    let fleet = Fleet::read(client).await?;
    if let Some(node) = node.filter(|node| !fleet.has_node(node)) {
        return Err(no_such_node(node));
    }
    let capped = jobs.iter().any(|job| explain::is_capped(job));
    let waiting = waiting_jobs(client, capped).await;
    let mut rows = Vec::new();
    for job in jobs {
        let mut objects = fleet.objects_for(job).await?;
        objects.jobs_before = waiting.before(job.spec.template.priority);
        let found = explain::nodes(job, objects, now()).map_err(|refused| Failure::bad(refused.to_string()))?;
        // A list has several images; each is said.
        let image = (1 < jobs.len()).then_some(job.spec.image.as_str());
        let asked = found.into_iter().filter(|(name, said)| match node {
            Some(node) => name == node,
            None => said.state != ExplainedState::NotSelected,
        });
        rows.extend(asked.map(|(name, said)| {
            let object = fleet.node_image(&name);
            let cause = object.and_then(|object| cause_of(job, &said, object));
            let results = object.map(|object| results_of(*job, object)).unwrap_or_default();
            let gated = job.spec.template.node_gate == Some(true) && fleet.is_gated(&name);
            row(name, &of_new_node(with_details(said, &results), gated), cause, image)
        }));
    }
    // A node without a NodeImage has no explanation.
    if let Some(node) = node.filter(|_| rows.is_empty()) {
        rows.push(Row {
            node: node.to_owned(),
            state: ExplainedState::NotSelected,
            reason: None,
            explanation: "The node has no NodeImage yet; the controller makes one for each Node.".to_owned(),
        });
    }
    Ok(rows)
}

/// The jobs that wait for the fleet limit, which matter to a job that waits for it too.
async fn waiting_jobs(client: &Client, capped: bool) -> WaitingJobs {
    if capped {
        WaitingJobs::read(client).await
    } else {
        WaitingJobs::default()
    }
}

fn row(node: String, said: &Explanation, cause: Option<String>, image: Option<&str>) -> Row {
    let explanation = cause::before(cause, &said.sentence);
    Row {
        node,
        state: said.state,
        reason: said.reason.map(|reason| reason.as_str().to_owned()),
        explanation: match image {
            Some(image) => format!("{image}: {explanation}"),
            None => explanation,
        },
    }
}

/// What the node says of a job's images: each with its name.
type Results<'a> = Vec<(String, &'a ImageTagStatus)>;

fn results_of<'a>(job: &impl kube::Resource, node: &'a NodeImage) -> Results<'a> {
    let Some(uid) = job.meta().uid.as_deref() else {
        return Results::new();
    };
    let entries = node
        .spec
        .images
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |tag| (name, tag)));
    let claimed = entries.filter(|(_, entry)| entry.claims.iter().any(|claim| claim.uid == uid));
    let results =
        claimed.filter_map(|(name, entry)| Some((format!("{name}:{}", entry.tag), node.result(name, &entry.tag)?)));
    results.collect()
}

/// Adds what only the node knows: what a pull waits for or why its last try failed, and where an image came from.
fn with_details(said: Explanation, results: &Results<'_>) -> Explanation {
    let mut told = results
        .iter()
        .filter_map(|(name, result)| Some((name, *result, result.message.as_deref()?)));
    let sentence = match said.state {
        ExplainedState::Pulling => {
            let pulls = told.find(|(_, result, _)| result.phase() == Phase::Pulling);
            let words = pulls.and_then(|(_, result, message)| cause::cause(message, result.reason()));
            cause::before(words, &said.sentence)
        }
        ExplainedState::Succeeded => {
            let there = told.filter(|(_, result, _)| result.phase() == Phase::Succeeded && result.reason.is_none());
            let there = there.map(|(name, _, message)| match results.len() {
                1 => format!(" {message}"),
                _ => format!(" {name}: {message}"),
            });
            format!("{}{}", said.sentence, there.collect::<String>())
        }
        _ => return said,
    };
    Explanation { sentence, ..said }
}

/// Adds that pods wait for a new node.
fn of_new_node(said: Explanation, gated: bool) -> Explanation {
    let note = if gated {
        " This new node waits for its images: its condition larder.dev/ImagesReady is not True."
    } else {
        ""
    };
    Explanation {
        sentence: said.sentence + note,
        ..said
    }
}

/// What the node's runtime or registry said to the failure, as long as the node remembers.
fn cause_of(job: &ImagePullJob, said: &Explanation, node: &NodeImage) -> Option<String> {
    let reason = said.reason?;
    let image = ImageRef::parse(&job.spec.image).ok()?;
    let result = node.result(image.name(), &image.tag_text())?;
    // A result of another job may have another reason, and its words would explain nothing.
    let same = result.reason() == Some(reason);
    cause::cause(result.message.as_deref().filter(|_| same)?, Some(reason))
}

async fn of_pre_pull_job(client: &Client, job: &ImagePrePullJob, node: Option<&str>) -> Result<Vec<Row>, Failure> {
    let fleet = Fleet::read(client).await?;
    let waiting = waiting_jobs(client, explain::is_prepull_capped(job)).await;
    let mut objects = fleet.objects_for_pre_pull(job).await;
    objects.jobs_before = waiting.before(job.spec.image_pre_pull_template.priority);
    let found = explain::prepull_nodes(job, objects, now()).map_err(|refused| Failure::bad(refused.to_string()))?;
    // A job may name a node that does not exist, and is asked about it.
    let named = found.iter().any(|(name, _)| Some(name.as_str()) == node);
    if let Some(node) = node.filter(|node| !named && !fleet.has_node(node)) {
        return Err(no_such_node(node));
    }
    let asked = found.into_iter().filter(|(name, said)| match node {
        Some(node) => name == node,
        None => said.state != ExplainedState::NotSelected,
    });
    let say = |(name, said): (String, Explanation)| {
        let results = fleet.node_image(&name).map(|object| results_of(job, object));
        let said = with_details(said, &results.unwrap_or_default());
        let failed = fleet
            .node_image(&name)
            .and_then(|object| failed_image(job, &name, object));
        let reason = said.reason.or(failed.as_ref().and_then(|result| result.reason()));
        let said = Explanation { reason, ..said };
        let message = failed.and_then(|result| result.message.as_deref());
        let cause = message.and_then(|message| cause::cause(message, reason));
        row(name, &said, cause, None)
    };
    let mut rows: Vec<Row> = asked.map(say).collect();
    // Of a job that is over nothing is known but its own nodes.
    if let Some(node) = node.filter(|_| rows.is_empty()) {
        rows.push(Row {
            node: node.to_owned(),
            state: ExplainedState::NotSelected,
            reason: None,
            explanation: "The job did not select this node.".to_owned(),
        });
    }
    Ok(rows)
}

/// What a node says of the first image of a job that it could not get, as long as it remembers.
fn failed_image<'a>(job: &ImagePrePullJob, node: &str, object: &'a NodeImage) -> Option<&'a ImageTagStatus> {
    let nodes = &job.status.as_ref()?.node_status;
    let status = nodes.iter().find(|status| status.node_name.as_deref() == Some(node))?;
    let failed = status
        .image_status
        .iter()
        .filter(|image| image.status.as_deref() == Some("False"));
    let mut results = failed.filter_map(|image| {
        let name = image.resolved_image.as_deref().or(image.image.as_deref())?;
        let image = ImageRef::parse(name).ok()?;
        object.result(image.name(), &image.tag_text())
    });
    results.find(|result| result.phase() == Phase::Failed)
}

fn no_such_node(node: &str) -> Failure {
    Failure::wrong(format!(
        "there is no node {node}; kubectl get nodes lists the ones there are"
    ))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this signature")]
fn word<S: Serializer>(state: &ExplainedState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.as_str())
}

const COLUMNS: [Column; 4] = [
    ("NODE", Narrow::Keep),
    ("STATE", Narrow::Keep),
    ("REASON", Narrow::Keep),
    ("EXPLANATION", Narrow::Wrap),
];

fn shown(answer: &Answer, width: Option<usize>) -> Printable {
    if answer.nodes.is_empty() {
        let job = &answer.job;
        return Printable::line(&match &answer.message {
            Some(message) => format!("{job} failed before any node was asked: {message}"),
            None => format!("{job} has no nodes: its selector matches none, or no controller has looked at it."),
        });
    }
    let row = |row: &Row| {
        let reason = row.reason.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            row.node.clone(),
            row.state.as_str().to_owned(),
            reason,
            row.explanation.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = answer.nodes.iter().map(row).collect();
    let table = fitted(&COLUMNS, &rows, width);
    match left_out(&answer.nodes) {
        Some(sentence) => table.then(&Printable::line(&sentence)),
        None => table,
    }
}

/// How many nodes the job leaves out because they have no agent. Why, each of their rows says.
fn left_out(rows: &[Row]) -> Option<String> {
    let nodes: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row.state == ExplainedState::NoAgent)
        .map(|row| &*row.node)
        .collect();
    match nodes.len() {
        0 => None,
        1 => Some("1 node is left out because no agent runs there.".to_owned()),
        number => Some(format!("{number} nodes are left out because no agent runs there.")),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person asks how long something has been so, by this machine's clock"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::Reason;
    use rstest::rstest;
    use serde_json::json;

    #[test]
    fn what_needs_attention_comes_first() {
        use ExplainedState::{Blocked, Failed, NotSelected, Pulling, Succeeded};
        let mut states = [NotSelected, Succeeded, Pulling, Failed, Blocked];
        states.sort_unstable();
        assert_eq!(states, [Failed, Blocked, Pulling, Succeeded, NotSelected]);
    }

    #[test]
    fn a_failure_is_said_with_its_cause() {
        let spec = larder_api::ImagePullJobSpec {
            image: "nginx:1".into(),
            ..Default::default()
        };
        let job = ImagePullJob::new("web", spec);
        let said = Explanation {
            state: ExplainedState::Failed,
            reason: Some(Reason::NotFound),
            sentence: Reason::NotFound.advice().to_owned(),
        };
        let node = |reason: &str| -> NodeImage {
            let message = format!(
                "Failed to pull image reference \"nginx:1\": manifest unknown. {}",
                Reason::NotFound.advice()
            );
            serde_json::from_value(serde_json::json!({
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a"}, "spec": {},
                "status": {"imageStatuses": {"nginx": {"tags": [{"tag": "1", "phase": "Failed", "reason": reason, "message": message}]}}},
            }))
            .unwrap()
        };
        let cause = cause_of(&job, &said, &node("NotFound"));
        assert_eq!(
            row("a".into(), &said, cause, None).explanation,
            format!("Manifest unknown. {}", Reason::NotFound.advice())
        );
        assert_eq!(cause_of(&job, &said, &node("Dns")), None, "another job's failure");
    }

    #[rstest]
    #[case::waits_for_the_registry(
        ExplainedState::Pulling,
        json!([{"tag": "1", "phase": "Pulling", "message": "The registry asked to retry after 40 s; the pull goes on then."}]),
        "The registry asked to retry after 40 s; the pull goes on then. Said."
    )]
    #[case::waits_for_the_next_try(
        ExplainedState::Pulling,
        json!([{"tag": "1", "phase": "Pulling", "reason": "RateLimited", "message": format!(
            "Failed to pull image reference \"nginx:1\": too many (the registry asks to wait 400 s). {}",
            Reason::RateLimited.advice()
        )}]),
        "Too many (the registry asks to wait 400 s). Said."
    )]
    #[case::is_there(
        ExplainedState::Succeeded,
        json!([{"tag": "1", "phase": "Succeeded", "message": "All 8.0 MiB came from mirror.example."}]),
        "Said. All 8.0 MiB came from mirror.example."
    )]
    #[case::several_are_there(
        ExplainedState::Succeeded,
        json!([
            {"tag": "1", "phase": "Succeeded", "message": "All 8.0 MiB came from mirror.example."},
            {"tag": "2", "phase": "Succeeded", "message": "All 9.0 MiB were on the node already."},
        ]),
        "Said. nginx:1: All 8.0 MiB came from mirror.example. nginx:2: All 9.0 MiB were on the node already."
    )]
    #[case::of_another_job(
        ExplainedState::Succeeded,
        json!([{"tag": "3", "phase": "Succeeded", "message": "All 8.0 MiB came from mirror.example."}]),
        "Said."
    )]
    fn what_only_the_node_knows_is_said_too(
        #[case] state: ExplainedState,
        #[case] results: serde_json::Value,
        #[case] want: &str,
    ) {
        let entry = |tag: &str, uid: &str| json!({"tag": tag, "pullPolicy": {"ttlSecondsAfterFinished": 1}, "claims": [{"uid": uid, "version": 0}]});
        let claimed: Vec<_> = results
            .as_array()
            .unwrap()
            .iter()
            .map(|result| {
                let tag = result["tag"].as_str().unwrap();
                entry(tag, if tag == "3" { "other" } else { "web-uid" })
            })
            .collect();
        let node: NodeImage = serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a"},
            "spec": {"images": {"nginx": {"tags": claimed}}},
            "status": {"imageStatuses": {"nginx": {"tags": results}}},
        }))
        .unwrap();
        let mut job = ImagePullJob::new("web", larder_api::ImagePullJobSpec::default());
        job.metadata.uid = Some("web-uid".to_owned());
        let said = Explanation {
            state,
            reason: None,
            sentence: "Said.".to_owned(),
        };
        assert_eq!(with_details(said, &results_of(&job, &node)).sentence, want);
    }

    #[test]
    fn a_refused_job_says_why() {
        let answer = Answer {
            job: "imageprepulljob/x".into(),
            message: Some("images[0]: there is no repo; give repo".into()),
            nodes: Vec::new(),
        };
        assert_eq!(
            shown(&answer, None).as_str(),
            "imageprepulljob/x failed before any node was asked: images[0]: there is no repo; give repo\n"
        );
        assert_eq!(
            serde_json::to_value(&answer).unwrap(),
            serde_json::json!({"job": "imageprepulljob/x", "message": "images[0]: there is no repo; give repo", "nodes": []})
        );
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        let answer = Answer {
            job: "imagepulljob/web".into(),
            message: None,
            nodes: vec![Row {
                node: "a".into(),
                state: ExplainedState::Failed,
                reason: Some("NotFound".into()),
                explanation: "Check the name.".into(),
            }],
        };
        assert_eq!(
            serde_json::to_value(&answer).unwrap(),
            serde_json::json!({"job": "imagepulljob/web", "nodes": [{"node": "a", "state": "Failed", "reason": "NotFound", "explanation": "Check the name."}]})
        );
    }
}
