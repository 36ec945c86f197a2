//! Runs the program in surroundings of its own: no home, no kubeconfig, no colours asked for or refused.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// No run takes longer, on however busy a machine.
const LIMIT: Duration = Duration::from_mins(2);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// It did what was asked, and said nothing of errors.
    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{}", self.stdout);
        self.stdout
    }

    /// It ended with this code and one sentence, which is returned.
    #[track_caller]
    pub(crate) fn badly(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        let sentence = self
            .stderr
            .strip_prefix("error: ")
            .unwrap_or_else(|| panic!("{self:?}"));
        assert_eq!(sentence.matches('\n').count(), 1, "one line: {sentence}");
        assert!(!sentence.contains("panicked"), "{sentence}");
        sentence.trim_end().to_owned()
    }
}

/// The program, and a folder that is its whole world.
pub(crate) struct Larder {
    pub(crate) home: TempDir,
}

impl Larder {
    pub(crate) fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_remove("KUBECONFIG")
            .env_remove("NO_COLOR")
            .env_remove("XDG_DATA_HOME")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path())
            .env("TERM", "xterm-256color")
            // Files are named without their folder, which is another one every time.
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn larder(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_larder"));
        command.args(arguments);
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.larder(arguments)).await
    }

    /// Puts a file into the folder.
    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.home.path().join(name), content).unwrap();
    }

    /// An ImagePullJob in a file.
    pub(crate) fn write_job(&self, name: &str, image: &str, more: &str) {
        let text = format!(
            "apiVersion: apps.kruise.io/v1beta1\nkind: ImagePullJob\nmetadata:\n  name: {name}\nspec:\n  image: {image}\n{more}"
        );
        self.write(&format!("{name}.yaml"), &text);
    }
}

/// The program while it runs, and what it says.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(larder: &Larder, arguments: &[&str]) -> Self {
        let mut command = larder.larder(arguments);
        command.stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// What it says, up to the first line that begins like this.
    pub(crate) async fn read_until(&mut self, begin: &str) -> String {
        let mut said = String::new();
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                said.push_str(&line);
                said.push('\n');
                if line.starts_with(begin) {
                    return true;
                }
            }
            false
        };
        let found = timeout(LIMIT, found).await.unwrap_or(false);
        assert!(found, "it does not say {begin}: {said}");
        said
    }
}

pub(crate) async fn ended(mut command: Command) -> Ended {
    let output = timeout(LIMIT, command.output())
        .await
        .expect("it ends in time")
        .unwrap();
    said(output)
}

fn said(output: std::process::Output) -> Ended {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// What a process that was started before said, when it ends.
pub(crate) async fn output_of(child: Child) -> Ended {
    let output = timeout(LIMIT, child.wait_with_output())
        .await
        .expect("it ends in time")
        .unwrap();
    said(output)
}

pub(crate) async fn exit_code(child: &mut Child) -> Option<i32> {
    timeout(LIMIT, child.wait())
        .await
        .expect("it ends in time")
        .unwrap()
        .code()
}

pub(crate) fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().expect("it runs")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The repository's own examples.
pub(crate) fn examples() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples")
}
