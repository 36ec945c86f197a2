//! One control plane for many tests.
//!
//! Under plain `cargo test` the tests of a binary are threads of one process and share a static. nextest starts a
//! process per test: there the first one to come starts the servers, writes their address into a folder named after the
//! run, and the others read it. Those servers end with the nextest process itself, whatever becomes of the single test.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::Mutex;

use super::{Access, ControlPlane, Options};
use crate::environment::{data_folder, nextest_run_id};
use crate::{Error, Lifetime, Result, Scratch};

/// Tests with other CRDs get another control plane: two versions of one definition cannot live together.
type CrdsKey = u64;

pub(super) async fn access(crds: &[CustomResourceDefinition]) -> Result<Access> {
    let key = key(crds);
    match nextest_run_id() {
        None => of_this_process(key, crds).await,
        Some(run) => of_this_run(&data_folder().join(format!("larder-shared-{run}-{key:016x}")), crds).await,
    }
}

async fn of_this_process(key: CrdsKey, crds: &[CustomResourceDefinition]) -> Result<Access> {
    static PLANES: LazyLock<Mutex<HashMap<CrdsKey, ControlPlane>>> = LazyLock::new(Mutex::default);
    let mut planes = PLANES.lock().await;
    if let Some(plane) = planes.get(&key) {
        return Ok(plane.access.clone());
    }
    let plane = ControlPlane::start(options(crds)).await?;
    let access = plane.access.clone();
    planes.insert(key, plane);
    Ok(access)
}

async fn of_this_run(folder: &Path, crds: &[CustomResourceDefinition]) -> Result<Access> {
    let _one_at_a_time = lock(folder.to_owned()).await?;
    let address = folder.join("access.json");
    if let Ok(written) = std::fs::read(&address) {
        return serde_json::from_slice(&written).map_err(|error| Error::Io {
            doing: format!("reading {}", address.display()),
            source: error.into(),
        });
    }
    let lifetime = Lifetime::Process(std::os::unix::process::parent_id());
    let _removed_with_the_run = Scratch::adopt(folder.to_owned(), lifetime)?;
    let plane = ControlPlane::start_in(data_folder_in(folder, lifetime)?, lifetime, options(crds)).await?;
    let doing = || Error::io(format!("writing {}", address.display()));
    let text = serde_json::to_vec(&plane.access)
        .map_err(std::io::Error::from)
        .map_err(doing())?;
    let unfinished = folder.join("access.json.new");
    std::fs::write(&unfinished, text)
        .and_then(|()| std::fs::rename(&unfinished, &address))
        .map_err(doing())?;
    Ok(plane.release())
}

/// A new folder for every try: what a failed one has left does not spoil the next.
fn data_folder_in(folder: &Path, lifetime: Lifetime) -> Result<Scratch> {
    let made = tempfile::Builder::new().prefix("data-").tempdir_in(folder);
    Scratch::adopt(
        made.map_err(Error::io(format!("making a folder in {}", folder.display())))?
            .keep(),
        lifetime,
    )
}

/// Holds back the other tests of the run until the lock is dropped, or its holder dies.
async fn lock(folder: PathBuf) -> Result<File> {
    let doing = Error::io(format!("locking {}", folder.display()));
    let locked = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&folder)?;
        let file = File::create(folder.join("lock"))?;
        file.lock()?;
        Ok(file)
    });
    locked.await.map_err(std::io::Error::other).flatten().map_err(doing)
}

fn options(crds: &[CustomResourceDefinition]) -> Options {
    Options {
        crds: crds.to_vec(),
        ..Options::default()
    }
}

fn key(crds: &[CustomResourceDefinition]) -> CrdsKey {
    let mut hasher = DefaultHasher::new();
    for crd in crds {
        serde_json::to_string(crd).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}
