//! `larder why`: the planner's own explanation of each node of a job, from the objects in the API.

use jiff::Timestamp;
use kube::Client;
use larder_api::{ImagePrePullJob, ImagePullJob};
use larder_controller::explain::{self, Explanation};
use serde::Serialize;

use crate::args::{Cluster, Why};
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::jobs::{self, Job};
use crate::table::table;
use crate::{client, output};

/// The output of `-o json`, on which scripts rely.
#[derive(Debug, Serialize)]
struct Answer {
    job: String,
    nodes: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Row {
    node: String,
    state: String,
    reason: Option<String>,
    explanation: String,
}

pub(crate) async fn run(cluster: &Cluster, arguments: Why) -> Result<(), Failure> {
    let client = client::connect(cluster).await?;
    let jobs = jobs::list(&client, false).await?;
    let job = jobs::find(&jobs, &arguments.job)?;
    let node = arguments.node.as_deref();
    let mut rows = match job {
        Job::Pull(job) => of_pull_jobs(&client, &[job], node).await?,
        Job::List(list) => of_pull_jobs(&client, &jobs::children(&jobs, list), node).await?,
        Job::PrePull(job) => of_pre_pull_job(job, node),
    };
    rows.sort_by_key(|row| (rank(&row.state), row.node.clone()));
    let answer = Answer {
        job: job.view().title(),
        nodes: rows,
    };
    output::value(arguments.output, &answer, || shown(&answer))
}

async fn of_pull_jobs(client: &Client, jobs: &[&ImagePullJob], node: Option<&str>) -> Result<Vec<Row>, Failure> {
    let fleet = Fleet::read(client).await?;
    if let Some(node) = node.filter(|node| !fleet.has_node(node)) {
        return Err(Failure::wrong(format!(
            "there is no node {node}; kubectl get nodes lists the ones there are"
        )));
    }
    let mut rows = Vec::new();
    for job in jobs {
        let objects = fleet.objects_for(job).await?;
        let found = explain::nodes(job, objects, now()).map_err(|refused| Failure::bad(refused.to_string()))?;
        // A list has several images; each is said.
        let image = (1 < jobs.len()).then_some(job.spec.image.as_str());
        let asked = found.into_iter().filter(|(name, said)| match node {
            Some(node) => name == node,
            None => said.state != "NotSelected",
        });
        rows.extend(asked.map(|(name, said)| row(name, &said, image)));
    }
    // A node without a NodeImage is in nobody's list.
    if let Some(node) = node.filter(|_| rows.is_empty()) {
        rows.push(Row {
            node: node.to_owned(),
            state: "NotSelected".to_owned(),
            reason: None,
            explanation: "The node has no NodeImage yet; the controller makes one for each Node.".to_owned(),
        });
    }
    Ok(rows)
}

fn row(node: String, said: &Explanation, image: Option<&str>) -> Row {
    Row {
        node,
        state: said.state.to_owned(),
        reason: said.reason.map(|reason| reason.as_str().to_owned()),
        explanation: image.map_or_else(|| said.sentence.clone(), |image| format!("{image}: {}", said.sentence)),
    }
}

/// This kind's status holds its nodes.
fn of_pre_pull_job(job: &ImagePrePullJob, node: Option<&str>) -> Vec<Row> {
    let nodes = job.status.iter().flat_map(|status| &status.node_status);
    let rows = nodes.map(|status| Row {
        node: status.node_name.clone().unwrap_or_default(),
        state: status.phase.clone().unwrap_or_default(),
        reason: None,
        explanation: status.reason.clone().unwrap_or_default(),
    });
    rows.filter(|row| node.is_none_or(|node| row.node == node)).collect()
}

/// What needs somebody's attention comes first.
fn rank(state: &str) -> usize {
    let order = [
        "Failed",
        "Blocked",
        "Ordered",
        "Pulling",
        "Queued",
        "Waiting",
        "Succeeded",
        "NotSelected",
    ];
    order.iter().position(|known| *known == state).unwrap_or(0)
}

fn shown(answer: &Answer) -> String {
    if answer.nodes.is_empty() {
        return format!(
            "{} has no nodes: its selector matches none, or no controller has looked at it.\n",
            answer.job
        );
    }
    let row = |row: &Row| {
        let reason = row.reason.clone().unwrap_or_else(|| "-".to_owned());
        vec![row.node.clone(), row.state.clone(), reason, row.explanation.clone()]
    };
    let rows: Vec<Vec<String>> = answer.nodes.iter().map(row).collect();
    table(&["NODE", "STATE", "REASON", "EXPLANATION"], &rows)
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

    #[test]
    fn what_needs_attention_comes_first() {
        let mut states = vec!["NotSelected", "Succeeded", "Pulling", "Failed", "Blocked"];
        states.sort_by_key(|state| rank(state));
        assert_eq!(states, ["Failed", "Blocked", "Pulling", "Succeeded", "NotSelected"]);
    }

    #[test]
    fn the_json_is_what_scripts_rely_on() {
        let answer = Answer {
            job: "imagepulljob/web".into(),
            nodes: vec![Row {
                node: "a".into(),
                state: "Failed".into(),
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
