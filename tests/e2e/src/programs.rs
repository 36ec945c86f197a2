//! The programs under test, built from the same sources as the test.

use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::environment;

/// Cargo builds binaries of other packages for no test; without this a test could run an old one.
static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();

const BUILD: Duration = Duration::from_mins(10);

/// The path of a program, which is built first if need be.
pub(crate) async fn program(name: &str) -> PathBuf {
    FOLDER
        .get_or_init(async || match environment::programs() {
            Some(folder) => folder,
            None => build().await,
        })
        .await
        .join(name)
}

async fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--quiet",
            "--bins",
            "-p",
            "larder-controller-bin",
            "-p",
            "larder-agent-bin",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .kill_on_drop(true);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = timeout(BUILD, cargo.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // target/PROFILE/deps/this-test
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().to_owned()
}
