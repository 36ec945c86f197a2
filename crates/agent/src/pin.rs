//! Carries out what is to be done to the runtime's names.

use larder_model::Reason;
use larder_planner::node::{Entry, Note, PinOp};
use larder_runtime::{ImageRuntime, RuntimeError};

use crate::runtime_handle::RuntimeHandle;

/// Gives an image that is there its second name before the success is reported: a pod that starts on the news looks for that
/// name. What goes wrong here is said by the pin_op of the same name, which follows.
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
pub(crate) async fn carry_out(runtime_handle: &RuntimeHandle, pin_op: &PinOp) -> Result<(), Note> {
    let done = match runtime_handle.get(|| pin_op.to_string()).await {
        Ok(runtime) => match pin_op {
            PinOp::Pin(image) => runtime.pin(image).await,
            PinOp::Unpin(image) => runtime.unpin(image).await,
            PinOp::Alias(image, name) => runtime.alias(image, name).await,
        },
        Err(error) => Err(error),
    };
    done.map_err(|error| {
        tracing::warn!(%pin_op, error = error.text(), "the runtime did not take a name");
        note(pin_op, &error)
    })
}

fn note(pin_op: &PinOp, error: &RuntimeError) -> Note {
    let but = match pin_op {
        PinOp::Pin(_) => "not pinned".to_owned(),
        PinOp::Unpin(_) => "still pinned".to_owned(),
        PinOp::Alias(_, name) => format!("not under the name {name}"),
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
