//! Running a plugin: one process, fed once, read up to a limit, and gone when we are done with it.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::PluginConfig;

/// An answer is a few hundred bytes; a plugin that prints a megabyte is broken.
const MAX_OUTPUT: u64 = 1 << 20;

/// Why a plugin could not be run to its end. Neither of its outputs is quoted: both may hold secrets.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The program is missing or may not be run.
    #[error("its program {program} cannot be started; install it there and make it executable")]
    Start {
        /// Path of the program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The pipes to it broke.
    #[error("talking to its program failed")]
    Talk(#[source] io::Error),
    /// It took too long and was killed.
    #[error("its program was still running after {} s and was killed", .0.as_secs_f64())]
    TooSlow(Duration),
    /// It printed far too much and was killed.
    #[error("its program printed more than {MAX_OUTPUT} bytes and was killed")]
    TooLong,
    /// It failed by its own account.
    #[error("its program ended with {0}; run it by hand on the node to see what it says")]
    Failed(ExitStatus),
}

/// Kills the plugin and whatever it started, unless it has ended and been waited for.
struct KillGroup(Option<Pid>);

impl Drop for KillGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // An error means that no process of the group is left, which is what we want.
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

pub(super) async fn run(
    program: &Path,
    config: &PluginConfig,
    request: Vec<u8>,
    timeout: Duration,
) -> Result<Vec<u8>, ExecError> {
    let mut child = Command::new(program)
        .args(&config.args)
        .envs(config.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| ExecError::Start {
            program: program.display().to_string(),
            source,
        })?;
    let mut group = KillGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let ended = tokio::time::timeout(timeout, talk(&mut child, &request)).await;
    let (output, status) = ended.map_err(|_| ExecError::TooSlow(timeout))??;
    group.0 = None;
    if status.success() {
        Ok(output)
    } else {
        Err(ExecError::Failed(status))
    }
}

async fn talk(child: &mut Child, request: &[u8]) -> Result<(Vec<u8>, ExitStatus), ExecError> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin
            && let Err(error) = stdin.write_all(request).await
            // A plugin may answer without reading what it was asked.
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(ExecError::Talk(error));
        }
        Ok(())
    };
    let read = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            stdout
                .take(MAX_OUTPUT + 1)
                .read_to_end(&mut output)
                .await
                .map_err(ExecError::Talk)?;
        }
        if output.len() as u64 <= MAX_OUTPUT {
            Ok(output)
        } else {
            Err(ExecError::TooLong)
        }
    };
    let ((), output) = tokio::try_join!(write, read)?;
    let status = child.wait().await.map_err(ExecError::Talk)?;
    Ok((output, status))
}
