//! A machine inside this one: processes, mounts, network and host name of its own, so that a kubelet and a containerd find
//! the paths they expect, disturb nobody, and leave nothing: with its first process all others end, and with them the
//! mounts and the network.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, Lifetime, Process, Program, Result, Scratch};

const READY: Duration = Duration::from_secs(30);

/// Places that are folders of ours on the machine. What the distribution has there does not show.
const OWN: &[&str] = &["/run", "/var/lib/containerd", "/var/lib/kubelet", "/var/log"];

/// Places that may be written to without it showing outside.
const COVERED: &[&str] = &["/etc", "/opt", "/usr/libexec", "/var"];

/// Sets up the machine from within. `$1` is its folder, `$2` its name, `$3` the size of the image file system or nothing.
///
/// The uplink leads nowhere, but programs look for an address of the node and a default route.
const SET_UP: &str = r#"
set -e
folder=$1
hostname "$2"
cover() {
    mkdir -p "$folder/cover$1" "$folder/work$1"
    mount -t overlay -o "lowerdir=$1,upperdir=$folder/cover$1,workdir=$folder/work$1" overlay "$1"
}
own() { mkdir -p "$folder/own$1" "$1"; mount --bind "$folder/own$1" "$1"; }
for place in $COVERED; do [ ! -d "$place" ] || cover "$place"; done
for place in $OWN; do own "$place"; done
[ -z "$3" ] || mount -t tmpfs -o "size=$3" tmpfs /var/lib/containerd
mkdir -p /run/containerd /var/log/pods /etc/containerd/certs.d /etc/cni/net.d
ip link set lo up
ip address add 10.111.0.1/32 dev lo
ip link add uplink type bridge
ip address add 10.200.0.2/24 dev uplink
ip link set uplink up
ip route add default via 10.200.0.1 dev uplink
touch "$folder/ready"
exec sleep infinity
"#;

/// The address of every node: each is alone in its network.
pub(super) const ADDRESS: &str = "10.200.0.2";

#[derive(Debug)]
pub(super) struct Machine {
    init: Process,
    cgroup: String,
    scratch: Scratch,
}

impl Machine {
    pub(super) async fn start(name: &str, image_disk: Option<u64>) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Io {
                doing: "starting a node, which works for root only: run these tests as root".into(),
                source: std::io::ErrorKind::PermissionDenied.into(),
            });
        }
        let scratch = Scratch::create("node")?;
        let cgroup = make_cgroups(scratch.path())?;
        let size = image_disk.map(|size| size.to_string()).unwrap_or_default();
        let folder = scratch.path().display().to_string();
        let namespaces = [
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--ipc",
            "--fork",
            "--kill-child=KILL",
        ];
        let set_up = ["--mount-proc", "--propagation=private", "/bin/sh", "-c", SET_UP, "init"];
        let mut init = Process::start(Program {
            name: "the first process of a node",
            path: "/usr/bin/unshare".into(),
            args: namespaces
                .into_iter()
                .chain(set_up)
                .map(str::to_owned)
                .chain([folder, name.to_owned(), size])
                .collect(),
            env: vec![("OWN".into(), OWN.join(" ")), ("COVERED".into(), COVERED.join(" "))],
            log: scratch.join("machine.log"),
            lifetime: Lifetime::Handle,
        })?;
        let ready = scratch.join("ready");
        init.wait_ready(READY, async || {
            if ready.exists() {
                Ok(())
            } else {
                Err("its mounts and network are not set up".into())
            }
        })
        .await?;
        Ok(Self { init, cgroup, scratch })
    }

    pub(super) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The cgroup below which its pods live, as a path from the root of each hierarchy.
    pub(super) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// The same as folders.
    pub(super) fn cgroups(&self) -> Vec<PathBuf> {
        let below = self.cgroup.trim_start_matches('/');
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
        let places = hierarchies.map(|hierarchy| hierarchy.path()).chain([root.to_owned()]);
        places
            .map(|place| place.join(below))
            .filter(|group| group.is_dir())
            .collect()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.init.pid()
    }

    /// What an own path of the machine is called outside.
    pub(super) fn outside(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        self.scratch.join("own").join(inside)
    }

    /// The arguments with which nsenter starts a program on it.
    pub(super) fn entry(&self) -> Vec<String> {
        let pid = self.pid().unwrap_or_default();
        let mut arguments: Vec<_> = ["--mount", "--net", "--uts", "--ipc"].map(str::to_owned).into();
        arguments.push(format!("--target={pid}"));
        // `unshare` itself stays outside; only its children are in the new namespace of processes.
        arguments.push(format!("--pid=/proc/{pid}/ns/pid_for_children"));
        arguments.push("--".to_owned());
        arguments
    }

    /// A program that runs on it, as a process of this test.
    pub(super) fn program(&self, name: &'static str, path: &Path, args: Vec<String>) -> Program {
        let mut entered = self.entry();
        entered.push(path.display().to_string());
        entered.extend(args);
        let folder = path.parent().unwrap_or(path).display();
        Program {
            name,
            path: "/usr/bin/nsenter".into(),
            args: entered,
            // What belongs to a program stands beside it, and comes before another version that may be installed.
            env: vec![(
                "PATH".into(),
                format!("{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            )],
            log: self.scratch.join(format!("{name}.log")),
            lifetime: Lifetime::Handle,
        }
    }

    /// A listener in its network.
    pub(super) fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        self.in_its_network(format!("listening on {address} of a node"), move || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
    }

    /// A connection from its network.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<tokio::net::TcpStream> {
        let doing = format!("connecting to {address} from a node");
        let stream = self.in_its_network(doing.clone(), move || {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })?;
        tokio::net::TcpStream::from_std(stream).map_err(Error::io(doing))
    }

    /// A socket belongs to the network in which it was made, whoever uses it. A thread of its own makes it, because a
    /// thread that has moved stays there.
    fn in_its_network<T: Send + 'static>(
        &self,
        doing: String,
        make: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let network = format!("/proc/{}/ns/net", self.pid().unwrap_or_default());
        let thread = std::thread::spawn(move || {
            let network = File::open(network)?;
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network))?;
            make()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")))
            .map_err(Error::io(doing))
    }
}

/// One in every hierarchy there is, named after the folder, with which [`Scratch`] removes them.
fn make_cgroups(folder: &Path) -> Result<String> {
    let root = Path::new("/sys/fs/cgroup");
    let name = folder.file_name().unwrap_or_default();
    let doing = || Error::io("making a cgroup for a node");
    let unified = root.join("cgroup.controllers").exists();
    let hierarchies: Vec<PathBuf> = if unified {
        vec![root.to_owned()]
    } else {
        let all = std::fs::read_dir(root).map_err(doing())?.filter_map(Result::ok);
        all.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    for hierarchy in hierarchies {
        std::fs::create_dir_all(hierarchy.join(name)).map_err(doing())?;
    }
    Ok(format!("/{}", name.to_string_lossy()))
}
