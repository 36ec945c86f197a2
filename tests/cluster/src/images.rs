//! The image archives of Larder itself, made from the same sources as the test, once per run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::root;

/// Names a folder that holds the archives already: a run then keeps them while the sources change.
const BUILT: &str = "LARDER_IMAGES";

/// A first build on two cores takes some minutes; `make test` has it done before.
const BUILD: Duration = Duration::from_mins(14);

/// Under nextest every test is a process; under `cargo test` they share this.
static ARCHIVES: OnceCell<Vec<PathBuf>> = OnceCell::const_new();

/// The archives that a node needs.
pub(crate) async fn archives() -> Vec<PathBuf> {
    let all = ARCHIVES.get_or_init(async || {
        let folder = match variable(BUILT) {
            Some(folder) => PathBuf::from(folder),
            None => built_in_this_run().await,
        };
        let names = ["larder-controller.tar", "larder-agent.tar"];
        names.map(|name| folder.join(name)).into()
    });
    all.await.clone()
}

async fn built_in_this_run() -> PathBuf {
    let folder = root().join("target/images/dev");
    let run = variable("NEXTEST_RUN_ID");
    let _one_at_a_time = lock(folder.clone()).await;
    let stamp = folder.join("run");
    let built = std::fs::read_to_string(&stamp).is_ok_and(|of| run.as_ref() == Some(&of));
    if !built {
        build(&folder).await;
        std::fs::write(&stamp, run.unwrap_or_default()).unwrap();
    }
    folder
}

async fn build(folder: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["xtask", "image", "--profile", "dev", "--output"])
        .arg(folder)
        .current_dir(root())
        .kill_on_drop(true);
    let output = timeout(BUILD, cargo.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Holds back the other tests of the run until it is dropped, or its holder dies.
async fn lock(folder: PathBuf) -> File {
    let locked = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&folder).unwrap();
        let file = File::create(folder.join("lock")).unwrap();
        file.lock().unwrap();
        file
    });
    locked.await.unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests have no command line of their own; this stands in for it"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
