//! Server processes that cannot outlive the tests.
//!
//! Each server leads a process group that also holds a watchdog, a small shell. The watchdog reads from a pipe whose
//! other end only the test process has: when that process ends, for whatever reason, the pipe closes and the watchdog
//! kills the group. (The kernel's parent-death signal would need `unsafe`, and fires when the *thread* ends that
//! started the child, which in a test runtime is too early.)

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::wait_for;
use crate::{Error, Result};

/// The watchdog goes to the background, the server takes the place of the shell: the shell's pid, which is also the id
/// of the group, becomes the server's.
const ENDS_WITH_PIPE: &str = r#"exec 3<&0; (read -r _ <&3; kill -s KILL -- -$$) & exec "$@" </dev/null 3<&-"#;
/// The same, for a server that several processes of one test run share: it ends with the process `$1`.
const ENDS_WITH_PROCESS: &str =
    r#"owner=$1; shift; (tail --pid="$owner" -s 0.2 -f /dev/null; kill -s KILL -- -$$) & exec "$@""#;

/// How much of a server's log goes into an error.
const LOG_TAIL_LINES: usize = 30;

/// How long a server may live at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until its handle is dropped or the process that started it ends.
    Handle,
    /// Until its handle is dropped or, after [`Process::release`], the process with this id ends.
    Process(u32),
}

/// A program with everything needed to start it, any number of times.
#[derive(Debug, Clone)]
pub struct Program {
    /// The name in messages.
    pub name: &'static str,
    /// The file to execute.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// The file that takes its output.
    pub log: PathBuf,
    /// When it ends at the latest.
    pub lifetime: Lifetime,
}

/// A running (or, between `kill` and `restart`, stopped) server.
#[derive(Debug)]
pub struct Process {
    program: Program,
    child: Option<Child>,
}

impl Process {
    /// Starts the program. That it is ready is for the caller to find out, see [`Process::wait_ready`].
    pub fn start(program: Program) -> Result<Self> {
        let mut process = Self { program, child: None };
        process.spawn()?;
        Ok(process)
    }

    /// Kills the server with SIGKILL, and its children in the same group; returns when it is gone.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            // Fails only if the whole group is gone already.
            kill_process_group(group, Signal::KILL).ok();
        }
        child
            .wait()
            .map_err(Error::io(format!("waiting for the end of {}", self.program.name)))?;
        Ok(())
    }

    /// Kills the server if it still runs and starts it anew with the same arguments.
    pub fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.spawn()
    }

    /// Stops the server in its tracks: its connections stay open and nothing answers. The watchdog stays awake.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Lets the server run on without its handle, until the end of its lifetime.
    pub fn release(mut self) {
        self.child = None;
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Waits until `ready` says Ok; an Err says what is still missing. Fails at once if the server ends meanwhile.
    pub async fn wait_ready(
        &mut self,
        deadline: Duration,
        mut ready: impl AsyncFnMut() -> Result<(), String>,
    ) -> Result<()> {
        let name = self.program.name;
        let waited = wait_for(deadline, format!("{name} to be ready"), async || {
            if let Some(status) = self.exit_status()? {
                return Ok(Some(status));
            }
            ready().await.map(|()| None)
        });
        match waited.await {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::Ended {
                program: name.into(),
                status,
                log: self.log_tail(),
            }),
            Err(Error::Late { what, after, last }) => {
                let last = format!("{last}; the end of its log:\n{}", self.log_tail());
                Err(Error::Late { what, after, last })
            }
            Err(other) => Err(other),
        }
    }

    /// All that the server has put out, over all its starts.
    pub fn log(&self) -> String {
        let log = std::fs::read(&self.program.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The last lines of the server's output.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())) else {
            return Ok(());
        };
        let doing = Error::io(format!("sending a signal to {}", self.program.name));
        kill_process(pid, signal).map_err(|error| doing(error.into()))
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child
            .as_mut()
            .map_or(Ok(None), |child| child.try_wait().map_err(|error| error.to_string()))
    }

    fn spawn(&mut self) -> Result<()> {
        let Program {
            name,
            path,
            args,
            env,
            log,
            lifetime,
        } = &self.program;
        let doing = || Error::io(format!("starting {name}"));
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(doing())?;
        let mut command = Command::new("/bin/sh");
        match lifetime {
            Lifetime::Handle => command.args(["-c", ENDS_WITH_PIPE, name]).stdin(Stdio::piped()),
            Lifetime::Process(owner) => command
                .args(["-c", ENDS_WITH_PROCESS, name, &owner.to_string()])
                .stdin(Stdio::null()),
        };
        command
            .arg(path)
            .args(args)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdout(output.try_clone().map_err(doing())?)
            .stderr(output)
            .process_group(0);
        self.child = Some(command.spawn().map_err(doing())?);
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // There is nobody to tell, and the watchdog follows anyway.
        self.kill().ok();
    }
}

/// Whether a process with this id exists and is more than an unreaped remainder.
pub fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}
