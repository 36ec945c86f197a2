//! Real Docker engines (Debian's 20.10) with cri-dockerd, several side by side: each has its own containerd, storage and
//! sockets. They pull images and run no pods.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::environment::{CRI_DOCKERD, DOCKER_DEBIAN, RUNC_DEBIAN, cached};
use crate::grpc::cri_ready;
use crate::scratch::mount_memory;
use crate::{Containerd, ContainerdVersion, Lifetime, Process, Program, Result, RuntimeOptions, Scratch};

const READY: Duration = Duration::from_mins(1);

/// A running engine; it ends, and its images go, when it is dropped.
#[derive(Debug)]
pub(crate) struct Docker {
    // Dropped in this order: clients of a server before the server, the folder last.
    pub(crate) cri: Process,
    pub(crate) engine: Process,
    _containerd: Containerd,
    scratch: Scratch,
}

impl Docker {
    pub(crate) async fn start(options: &RuntimeOptions) -> Result<Self> {
        let containerd = Containerd::start(ContainerdVersion::V1_6).await?;
        let scratch = Scratch::create("docker")?;
        scratch.create_folder("root")?;
        if let Some(size) = options.disk_size {
            mount_memory(&scratch.join("root"), size).await?;
        }
        let mut engine = Process::start(engine(&scratch, &containerd, options)?)?;
        wait_for_engine(&mut engine, scratch.join("docker.sock")).await?;
        let mut docker = Self {
            cri: Process::start(cri(&scratch)?)?,
            engine,
            _containerd: containerd,
            scratch,
        };
        docker.wait_ready().await?;
        Ok(docker)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.join("cri-dockerd.sock")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    /// Kills the engine; cri-dockerd goes on and finds nothing behind it.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.engine.kill()
    }

    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.engine.restart()?;
        wait_for_engine(&mut self.engine, self.scratch.join("docker.sock")).await?;
        self.wait_ready().await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let socket = self.socket();
        self.cri.wait_ready(READY, async || cri_ready(&socket).await).await
    }
}

/// Without networks of its own, so that it changes nothing of the machine's. A mirror is asked first, and what leads
/// past it, to Docker Hub itself, ends at a proxy that is not there.
fn engine(scratch: &Scratch, containerd: &Containerd, options: &RuntimeOptions) -> Result<Program> {
    let folder = scratch.path().display();
    let mut args = vec![
        format!("--data-root={folder}/root"),
        format!("--exec-root={folder}/exec"),
        format!("--pidfile={folder}/dockerd.pid"),
        format!("--config-file={folder}/daemon.json"),
        format!("--host=unix://{folder}/docker.sock"),
        format!("--containerd={}", containerd.socket().display()),
        "--bridge=none".to_owned(),
        "--iptables=false".to_owned(),
        "--ip6tables=false".to_owned(),
        "--ip-forward=false".to_owned(),
        "--ip-masq=false".to_owned(),
        "--storage-driver=vfs".to_owned(),
        "--insecure-registry=127.0.0.0/8".to_owned(),
    ];
    scratch.write("daemon.json", "{}")?;
    if let Some(mirror) = &options.docker_hub_mirror {
        args.push(format!("--registry-mirror=http://{mirror}"));
    }
    // dockerd ends without runc, although it starts no container here.
    let runc = cached(RUNC_DEBIAN, "runc")?;
    let runc = runc.parent().unwrap_or(&runc).display();
    Ok(Program {
        name: "dockerd",
        path: cached(DOCKER_DEBIAN, "dockerd")?,
        args,
        env: vec![
            ("PATH".into(), format!("{runc}:/usr/sbin:/usr/bin:/sbin:/bin")),
            ("HTTPS_PROXY".into(), "http://127.0.0.1:1".into()),
            ("NO_PROXY".into(), "127.0.0.0/8".into()),
        ],
        log: scratch.join("dockerd.log"),
        lifetime: Lifetime::Handle,
    })
}

fn cri(scratch: &Scratch) -> Result<Program> {
    let folder = scratch.path().display();
    Ok(Program {
        name: "cri-dockerd",
        path: cached(CRI_DOCKERD, "cri-dockerd")?,
        args: vec![
            format!("--container-runtime-endpoint=unix://{folder}/cri-dockerd.sock"),
            format!("--docker-endpoint=unix://{folder}/docker.sock"),
            format!("--cri-dockerd-root-directory={folder}/cri-dockerd"),
            "--network-plugin=".to_owned(),
            "--streaming-bind-addr=127.0.0.1:0".to_owned(),
        ],
        env: vec![],
        log: scratch.join("cri-dockerd.log"),
        lifetime: Lifetime::Handle,
    })
}

async fn wait_for_engine(engine: &mut Process, socket: PathBuf) -> Result<()> {
    let ready = async || {
        let ping = async {
            let mut stream = UnixStream::connect(&socket).await?;
            stream.write_all(b"GET /_ping HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = ping.await.map_err(|error| error.to_string())?;
        let status = answer.lines().next().unwrap_or_default();
        if status.contains(" 200 ") {
            Ok(())
        } else {
            Err(format!("/_ping answered {status:?}"))
        }
    };
    engine.wait_ready(READY, ready).await
}
