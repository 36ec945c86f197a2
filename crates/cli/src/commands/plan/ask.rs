//! Questions to nodes: dryRun entries in their NodeImages, the answers to them, and taking them back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use larder_api::NodeImage;
use larder_api::contract::{first_version, spec_patch};
use larder_api::node_image::{ImageTagPullPolicy, ImageTagSpec, NodeImageSpec, SealedCredential};
use larder_model::{Check, ImageRef, NodeName};
use larder_seal::{Binding, PublicKey, seal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::pull_secrets::Logins;
use super::verdict::{Answer, Answers};
use crate::failure::Failure;
use crate::output;

/// Nodes that are written to at once.
const AT_ONCE: usize = 16;

/// How often a write is tried that conflicts with another writer's.
const TRIES: usize = 10;

/// Longest time of one request.
const REQUEST: Duration = Duration::from_secs(10);

/// How long after its answer a question goes that was not taken back, because this process was killed.
const TTL_SECONDS: i32 = 60;

/// One image that a node is asked for.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) image: ImageRef,
    pub(super) checks: Vec<Check>,
    pub(super) logins: Logins,
}

/// What each node is asked for.
type Questions = BTreeMap<String, Vec<Question>>;

/// From which version on a status answers the question for an image.
type Versions = Vec<(ImageRef, i64)>;

/// Asks, waits for the answers until the limit or `stop`, and takes the questions back.
pub(super) async fn all(
    client: &Client,
    questions: Questions,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<BTreeMap<String, Answers>, Failure> {
    let api: Api<NodeImage> = Api::all(client.clone());
    let outcome = ask_and_wait(&api, &questions, limit, stop).await;
    let taken_back: Vec<Result<(), Failure>> = stream::iter(questions)
        .map(|(node, questions)| withdraw_from(api.clone(), node, questions))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let left = taken_back.iter().filter(|ended| ended.is_err()).count();
    if 0 < left {
        output::error(&format!(
            "the questions to {} could not be taken back; they go by themselves within {TTL_SECONDS} s",
            super::nodes(left)
        ));
    }
    outcome
}

async fn withdraw_from(api: Api<NodeImage>, node: String, questions: Vec<Question>) -> Result<(), Failure> {
    change(&api, &node, |_, spec| take_back(spec, &questions)).await
}

/// The questions to one node, unless we were told to stop.
async fn ask_node(
    api: Api<NodeImage>,
    node: String,
    questions: Vec<Question>,
    stop: CancellationToken,
) -> Result<(String, Versions), Failure> {
    let mut versions = Vec::new();
    if !stop.is_cancelled() {
        change(&api, &node, |object, spec| versions = ask(object, spec, &questions)).await?;
    }
    Ok((node, versions))
}

async fn ask_and_wait(
    api: &Api<NodeImage>,
    questions: &Questions,
    limit: Duration,
    stop: &CancellationToken,
) -> Result<BTreeMap<String, Answers>, Failure> {
    // A write that has begun is finished, so that what is taken back afterwards is all there is.
    let asked: Vec<Result<(String, Versions), Failure>> = stream::iter(questions.clone())
        .map(|(node, questions)| ask_node(api.clone(), node, questions, stop.clone()))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let asked: BTreeMap<String, Versions> = asked.into_iter().collect::<Result<_, Failure>>()?;
    let mut answers = BTreeMap::new();
    tokio::select! {
        () = stop.cancelled() => {}
        // A node without an answer by then counts as silent.
        waited = timeout(limit, wait(api, &asked, &mut answers)) => waited.unwrap_or(Ok(()))?,
    }
    Ok(answers)
}

async fn wait(
    api: &Api<NodeImage>,
    asked: &BTreeMap<String, Versions>,
    answers: &mut BTreeMap<String, Answers>,
) -> Result<(), Failure> {
    let mut objects = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .boxed();
    // A node whose NodeImage went meanwhile was not asked.
    let mut open = asked.values().filter(|versions| !versions.is_empty()).count();
    while 0 < open {
        let Some(object) = objects.next().await else {
            return Err(Failure::unreachable("the API server ended the watch for good"));
        };
        // The watcher tries again by itself.
        let Ok(object) = object else { continue };
        let node = object.name_any();
        let Some(versions) = asked.get(&node) else { continue };
        let known = answers.get(&node).map_or(0, |answers| answers.images.len());
        let found = found(&object, versions);
        if known < versions.len() && found.images.len() == versions.len() {
            open -= 1;
        }
        if known <= found.images.len() {
            answers.insert(node, found);
        }
    }
    Ok(())
}

fn found(object: &NodeImage, versions: &Versions) -> Answers {
    let answer =
        |(image, version): &(ImageRef, i64)| Answer::in_status(object, image.name(), &image.tag_text(), *version);
    let image_fs = object.status.as_ref().and_then(|status| status.image_fs.as_ref());
    let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    Answers {
        images: versions.iter().filter_map(answer).collect(),
        image_fs: image_fs.map(|room| (bytes(room.capacity), bytes(room.free))),
    }
}

/// Puts the questions into a spec. What is ordered already is not asked again: its result is the answer.
fn ask(object: &NodeImage, spec: &mut NodeImageSpec, questions: &[Question]) -> Versions {
    let mut versions = Vec::new();
    for question in questions {
        let image = &question.image;
        let tag = image.tag_text();
        if let Some(entry) = object.entry(image.name(), &tag) {
            versions.push((image.clone(), entry.version));
            continue;
        }
        let version = first_version(object, image.name(), &tag);
        let sealed = sealed_for(object, question);
        let tags = &mut spec.images.entry(image.name().to_owned()).or_default().tags;
        tags.push(ImageTagSpec {
            tag,
            version,
            dry_run: true,
            image_pull_policy: Some("IfNotPresent".to_owned()),
            checks: question.checks.iter().map(ToString::to_string).collect(),
            credentials: sealed.iter().map(|sealed| sealed.id.clone()).collect(),
            pull_policy: ImageTagPullPolicy {
                backoff_limit: 0,
                ttl_seconds_after_finished: TTL_SECONDS,
                ..ImageTagPullPolicy::default()
            },
            ..ImageTagSpec::default()
        });
        let known = |id: &str| spec.sealed_credentials.iter().any(|known| known.id == id);
        if let Some(sealed) = sealed.filter(|sealed| !known(&sealed.id)) {
            spec.sealed_credentials.push(sealed);
        }
        versions.push((image.clone(), version));
    }
    versions
}

/// The login of a question, for this node alone. A question belongs to no job: its login is bound to the NodeImage itself, as
/// that of an entry that is written by hand.
fn sealed_for(object: &NodeImage, question: &Question) -> Option<SealedCredential> {
    let logins = &question.logins;
    let key = object.status.as_ref()?.agent.as_ref()?.public_key.as_deref()?;
    let key = PublicKey::parse(key).ok().filter(|_| !logins.all.is_empty())?;
    let (node, uid) = (NodeName::parse(&object.name_any()).ok()?, object.uid()?);
    let binding = Binding {
        node: &node,
        node_image_uid: &uid,
        image: &question.image,
        claim_uid: &uid,
    };
    let sealed = seal(&key, &binding, &logins.source, &logins.all).ok()?;
    Some(SealedCredential {
        id: sealed.id,
        key: sealed.key,
        data: sealed.data,
    })
}

/// Takes the questions and their logins out of a spec. One that a job has claimed meanwhile is an order, and stays.
fn take_back(spec: &mut NodeImageSpec, questions: &[Question]) {
    let mut ours = BTreeSet::new();
    for Question { image, .. } in questions {
        let Some(wanted) = spec.images.get_mut(image.name()) else {
            continue;
        };
        let tag = image.tag_text();
        let is_question = |entry: &ImageTagSpec| entry.dry_run && entry.owner_references.is_empty() && entry.tag == tag;
        let (gone, kept): (Vec<_>, Vec<_>) = wanted.tags.drain(..).partition(is_question);
        wanted.tags = kept;
        ours.extend(gone.into_iter().flat_map(|entry| entry.credentials));
        if wanted.tags.is_empty() && wanted.pull_secrets.is_empty() {
            spec.images.remove(image.name());
        }
    }
    let used = |id: &String| {
        let mut entries = spec.images.values().flat_map(|image| &image.tags);
        entries.any(|entry| entry.credentials.contains(id))
    };
    ours.retain(|id| !used(id));
    spec.sealed_credentials.retain(|sealed| !ours.contains(&sealed.id));
}

/// Changes a spec on top of whatever it is now. A NodeImage that is gone needs no change.
async fn change(
    api: &Api<NodeImage>,
    node: &str,
    mut change: impl FnMut(&NodeImage, &mut NodeImageSpec),
) -> Result<(), Failure> {
    let doing = format!("writing the NodeImage of {node}");
    let failed = |error: kube::Error| Failure::from_api(&doing, &error);
    let late = |_| Failure::unreachable(format!("{doing}: the API server did not answer in time"));
    for _ in 0..TRIES {
        let object = timeout(REQUEST, api.get_opt(node))
            .await
            .map_err(late)?
            .map_err(failed)?;
        let Some(object) = object else {
            return Ok(());
        };
        let mut spec = object.spec.clone();
        change(&object, &mut spec);
        let Some(patch) = spec_patch(&object, &spec) else {
            return Ok(());
        };
        let patch = serde_json::from_value(patch).map_err(|error| Failure::wrong(format!("{doing}: {error}")))?;
        let patch = Patch::<NodeImage>::Json(patch);
        let parameters = PatchParams::default();
        let written = timeout(REQUEST, api.patch(node, &parameters, &patch))
            .await
            .map_err(late)?;
        match written {
            Ok(_) => return Ok(()),
            // The generation has moved on: another writer was faster.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 422 => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(Failure::bad(format!(
        "{doing}: others wrote to it {TRIES} times in a row; try again"
    )))
}

#[cfg(test)]
mod tests;
