//! What the scheduler looks like from outside: the status of the NodeImage, and how urgent each part of it is.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_api::contract::{MESSAGE_BYTES_MAX, shorten};
use larder_api::node_image::{ImageTagStatus, NodeImageStatus};
use larder_model::{Percent, Phase, Retry};

use super::message::{origin_message, wait_message};
use super::{Entry, EntryState, Key, NodeScheduler, Stage};

/// A pull shorter than this is reported by its result alone, which saves a write per node and image.
const WORTH_A_WRITE: Duration = Duration::from_secs(1);

/// Messages are cut to this where the object would grow too large.
const SHORT_MESSAGE: usize = 160;

/// The status, and from when on each entry's present state is worth a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimedStatus {
    /// Counts and results. What stands beside them (agent, filesystem) is not the scheduler's business.
    pub status: NodeImageStatus,
    /// Per entry, a moment on the node's steady clock.
    pub due: BTreeMap<Key, Duration>,
    /// Per entry, the time between two reports of bytes.
    pub progress: BTreeMap<Key, Duration>,
}

impl NodeScheduler {
    /// What to show.
    pub fn status(&self) -> TimedStatus {
        let mut shown = TimedStatus::default();
        for (key, entry) in self.entries() {
            let Some(state) = self.state(key) else {
                continue;
            };
            let (status, phase) = tag_status(entry, state, self.wait(state));
            let count = match phase {
                Phase::Waiting => &mut shown.status.waiting,
                Phase::Pulling => &mut shown.status.pulling,
                Phase::Succeeded => &mut shown.status.succeeded,
                Phase::Failed => &mut shown.status.failed,
            };
            *count += 1;
            shown.status.desired += 1;
            shown
                .status
                .image_statuses
                .entry(key.name.clone())
                .or_default()
                .tags
                .push(status);
            shown.due.insert(key.clone(), due(state));
            shown.progress.insert(key.clone(), entry.progress);
        }
        shown
    }
}

fn phase(state: &EntryState) -> Phase {
    match &state.stage {
        Stage::Look { .. } | Stage::Looking { .. } | Stage::Queued { .. } if between_tries(state) => Phase::Pulling,
        Stage::Look { .. } | Stage::Looking { .. } | Stage::Queued { .. } => Phase::Waiting,
        Stage::Running { .. } => Phase::Pulling,
        Stage::Done(phase) => *phase,
    }
}

/// Still at it, as upstream shows it.
fn between_tries(state: &EntryState) -> bool {
    let retry = state.trouble.as_ref().map(|trouble| trouble.reason.retry());
    state.attempts > 0 && retry == Some(Retry::Backoff)
}

fn due(state: &EntryState) -> Duration {
    match &state.stage {
        Stage::Done(_) => state.changed,
        Stage::Look { .. } | Stage::Queued { .. } if !between_tries(state) => state.changed,
        _ => state.changed + WORTH_A_WRITE,
    }
}

fn tag_status(entry: &Entry, state: &EntryState, wait: Option<Duration>) -> (ImageTagStatus, Phase) {
    let phase = phase(state);
    let bytes = state.bytes;
    let progress = match (phase, bytes) {
        (Phase::Succeeded, _) => Some(Percent::DONE.get()),
        // Every byte may be there while the runtime still unpacks: 100 is for the end.
        (Phase::Pulling, Some(bytes)) => Some(Percent::of(bytes.done, bytes.total).get().min(99)),
        _ => None,
    };
    let origin = || state.origin.as_ref().filter(|_| phase == Phase::Succeeded);
    let (reason, message) = match (&state.trouble, &state.note) {
        (Some(trouble), _) => (Some(trouble.reason), Some(trouble.message.clone())),
        (None, Some(note)) => (note.reason, Some(note.message.clone())),
        (None, None) => (None, origin().map(origin_message)),
    };
    let message = wait.map(wait_message).or(message);
    let status = ImageTagStatus {
        tag: entry.key.tag.clone(),
        phase: phase.as_str().to_owned(),
        progress: progress.map(i32::from),
        start_time: state.start_time.clone(),
        completion_time: state.completion_time.clone(),
        version: Some(state.version),
        image_id: state.image_id.as_ref().map(|id| format!("{}@{id}", entry.key.name)),
        message: message.map(|message| shorten(&message)),
        digest: state.digest.clone(),
        bytes_total: bytes.and_then(|bytes| i64::try_from(bytes.total).ok()),
        bytes_done: bytes.and_then(|bytes| i64::try_from(bytes.done).ok()),
        reason: reason.map(|reason| reason.as_str().to_owned()),
        attempts: (state.is_done() || state.attempts > 0).then(|| i32::try_from(state.attempts).unwrap_or(i32::MAX)),
        last_succeeded: state.last_succeeded.clone(),
    };
    (status, phase)
}

/// Makes a status fit into `room` bytes of JSON: messages get shorter, then details of images that are there go. What the
/// runtime says of itself and of images is cut in any case, for the API server refuses longer texts.
pub fn fit(status: &mut NodeImageStatus, room: usize) {
    let about_itself = status
        .agent
        .iter_mut()
        .flat_map(|agent| [&mut agent.version, &mut agent.runtime]);
    let tags = status.image_statuses.values_mut().flat_map(|image| &mut image.tags);
    let texts = about_itself.chain(tags.map(|tag| &mut tag.image_id));
    for text in texts.flatten().filter(|text| MESSAGE_BYTES_MAX < text.len()) {
        *text = shorten(text);
    }
    let size = |status: &NodeImageStatus| serde_json::to_vec(status).map_or(0, |bytes| bytes.len());
    if size(status) <= room {
        return;
    }
    let tags = |status: &mut NodeImageStatus, change: &dyn Fn(&mut ImageTagStatus)| {
        status
            .image_statuses
            .values_mut()
            .flat_map(|image| &mut image.tags)
            .for_each(change);
    };
    tags(status, &|tag| {
        // Of an image that is there, and as it should be, nothing has to be said.
        if tag.phase() == Phase::Succeeded && tag.reason.is_none() {
            tag.message = None;
        }
        if let Some(message) = &mut tag.message {
            message.truncate(message.floor_char_boundary(SHORT_MESSAGE));
        }
    });
    if size(status) <= room {
        return;
    }
    tags(status, &|tag| {
        tag.message = None;
        tag.bytes_done = None;
        tag.bytes_total = None;
        tag.start_time = None;
        tag.image_id = None;
    });
}
