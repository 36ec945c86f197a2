//! The CLI, as an operator types it.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use larder_testkit::Scratch;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::{Cluster, root};

/// Cargo builds programs of other packages for no test; without this a test could run an old one.
static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();

const BUILD: Duration = Duration::from_mins(10);

/// No command of the tests takes longer.
const RUN: Duration = Duration::from_mins(2);

/// Builds the CLI. Before a cluster is started: the compiler may take long, and needs the machine for itself.
pub async fn build_larder() {
    PROGRAM.get_or_init(build).await;
}

impl Cluster {
    /// `larder` with all permissions, and its outcome, good or bad.
    pub async fn larder(&self, arguments: &[&str]) -> Output {
        let program = PROGRAM.get_or_init(build).await;
        let mut larder = Command::new(program);
        larder
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .kill_on_drop(true);
        timeout(RUN, larder.output()).await.unwrap().unwrap()
    }

    /// The same as `kubectl larder`, installed by a link on the search path.
    pub async fn kubectl_larder(&self, arguments: &[&str]) -> Output {
        let folder = Scratch::create("plugin").unwrap();
        let program = PROGRAM.get_or_init(build).await;
        std::os::unix::fs::symlink(program, folder.join("kubectl-larder")).unwrap();
        let mut kubectl = Command::new("sh");
        kubectl
            .args(["-c", r#"PATH=$0:$PATH; exec kubectl larder "$@""#])
            .arg(folder.path())
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .kill_on_drop(true);
        timeout(RUN, kubectl.output()).await.unwrap().unwrap()
    }
}

async fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--bins", "--package", "larder"])
        .current_dir(root())
        .kill_on_drop(true);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = timeout(BUILD, cargo.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // target/PROFILE/deps/this-test
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("larder")
}
