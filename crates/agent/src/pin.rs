//! Carries out what is to be done to the runtime's names.

use larder_model::Reason;
use larder_planner::node::{Chore, Note};
use larder_runtime::RuntimeError;

use crate::slot::RuntimeSlot;

/// Does it; the error is what the entry's status shall say.
pub(crate) async fn carry_out(slot: &RuntimeSlot, chore: &Chore) -> Result<(), Note> {
    let done = match chore {
        Chore::Pin(image) => match slot.get(|| format!("pin {image}")).await {
            Ok(runtime) => runtime.pin(image).await,
            Err(error) => Err(error),
        },
        Chore::Unpin(image) => match slot.get(|| format!("unpin {image}")).await {
            Ok(runtime) => runtime.unpin(image).await,
            Err(error) => Err(error),
        },
        Chore::Alias(image, name) => match slot.get(|| format!("give {image} the name {name}")).await {
            Ok(runtime) => runtime.alias(image, name).await,
            Err(error) => Err(error),
        },
    };
    done.map_err(|error| {
        tracing::warn!(?chore, error = error.text(), "the runtime did not take a name");
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
