//! Carries out what is to be done to the runtime's names.

use larder_model::Reason;
use larder_planner::node::{Chore, Entry, Note};
use larder_runtime::{ImageRuntime, RuntimeError};

use crate::slot::RuntimeSlot;

/// Gives an image that is there its second name before anybody hears of it: a pod that starts on the news looks for that
/// name. What goes wrong here is said by the chore of the same name, which follows.
pub(crate) async fn name_at_once(runtime: &dyn ImageRuntime, entry: &Entry) {
    if let (Ok(image), Some(Ok(name))) = (&entry.image, &entry.alias)
        && name != image
        && !entry.dry_run
        && let Err(error) = runtime.alias(image, name).await
    {
        tracing::debug!(%image, %name, error = error.text(), "the second name has to wait");
    }
}

/// Does it; the error is what the entry's status shall say.
pub(crate) async fn carry_out(slot: &RuntimeSlot, chore: &Chore) -> Result<(), Note> {
    let done = match slot.get(|| chore.to_string()).await {
        Ok(runtime) => match chore {
            Chore::Pin(image) => runtime.pin(image).await,
            Chore::Unpin(image) => runtime.unpin(image).await,
            Chore::Alias(image, name) => runtime.alias(image, name).await,
        },
        Err(error) => Err(error),
    };
    done.map_err(|error| {
        tracing::warn!(%chore, error = error.text(), "the runtime did not take a name");
        note(chore, &error)
    })
}

fn note(chore: &Chore, error: &RuntimeError) -> Note {
    let but = match chore {
        Chore::Pin(_) => "not pinned".to_owned(),
        Chore::Unpin(_) => "still pinned".to_owned(),
        Chore::Alias(_, name) => format!("not under the name {name}"),
    };
    let reason = match error {
        RuntimeError::ForeignReference { .. } => None,
        RuntimeError::Unsupported { .. } => Some(Reason::NodeUnsuitable),
        other => Some(other.reason()),
    };
    Note {
        reason,
        message: format!("The image is there, but {but}: {}", error.text()),
    }
}
