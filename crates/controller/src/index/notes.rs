//! Events: what people see with `kubectl describe`. Capped per job and reason, because a write per node is a write too many.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use larder_api::node_image::ImageTagStatus;
use larder_api::{ImageListPullJob, NodeImage};
use larder_model::{ImageRef, Phase, Reason};
use larder_planner::NodeKey;
use larder_planner::order::claim_view;

use super::objects::{JobObject, JobStatus};
use super::{Index, JobId, Kind};

/// Events of one reason on one object.
const PER_REASON: u32 = 5;

/// Events that wait to be written. More than that and the oldest are dropped: they say what status says too.
const QUEUE: usize = 1_000;

const FAILED: &str = "PullImageFailed";
const SUCCEEDED: &str = "PullImageSucceed";
const UNREADABLE: &str = "Unreadable";

/// What an Event is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject(pub(crate) ObjectReference);

/// An Event to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    pub(crate) subject: Subject,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

/// Events that wait, and how many there were.
#[derive(Default)]
pub(super) struct Notes {
    queue: VecDeque<Note>,
    counts: BTreeMap<(String, &'static str), u32>,
    /// Objects that cannot be read, by kind and `namespace/name`.
    unreadable: BTreeMap<(Kind, String), u32>,
    pub(super) dropped: u64,
}

impl Notes {
    pub(super) fn push(&mut self, note: Note) {
        if QUEUE <= self.queue.len() {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(note);
    }

    /// Counts an Event of an object and reason. True if it may be written.
    fn may(&mut self, uid: &str, reason: &'static str) -> bool {
        let count = self.counts.entry((uid.to_owned(), reason)).or_default();
        *count += 1;
        *count <= PER_REASON
    }

    /// The same for an object that cannot be read.
    fn may_call_unreadable(&mut self, kind: &Kind, key: String) -> bool {
        let count = self.unreadable.entry((kind.clone(), key)).or_default();
        *count += 1;
        *count <= PER_REASON
    }

    /// Of the objects of a kind that cannot be read, only these are still there.
    pub(super) fn keep_unreadable(&mut self, kind: &Kind, is_there: impl Fn(&str) -> bool) {
        self.unreadable.retain(|(known, key), _| known != kind || is_there(key));
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.counts.retain(|(known, _), _| known != uid);
    }
}

impl Index {
    /// The next Event to write.
    pub(crate) fn next_note(&mut self) -> Option<Note> {
        self.notes.queue.pop_front()
    }

    /// Notes what is new in a node's results.
    pub(super) fn note_results(&mut self, node: &NodeKey, before: Option<&NodeImage>, now: Timestamp) {
        let (Some(before), Some(after)) = (before, self.nodes.get(node).and_then(|record| record.image.as_ref()))
        else {
            return;
        };
        if before.status == after.status {
            return;
        }
        let (mut news, mut denied) = (Vec::new(), false);
        for (name, image) in after.status.iter().flat_map(|status| &status.image_statuses) {
            for tag in &image.tags {
                let known = before.result(name, &tag.tag);
                let same = known.is_some_and(|known| known.phase == tag.phase && known.version() == tag.version());
                // A question is over when it is answered, and whoever asked takes it back at once.
                let entry = after.entry(name, &tag.tag).or_else(|| before.entry(name, &tag.tag));
                let asked = entry.is_some_and(|entry| entry.dry_run);
                let by_hand = entry.is_some_and(|entry| entry.owner_references.is_empty());
                denied |= by_hand && !same && tag.phase() == Phase::Failed && tag.reason() == Some(Reason::AuthDenied);
                if tag.phase().is_final() && !same && !asked {
                    let owners: Vec<String> = after
                        .entry(name, &tag.tag)
                        .into_iter()
                        .flat_map(|entry| &entry.owner_references)
                        .filter_map(|owner| owner.uid.clone())
                        .collect();
                    news.push((name.clone(), tag.clone(), owners));
                }
            }
        }
        let subject = node_reference(after);
        if denied && let Some(record) = self.nodes.get_mut(node) {
            record.denied.get_or_insert(now);
        }
        for (name, tag, owners) in news {
            self.note_result(&subject, &name, &tag, &owners, now);
        }
    }

    fn note_result(&mut self, node: &Subject, name: &str, tag: &ImageTagStatus, owners: &[String], now: Timestamp) {
        let failed = tag.phase() == Phase::Failed;
        let jobs: Vec<JobId> = owners
            .iter()
            .filter_map(|uid| self.job_uids.get(uid))
            .copied()
            .collect();
        if failed && tag.reason() == Some(Reason::AuthDenied) {
            for job in &jobs {
                let with_secrets = !self.secrets_of(*job).is_empty();
                if let Some(running) = self.running_mut(*job).filter(|_| with_secrets) {
                    running.recheck.get_or_insert(now);
                }
            }
        }
        let image = ImageRef::from_parts(name, &tag.tag)
            .map_or_else(|_| format!("{name}:{}", tag.tag), |image| image.familiar());
        if !failed {
            if owners.is_empty() {
                self.notes.push(Note {
                    subject: node.clone(),
                    warning: false,
                    reason: SUCCEEDED,
                    text: format!("Image {image} is there"),
                });
            }
            return;
        }
        let text = tag
            .message
            .clone()
            .unwrap_or_else(|| format!("Failed to pull image {image}"));
        let word = tag.reason().map_or(FAILED, Reason::as_str);
        let on_node = node.0.name.clone().unwrap_or_default();
        let mut told = jobs.is_empty();
        for job in jobs {
            let Some(record) = self.jobs.get(&job) else {
                continue;
            };
            let words = self.in_the_words_of(job, &on_node, name, tag);
            if self.notes.may(&record.uid, word) {
                told = true;
                self.notes.push(Note {
                    subject: Subject(record.object.reference()),
                    warning: true,
                    reason: FAILED,
                    text: format!("node {on_node}: {}", words.as_ref().unwrap_or(&text)),
                });
            }
        }
        if told {
            self.notes.push(Note {
                subject: node.clone(),
                warning: true,
                reason: FAILED,
                text,
            });
        }
    }

    /// What a node says of an image, where the job calls it otherwise.
    fn in_the_words_of(&self, job: JobId, node: &str, name: &str, tag: &ImageTagStatus) -> Option<String> {
        let running = self.running(job)?;
        let work = running.work.as_deref()?;
        let image = &work.tasks.get(node)?.image(name, &tag.tag)?.image;
        let object = self.nodes.get(node)?.image.as_ref()?;
        let claim = claim_view(object, image, running.progress.campaign().uid())?;
        let time = work.plan.node_time(running.progress.started());
        let (_, words) = time.in_the_jobs_words(image, claim.handed_out, tag.reason()?)?;
        Some(words)
    }

    /// Notes that an object cannot be read: whoever wrote it sees it there, and not in a log.
    pub(super) fn note_unreadable(&mut self, kind: &Kind, key: String, object: ObjectReference, why: &str) {
        if self.notes.may_call_unreadable(kind, key) {
            self.notes.push(Note {
                subject: Subject(object),
                warning: true,
                reason: UNREADABLE,
                text: format!("Nothing is done with this object, because it cannot be read: {why}"),
            });
        }
    }

    /// Notes how a job ended.
    pub(super) fn note_end(&mut self, job: JobId, status: &JobStatus) {
        let Some(record) = self.jobs.get(&job) else {
            return;
        };
        self.notes.forget(&record.uid);
        let failed = status
            .conditions()
            .iter()
            .find(|condition| condition.type_ == larder_api::conditions::FAILED);
        if let Some(failed) = failed {
            self.notes.push(Note {
                subject: Subject(record.object.reference()),
                warning: true,
                reason: FAILED,
                text: failed.message.clone(),
            });
        }
        let (succeeded, _, desired) = status.counts();
        if 0 < succeeded {
            self.notes.push(Note {
                subject: Subject(record.object.reference()),
                warning: false,
                reason: SUCCEEDED,
                text: match &record.object {
                    JobObject::Pull(job) => format!("Image {} is on {succeeded} of {desired} nodes", job.spec.image),
                    JobObject::PrePull(_) => format!("{succeeded} of {desired} nodes have every image"),
                },
            });
        }
    }
}

fn node_reference(object: &NodeImage) -> Subject {
    Subject(ObjectReference {
        api_version: Some(NodeImage::api_version(&()).into_owned()),
        kind: Some(NodeImage::kind(&()).into_owned()),
        name: object.metadata.name.clone(),
        uid: object.metadata.uid.clone(),
        ..ObjectReference::default()
    })
}

/// A list job as the subject of an Event.
pub(super) fn list_reference(list: &ImageListPullJob) -> Subject {
    Subject(ObjectReference {
        api_version: Some(ImageListPullJob::api_version(&()).into_owned()),
        kind: Some(ImageListPullJob::kind(&()).into_owned()),
        name: list.metadata.name.clone(),
        namespace: list.metadata.namespace.clone(),
        uid: list.metadata.uid.clone(),
        ..ObjectReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Kind, Limits, Seen};
    use rstest::rstest;
    use serde_json::{Value, json};

    /// A node with an entry for nginx:1, or without one, and what it says about it.
    fn node(dry_run: Option<bool>, tags: &Value) -> NodeImage {
        let entry = |dry_run| json!({"tag": "1", "version": 1, "pullPolicy": {"ttlSecondsAfterFinished": 9}, "dryRun": dry_run});
        let entries: Vec<Value> = dry_run.into_iter().map(entry).collect();
        serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "a", "uid": "u"},
            "spec": {"images": {"nginx": {"tags": entries}}},
            "status": {"desired": 1, "succeeded": 0, "failed": 0, "pulling": 0, "imageStatuses": {"nginx": {"tags": tags}}},
        }))
        .unwrap()
    }

    #[rstest]
    #[case::order(Some(false), Some(false), 1)]
    #[case::question(Some(true), Some(true), 0)]
    #[case::question_taken_back(Some(true), None, 0)]
    fn events_tell_of_pulls_and_not_of_questions(
        #[case] before: Option<bool>,
        #[case] after: Option<bool>,
        #[case] want: usize,
    ) {
        let mut index = Index::new(Limits {
            max_active_pulls: None,
            pause: false,
            serve_jobs: true,
        });
        let key = NodeKey::from("a");
        let now = Timestamp::UNIX_EPOCH;
        index.take_in_image(&key, node(before, &json!([])), false, now);
        let failed = json!([{"tag": "1", "version": 1, "phase": "Failed", "reason": "Unreachable"}]);
        index.take_in_image(&key, node(after, &failed), false, now);
        let notes = std::iter::from_fn(|| index.next_note()).count();
        assert_eq!(notes, want);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_told_so_and_stays_known() {
        let mut index = Index::new(Limits {
            max_active_pulls: None,
            pause: false,
            serve_jobs: true,
        });
        let now = Timestamp::UNIX_EPOCH;
        let job = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
            "metadata": {"name": "job", "namespace": "team", "uid": "u"}, "spec": {"image": "nginx"},
        });
        index.see_job(serde_json::from_value(job).unwrap(), now);
        let object = ObjectReference {
            kind: Some("ImagePullJob".to_owned()),
            namespace: Some("team".to_owned()),
            name: Some("job".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectReference::default()
        };
        for _ in 0..20 {
            let unreadable = Seen::Unreadable(Box::new(object.clone()), "invalid type".to_owned());
            for seen in [Seen::Begin, unreadable, Seen::Complete] {
                index.observe(&Kind::Job, seen, now);
            }
        }
        let notes: Vec<Note> = std::iter::from_fn(|| index.next_note()).collect();
        assert_eq!(notes.len(), PER_REASON as usize);
        assert!(
            notes
                .iter()
                .all(|note| note.subject == Subject(object.clone()) && note.warning)
        );
        assert!(
            notes[0].text.ends_with("it cannot be read: invalid type"),
            "{}",
            notes[0].text
        );
        assert_eq!(index.jobs.len(), 1, "a job that cannot be read is not gone");

        let unreadable = || Seen::Unreadable(Box::new(object.clone()), "invalid type".to_owned());
        let gone = Seen::Gone {
            namespace: "team".to_owned(),
            name: "job".to_owned(),
        };
        index.notes.may("u", FAILED);
        for seen in [gone, unreadable()] {
            index.observe(&Kind::Job, seen, now);
        }
        assert_eq!(
            std::iter::from_fn(|| index.next_note()).count(),
            1,
            "another of its name is told anew"
        );
        assert!(index.notes.counts.is_empty(), "so are its other Events");
        for seen in [Seen::Begin, Seen::Complete] {
            index.observe(&Kind::Job, seen, now);
        }
        assert!(index.notes.unreadable.is_empty(), "what no list shows is forgotten");
    }
}
