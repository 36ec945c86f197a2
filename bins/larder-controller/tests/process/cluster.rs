//! A cluster that Larder is installed in, and controllers that run in it with no more than their own permissions.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use larder_testkit::{ControlPlane, Error, Kubectl, Lifetime, Options, Port, Process, Program, Scratch, kubectl};

pub(crate) const NAMESPACE: &str = "larder-system";
const SOON: Duration = Duration::from_mins(1);

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    scratch: Scratch,
}

pub(crate) struct Replica {
    pub(crate) process: Process,
    port: Port,
}

impl Cluster {
    /// With our CRDs and the files in `deploy/rbac`.
    pub(crate) async fn start() -> Self {
        let options = Options {
            crds: larder_api::crds(),
            ..Options::default()
        };
        let plane = ControlPlane::start(options).await.unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
        let arguments = ["apply".as_ref(), "-f".as_ref(), folder.as_os_str()];
        let output = kubectl(Kubectl::Current, plane.kubeconfig(), arguments).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self {
            plane,
            scratch: Scratch::create("controller").unwrap(),
        }
    }

    /// A controller with the permissions of its ServiceAccount.
    pub(crate) async fn controller(&self, name: &str) -> Replica {
        let access = self.plane.access();
        let token = access
            .service_account_token(NAMESPACE, "larder-controller", None)
            .await
            .unwrap();
        let kubeconfig = access.write_kubeconfig(self.scratch.path(), name, &token).unwrap();
        let port = Port::reserve().unwrap();
        let process = Process::start(Program {
            name: "larder-controller",
            path: env!("CARGO_BIN_EXE_larder-controller").into(),
            args: vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--listen={}", port.address()),
            ],
            env: vec![],
            log: self.scratch.path().join(format!("{name}.log")),
            lifetime: Lifetime::Handle,
        });
        Replica {
            process: process.unwrap(),
            port,
        }
    }

    /// Who holds the lease.
    pub(crate) async fn holder(&self) -> Option<String> {
        let leases = Api::<Lease>::namespaced(self.plane.client().unwrap(), NAMESPACE);
        let spec = leases.get_opt("larder-controller").await.unwrap()?.spec?;
        spec.holder_identity.filter(|holder| !holder.is_empty())
    }
}

impl Replica {
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String), String> {
        let url = format!("http://{}{path}", self.port.address());
        let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(|error| error.to_string())?))
    }

    pub(crate) async fn wait_until_ready(&mut self) {
        let url = format!("http://{}/readyz", self.port.address());
        let ready = async || {
            let answer = reqwest::get(&url).await.map_err(|error| error.to_string())?;
            match (answer.status().is_success(), answer.text().await) {
                (true, _) => Ok(()),
                (false, text) => Err(text.unwrap_or_default()),
            }
        };
        self.process.wait_ready(SOON, ready).await.unwrap();
    }

    pub(crate) async fn leads(&self) -> bool {
        matches!(self.get("/metrics").await, Ok((200, text)) if text.contains("larder_controller_leader 1\n"))
    }

    /// SIGTERM; waits for the end and gives back whether it was a good one.
    pub(crate) async fn terminate(&mut self) -> bool {
        use rustix::process::{Pid, Signal, kill_process};
        let pid = Pid::from_raw(self.process.pid().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let still_runs = async || Err("it still runs".to_owned());
        match self.process.wait_ready(Duration::from_secs(20), still_runs).await {
            Err(Error::Ended { status, .. }) => status.success(),
            other => panic!("{other:?}"),
        }
    }
}
