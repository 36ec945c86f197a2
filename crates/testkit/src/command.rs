//! Commands that run to their end, with a deadline.

use std::process::Output;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::{Error, Result};

const DEADLINE: Duration = Duration::from_mins(1);

/// Runs a command and gives back its outcome, good or bad. It is killed at the deadline, or when the caller gives up.
pub(crate) async fn outcome(doing: &str, command: Command) -> Result<Output> {
    outcome_within(DEADLINE, doing, command).await
}

/// The same with a deadline of the caller's.
pub(crate) async fn outcome_within(deadline: Duration, doing: &str, mut command: Command) -> Result<Output> {
    match timeout(deadline, command.kill_on_drop(true).output()).await {
        Ok(output) => output.map_err(Error::io(doing)),
        Err(_) => Err(Error::Late {
            what: doing.into(),
            after: deadline,
            last: "it still runs".into(),
        }),
    }
}

/// Runs a command that must succeed and gives back what it wrote.
pub(crate) async fn output(doing: &str, command: Command) -> Result<Vec<u8>> {
    succeeded(doing, outcome(doing, command).await?)
}

/// The same, with something to read for the command.
pub(crate) async fn output_with_input(doing: &str, mut command: Command, input: &str) -> Result<Vec<u8>> {
    use std::process::Stdio;
    let run = async {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    match timeout(DEADLINE, run).await {
        Ok(output) => succeeded(doing, output.map_err(Error::io(doing))?),
        Err(_) => Err(Error::Late {
            what: doing.into(),
            after: DEADLINE,
            last: "it still runs".into(),
        }),
    }
}

fn succeeded(doing: &str, output: Output) -> Result<Vec<u8>> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed {
        doing: doing.into(),
        status: output.status,
        said,
    })
}
