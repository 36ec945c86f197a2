//! `larder plan`: asks the nodes by dryRun entries what a job would pull and whether it fits. It pulls nothing, and takes
//! every entry back, whatever happens.

mod ask;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::Client;
use larder_api::{ImageListPullJob, ImagePullJob};
use larder_controller::explain;
use larder_model::{ByteSize, ImageRef, Reason};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::verdict::{Row, Verdict};
use crate::args::{Cluster, Plan};
use crate::commands::run::submit;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::table::table;
use crate::{client, manifest, output, stop};

/// The output of `-o json`, on which scripts rely.
#[derive(Debug, Serialize)]
struct Answer {
    images: Vec<String>,
    nodes: Vec<Row>,
}

/// What the jobs want of one node.
#[derive(Debug, Default)]
struct Wish {
    images: Vec<ImageRef>,
    /// Why the node cannot be asked.
    blocked: Option<Reason>,
}

/// What the jobs want.
#[derive(Debug, Default)]
struct Wishes {
    images: Vec<ImageRef>,
    nodes: BTreeMap<String, Wish>,
    /// Some image wants a login that only a job has.
    with_login: bool,
}

pub(crate) async fn run(cluster: &Cluster, arguments: Plan) -> Result<(), Failure> {
    let stop = stop::token()?;
    let preparation = async {
        let documents = manifest::read_all(&arguments.filename)?;
        let client = client::connect(cluster).await?;
        let jobs = jobs(&client, &documents).await?;
        let fleet = Fleet::read(&client).await?;
        Ok((wishes(&fleet, &jobs).await?, client))
    };
    let (wishes, client) = tokio::select! {
        prepared = preparation => prepared?,
        () = stop.cancelled() => return Err(Failure::interrupted()),
    };
    if wishes.nodes.is_empty() {
        return Err(Failure::bad("the job selects no node; check its selector"));
    }
    let questions = wishes
        .nodes
        .iter()
        .filter(|(_, wish)| wish.blocked.is_none())
        .map(|(node, wish)| (node.clone(), wish.images.clone()))
        .collect();
    let answers = ask::all(&client, questions, arguments.timeout, &stop).await?;
    if stop.is_cancelled() {
        return Err(Failure::interrupted());
    }
    let rows: Vec<Row> = wishes
        .nodes
        .iter()
        .map(|(node, wish)| match wish.blocked {
            Some(reason) => Row::unknown(node, Some(reason)),
            None => verdict::row(node, answers.get(node), wish.images.len(), wishes.with_login),
        })
        .collect();
    let answer = Answer {
        images: wishes.images.iter().map(ToString::to_string).collect(),
        nodes: rows,
    };
    output::value(arguments.output, &answer, || shown(&answer, wishes.with_login))?;
    outcome(&answer.nodes, arguments.timeout.as_secs())
}

/// The single jobs that the documents come to, as the API server would store them.
async fn jobs(client: &Client, documents: &[manifest::Document]) -> Result<Vec<ImagePullJob>, Failure> {
    let mut jobs = Vec::new();
    for document in documents {
        let refused = |error: explain::NotServed| Failure::wrong(format!("{}: {error}", document.place));
        match document.text("/kind") {
            "ImagePullJob" => jobs.push(read(document, submit::try_out(client, document).await?)?),
            "ImageListPullJob" => {
                let list: ImageListPullJob = read(document, submit::try_out(client, document).await?)?;
                jobs.extend(explain::children(&list).map_err(refused)?);
            }
            "ImagePrePullJob" => {
                return Err(Failure::wrong(format!(
                    "{}: plans are made for ImagePullJob and ImageListPullJob, not for ImagePrePullJob",
                    document.place
                )));
            }
            // A Secret or Namespace beside the job.
            _ => {}
        }
    }
    if jobs.is_empty() {
        return Err(Failure::wrong(
            "the file holds no job; give an ImagePullJob or ImageListPullJob",
        ));
    }
    Ok(jobs)
}

fn read<K: DeserializeOwned>(document: &manifest::Document, object: Value) -> Result<K, Failure> {
    serde_json::from_value(object).map_err(|error| Failure::wrong(format!("{}: {error}", document.place)))
}

async fn wishes(fleet: &Fleet, jobs: &[ImagePullJob]) -> Result<Wishes, Failure> {
    let mut wishes = Wishes::default();
    for job in jobs {
        let image = ImageRef::parse(&job.spec.image).map_err(|error| Failure::wrong(error.to_string()))?;
        let objects = fleet.objects_for(job).await?;
        let found = explain::nodes(job, objects, now()).map_err(|refused| Failure::wrong(refused.to_string()))?;
        for (node, said) in found.into_iter().filter(|(_, said)| said.state != "NotSelected") {
            let wish = wishes.nodes.entry(node).or_default();
            if !wish.images.contains(&image) {
                wish.images.push(image.clone());
            }
            if said.state == "Blocked" {
                wish.blocked = said.reason;
            }
        }
        wishes.with_login |= !job.spec.template.pull_secrets.is_empty();
        if !wishes.images.contains(&image) {
            wishes.images.push(image);
        }
    }
    Ok(wishes)
}

fn shown(answer: &Answer, with_login: bool) -> String {
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
    let mut words: Vec<&str> = answer
        .nodes
        .iter()
        .map(|row| row.words.as_str())
        .filter(|words| !words.is_empty())
        .collect();
    words.sort_unstable();
    words.dedup();
    let words: String = words.iter().flat_map(|words| [*words, "\n"]).collect();
    let note = if with_login {
        "The nodes were asked without the job's login: it is sealed to them when the job exists.\n"
    } else {
        ""
    };
    format!(
        "{}\nFits on {fit} of {}{to_pull}.\n{words}{note}",
        table(&["NODE", "VERDICT", "TO PULL", "PRESENT", "FREE", "REASON"], &rows),
        nodes(answer.nodes.len()),
    )
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
        (0, unknown) => Err(Failure::bad(format!(
            "nobody can tell for {unknown} of {}",
            nodes(rows.len())
        ))),
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
            ..Row::unknown("a", Some(reason))
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
        let text = shown(&answer, false);
        assert!(text.contains("a      Fails     -         -"), "{text}");
        assert!(text.contains("\nFits on 0 of 1 node.\n"), "{text}");
    }
}
