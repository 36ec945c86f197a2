//! Folders that disappear with the test, also when the test process is killed.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::environment::data_folder;
use crate::process::Lifetime;
use crate::{Error, Result, command};

/// Waits like the watchdog of a server, then removes the folder: first what is mounted below it, then the cgroups that
/// have its name, then the files. The servers die in the same moment, so a file may still appear during the first try.
const REMOVE: &str = r#"
folder=$1
while read -r _ place _; do case $place in "$folder"/*) umount -l "$place" ;; esac; done </proc/mounts
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    left=
    for group in /sys/fs/cgroup/"${folder##*/}" /sys/fs/cgroup/*/"${folder##*/}"; do
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + || left=yes
    done
    rm -rf --one-file-system -- "$folder" && [ -z "$left" ] && exit 0
    sleep 0.2
done"#;

/// A folder for the data of servers, in memory where possible, removed when the value is dropped or the process ends.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    remover: Child,
    lifetime: Lifetime,
}

impl Scratch {
    /// Makes a new empty folder.
    pub fn create(name: &str) -> Result<Self> {
        let doing = || Error::io(format!("making a folder in {}", data_folder().display()));
        let path = tempfile::Builder::new()
            .prefix(&format!("larder-{name}-"))
            .tempdir_in(data_folder())
            .map_err(doing())?
            .keep();
        Self::adopt(path, Lifetime::Handle)
    }

    /// Takes over a folder that is already there.
    pub(crate) fn adopt(path: PathBuf, lifetime: Lifetime) -> Result<Self> {
        let (wait, stdin) = match lifetime {
            Lifetime::Handle => ("read -r _".to_owned(), Stdio::piped()),
            Lifetime::Process(owner) => (format!("tail --pid={owner} -s 0.2 -f /dev/null"), Stdio::null()),
        };
        let remover = Command::new("/bin/sh")
            .args(["-c", &format!("{wait}\n{REMOVE}"), "remove"])
            .arg(&path)
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(Error::io("starting the shell that removes a test's folder"))?;
        Ok(Self {
            path,
            remover,
            lifetime,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Makes an empty folder inside.
    pub(crate) fn create_folder(&self, name: &str) -> Result<()> {
        let folder = self.path.join(name);
        std::fs::create_dir(&folder).map_err(Error::io(format!("making {}", folder.display())))
    }

    /// Writes a file inside and gives back its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::write(&path, content).map_err(Error::io(format!("writing {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Handle {
            // `wait` closes the pipe first, which is the sign to remove.
            self.remover.wait().ok();
        }
    }
}

/// A file system in memory with a limit, for a disk that fills up. [`Scratch`] unmounts it.
pub(crate) async fn mount_memory(place: &Path, size: u64) -> Result<()> {
    let mut mount = tokio::process::Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(place);
    command::output("mounting a small disk (needs root)", mount)
        .await
        .map(drop)
}
