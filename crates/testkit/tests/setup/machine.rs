//! A bare machine for the scripts in `tests/servers`: an empty home and cache, and a PATH with the shell's usual tools and
//! stand-ins for what takes minutes or changes the real machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What the scripts may use of the real machine.
const TOOLS: [&str; 20] = [
    "basename", "bash", "cat", "chmod", "cp", "dirname", "env", "find", "flock", "grep", "head", "ls", "mkdir",
    "mktemp", "mv", "rm", "sh", "sleep", "sort", "touch",
];

/// What stands in for the rest. `cargo-fmt` and `cargo-clippy` are only looked for.
const STAND_INS: [&str; 6] = ["apt-get", "cargo", "dpkg", "go", "id", "unshare"];

pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn bare() -> Self {
        let machine = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(machine.path("bin")).unwrap();
        for tool in TOOLS {
            let real = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            let real = real.iter().find(|path| path.exists()).unwrap();
            symlink(real, machine.program(tool)).unwrap();
        }
        for name in STAND_INS {
            let script = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/setup/stand_ins")
                .join(name);
            symlink(script, machine.program(name)).unwrap();
        }
        for name in ["cargo-fmt", "cargo-clippy"] {
            symlink("/bin/true", machine.program(name)).unwrap();
        }
        machine.set("uid", "0");
        machine.set("cargo-version", "cargo 1.95.0 (0123456789 2026-01-01)");
        machine.set("go-version", "go1.26.0");
        machine
    }

    /// A file that tells the stand-ins something.
    pub(crate) fn set(&self, name: &str, value: &str) {
        fs::write(self.path(name), format!("{value}\n")).unwrap();
    }

    pub(crate) fn unset(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Takes a command away.
    pub(crate) fn uninstall(&self, name: &str) {
        fs::remove_file(self.program(name)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.path("bin").join(name)
    }

    /// One of the scripts in `tests/servers`, in a process group of its own.
    pub(crate) fn script(&self, name: &str, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/servers")
            .join(name);
        let mut command = Command::new(script);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.path("home"))
            .env("LARDER_CACHE", self.path("cache"))
            .env("GOMODCACHE", self.path("modules"))
            .env("STAND_INS", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// Runs `setup` to its end.
    pub(crate) fn setup(&self, arguments: &[&str]) -> Output {
        self.script("setup", arguments).output().unwrap()
    }

    /// Runs `setup`, which must succeed, and gives back what it printed to its standard output.
    pub(crate) fn set_up(&self, arguments: &[&str]) -> String {
        let output = self.setup(arguments);
        assert!(output.status.success(), "setup {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The calls of stand-ins since the last look.
    pub(crate) fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        fs::write(self.path("calls"), "").unwrap();
        calls.lines().map(str::to_owned).collect()
    }

    /// The programs in the cache, each with what it was made of.
    pub(crate) fn programs(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for folder in ["servers", "tools/bin"] {
            collect(&self.path("cache"), &self.path("cache").join(folder), &mut found);
        }
        found
    }

    /// What stands in the cache folder itself.
    pub(crate) fn cache_entries(&self) -> Vec<String> {
        let mut names: Vec<_> = entries(&self.path("cache"))
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn collect(cache: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for path in entries(folder) {
        if path.is_dir() {
            collect(cache, &path, found);
        } else {
            let name = path.strip_prefix(cache).unwrap().display().to_string();
            found.insert(name, fs::read_to_string(&path).unwrap().trim().to_owned());
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
