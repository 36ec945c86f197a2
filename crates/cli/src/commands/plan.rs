//! `larder plan`: asks the nodes by dryRun entries what a job would pull and whether it fits. It pulls nothing, and takes
//! every entry back, whatever happens.

mod ask;
mod plan_targets;
mod pull_secrets;
mod trust;
mod verdict;

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::Client;
use larder_api::ImageListPullJob;
use larder_controller::explain;
use larder_model::{ByteSize, Reason};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::ask::Question;
use self::plan_targets::{Job, NodeTarget, PlanTargets, TargetImage};
use self::pull_secrets::PullSecrets;
use self::trust::Withheld;
use self::verdict::{Row, Verdict};
use crate::args::{Cluster, Plan};
use crate::commands::run::submit;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::printable::Printable;
use crate::table::{Column, Narrow, fitted, wrap};
use crate::{client, manifest, output, stop};

/// The output of `-o json`, on which scripts rely.
#[derive(Debug, Serialize)]
struct Answer {
    images: Vec<String>,
    nodes: Vec<Row>,
}

pub(crate) async fn run(cluster: &Cluster, arguments: Plan) -> Result<(), Failure> {
    let stop = stop::token()?;
    let preparation = async {
        let documents = manifest::read_all(&arguments.filename)?;
        let client = client::connect(cluster).await?;
        let jobs = jobs(&client, &documents).await?;
        let fleet = Fleet::read(&client).await?;
        let targets = PlanTargets::of(&fleet, &jobs, now()).await?;
        let pull_secrets = PullSecrets::read(&client, targets.secrets()).await;
        let withheld = Withheld::find(&client, &fleet, &targets).await;
        Ok((targets, pull_secrets, withheld, client))
    };
    let (targets, pull_secrets, withheld, client) = tokio::select! {
        prepared = preparation => prepared?,
        () = stop.cancelled() => return Err(Failure::interrupted()),
    };
    if targets.nodes.is_empty() {
        return Err(Failure::bad("the job selects no node; check its selector"));
    }
    let asked = targets
        .nodes
        .iter()
        .filter(|(_, target)| target.blocked.is_none())
        .map(|(node, target)| {
            (
                node.clone(),
                questions(target, &pull_secrets, withheld.nodes.contains(node)),
            )
        })
        .collect();
    let answers = ask::all(&client, asked, arguments.timeout, &stop).await?;
    if stop.is_cancelled() {
        return Err(Failure::interrupted());
    }
    let row = |(node, target): (&String, &NodeTarget)| {
        if let Some(blocked) = &target.blocked {
            return Row::blocked(node, blocked.reason, &blocked.message);
        }
        let untrusted = withheld.nodes.contains(node);
        let login_missing = questions(target, &pull_secrets, untrusted)
            .iter()
            .any(|asked| asked.logins.incomplete);
        verdict::row(node, answers.get(node), target.images.len(), login_missing)
    };
    let rows: Vec<Row> = targets.nodes.iter().map(row).collect();
    let answer = Answer {
        images: targets.images.iter().map(ToString::to_string).collect(),
        nodes: rows,
    };
    let mut problems = pull_secrets.problems();
    problems.extend(withheld.problem());
    output::value(arguments.output, &answer, || shown(&answer, &problems, output::width()))?;
    outcome(&answer.nodes, arguments.timeout.as_secs())
}

/// What a node is asked. One that is not trusted gets no login.
fn questions(target: &NodeTarget, pull_secrets: &PullSecrets, untrusted: bool) -> Vec<Question> {
    let question = |target: &TargetImage| {
        let logins = pull_secrets.for_image(&target.image, &target.secrets);
        Question {
            image: target.image.clone(),
            checks: target.checks.clone(),
            logins: if untrusted { logins.withheld() } else { logins },
        }
    };
    target.images.iter().map(question).collect()
}

/// The jobs that the documents come to, as the API server would store them.
async fn jobs(client: &Client, documents: &[manifest::Document]) -> Result<Vec<Job>, Failure> {
    let mut jobs = Vec::new();
    for document in documents {
        let refused = |error: explain::NotServed| Failure::wrong(format!("{}: {error}", document.place));
        match document.text("/kind") {
            "ImagePullJob" => jobs.push(Job::Pull(read(document, submit::try_out(client, document).await?)?)),
            "ImageListPullJob" => {
                let list: ImageListPullJob = read(document, submit::try_out(client, document).await?)?;
                let children = explain::children(&list).map_err(refused)?;
                jobs.extend(children.into_iter().map(|child| Job::Pull(Box::new(child))));
            }
            "ImagePrePullJob" => jobs.push(Job::PrePull(read(document, submit::try_out(client, document).await?)?)),
            // A Secret or Namespace beside the job.
            _ => {}
        }
    }
    if jobs.is_empty() {
        return Err(Failure::wrong(
            "the file holds no job; give an ImagePullJob, ImageListPullJob or ImagePrePullJob",
        ));
    }
    Ok(jobs)
}

fn read<K: DeserializeOwned>(document: &manifest::Document, object: Value) -> Result<K, Failure> {
    serde_json::from_value(object).map_err(|error| Failure::wrong(format!("{}: {error}", document.place)))
}

const COLUMNS: [Column; 6] = [
    ("NODE", Narrow::Keep),
    ("VERDICT", Narrow::Keep),
    ("TO PULL", Narrow::Keep),
    ("PRESENT", Narrow::Drop(1)),
    ("FREE", Narrow::Drop(2)),
    ("REASON", Narrow::Cut),
];

fn shown(answer: &Answer, problems: &[String], width: Option<usize>) -> Printable {
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).to_string());
    let row = |row: &Row| {
        vec![
            row.node.clone(),
            row.verdict.as_str().to_owned(),
            size(row.bytes_to_pull),
            size(row.bytes_present),
            size(row.bytes_free),
            row.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = answer.nodes.iter().map(row).collect();
    let sizes: Vec<u64> = answer.nodes.iter().filter_map(|row| row.bytes_to_pull).collect();
    let to_pull = if sizes.is_empty() {
        String::new()
    } else {
        format!("; {} would be pulled", ByteSize(sizes.iter().sum()))
    };
    let fit = answer.nodes.iter().filter(|row| row.verdict == Verdict::Fits).count();
    let said = answer.nodes.iter().map(|row| row.message.as_str());
    let said: BTreeSet<&str> = said.filter(|message| !message.is_empty()).collect();
    let fits = format!("Fits on {fit} of {}{to_pull}.", nodes(answer.nodes.len()));
    let sentences = said.into_iter().chain(problems.iter().map(String::as_str));
    let lines = sentences.flat_map(|sentence| match width {
        Some(width) => wrap(sentence, width),
        None => vec![sentence.to_owned()],
    });
    fitted(&COLUMNS, &rows, width)
        .end_line()
        .then(&Printable::line(&fits))
        .then(&lines.map(|line| Printable::line(&line)).collect())
}

fn nodes(count: usize) -> String {
    format!("{count} {}", if count == 1 { "node" } else { "nodes" })
}

fn outcome(rows: &[Row], limit: u64) -> Result<(), Failure> {
    let count = |wanted: Verdict| rows.iter().filter(|row| row.verdict == wanted).count();
    let silent = rows.iter().filter(|row| row.is_silent()).count();
    match (count(Verdict::Fails), count(Verdict::Unknown)) {
        (0, 0) => Ok(()),
        (0, unknown) if unknown == silent => Err(Failure::timeout(format!(
            "{silent} of {} did not answer within {limit} s",
            nodes(rows.len())
        ))),
        (0, unknown) => Err(Failure::bad(format!("unknown for {unknown} of {}", nodes(rows.len())))),
        (fails, _) => Err(Failure::bad(why_not(rows, fails))),
    }
}

/// Only a check looks for room; everything else has nothing to do with it.
fn why_not(rows: &[Row], fails: usize) -> String {
    let failing = rows.iter().filter(|row| row.verdict == Verdict::Fails);
    let reasons: BTreeSet<&str> = failing.filter_map(|row| row.reason.as_deref()).collect();
    let all = nodes(rows.len());
    if reasons.iter().all(|reason| *reason == Reason::CheckFailed.as_str()) {
        return format!("it does not fit on {fails} of {all}");
    }
    let reasons: Vec<&str> = reasons.into_iter().collect();
    format!("it cannot be pulled on {fails} of {all}: {}", reasons.join(", "))
}

#[expect(clippy::disallowed_methods, reason = "a person asks now, by this machine's clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn failing(reason: Reason) -> Row {
        Row {
            verdict: Verdict::Fails,
            ..Row::blocked("a", reason, "")
        }
    }

    #[rstest]
    #[case::no_room(&[Reason::CheckFailed], "it does not fit on 1 of 1 node")]
    #[case::no_registry(&[Reason::Unreachable; 2], "it cannot be pulled on 2 of 2 nodes: Unreachable")]
    #[case::both(&[Reason::Unreachable, Reason::CheckFailed], "it cannot be pulled on 2 of 2 nodes: CheckFailed, Unreachable")]
    fn the_sentence_names_what_is_the_matter(#[case] reasons: &[Reason], #[case] says: &str) {
        let rows: Vec<Row> = reasons.iter().copied().map(failing).collect();
        assert_eq!(outcome(&rows, 60).unwrap_err().parts(), (1, Some(says)));
    }

    #[test]
    fn an_unknown_size_is_not_nothing() {
        let answer = Answer {
            images: Vec::new(),
            nodes: vec![failing(Reason::Unreachable)],
        };
        let text = shown(&answer, &[], None).to_string();
        assert!(text.contains("a      Fails     -         -"), "{text}");
        assert!(text.contains("\nFits on 0 of 1 node.\n"), "{text}");
    }
}
