//! Ctrl-C: the first one ends in order, the second one at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// Exit code of a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// Is cancelled by the first Ctrl-C or SIGTERM. The second ends the process.
pub(crate) fn token() -> Result<CancellationToken, Failure> {
    let failed = |error: std::io::Error| Failure::wrong(format!("signals cannot be listened for: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                told.cancel();
            } else {
                std::process::exit(INTERRUPTED);
            }
        }
    });
    Ok(token)
}

/// Something that may be dropped in the middle.
pub(crate) async fn or_interrupted(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
    }
}
