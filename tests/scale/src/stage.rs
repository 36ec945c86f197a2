//! The API server, the controller as a process, and what both say about themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Resource as _};
use larder_api::ImagePullJob;
use larder_api::names::LARDER_NAMESPACE;
use larder_testkit::{Access, ControlPlane, Lifetime, Options, Port, Process, Program, Scratch, wait_until};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::LIMIT;

/// Where the jobs are.
pub const NAMESPACE: &str = "bench";

/// Writes of these are what a job costs. Leases and the API server's own objects are not.
const COUNTED: [&str; 3] = ["nodeimages", "imagepulljobs", "events"];

/// A control plane of its own.
pub struct Stage {
    plane: ControlPlane,
    client: Client,
    scratch: Scratch,
}

/// What the API server has done so far.
#[derive(Clone, Debug, Default)]
pub struct Effort {
    /// Writes that succeeded, by resource with subresource.
    pub writes: BTreeMap<String, f64>,
    /// Seconds of processor time.
    pub cpu: f64,
}

/// The controller as a process.
pub struct Controller {
    process: Process,
    url: String,
}

impl Stage {
    /// Starts the servers.
    pub async fn start() -> Self {
        let options = Options {
            crds: larder_api::crds(),
            ..Options::default()
        };
        let plane = ControlPlane::start(options).await.unwrap();
        let client = plane.client().unwrap();
        for name in [NAMESPACE, LARDER_NAMESPACE] {
            let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            let namespaces = Api::<Namespace>::all(client.clone());
            namespaces.create(&PostParams::default(), &object).await.unwrap();
        }
        Self {
            plane,
            client,
            scratch: Scratch::create("scale").unwrap(),
        }
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How to make more of them.
    pub fn access(&self) -> &Access {
        self.plane.access()
    }

    /// Where jobs are.
    pub fn jobs(&self) -> Api<ImagePullJob> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// A folder that goes with the stage.
    pub fn folder(&self) -> &std::path::Path {
        self.scratch.path()
    }

    /// Starts the controller and waits until it is ready.
    pub async fn controller(&self) -> Controller {
        let port = Port::reserve().unwrap();
        let program = Program {
            name: "larder-controller",
            path: binary().await,
            args: vec![
                format!("--kubeconfig={}", self.plane.kubeconfig().display()),
                format!("--listen={}", port.address()),
            ],
            env: vec![],
            log: self.folder().join("controller.log"),
            lifetime: Lifetime::Handle,
        };
        let process = Process::start(program).unwrap();
        let controller = Controller {
            process,
            url: format!("http://{}", port.address()),
        };
        controller.is_ready().await;
        controller
    }

    /// What the API server has done so far, by its own count.
    pub async fn effort(&self) -> Effort {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        let mut effort = Effort::default();
        for line in text.lines() {
            if let Some(seconds) = line.strip_prefix("process_cpu_seconds_total ") {
                effort.cpu = seconds.parse().unwrap();
            } else if let Some((resource, count)) = write_counter(line) {
                *effort.writes.entry(resource).or_default() += count;
            }
        }
        effort
    }

    /// Deletes all jobs and waits until no node has an entry or a result any more.
    pub async fn clean_up(&self) {
        let jobs = self.jobs();
        let all = kube::api::ListParams::default();
        jobs.delete_collection(&DeleteParams::default(), &all).await.unwrap();
        let nodes = Api::<larder_api::NodeImage>::all(self.client());
        let clean = async || {
            let listed = nodes.list(&all).await.unwrap();
            listed.items.iter().all(|node| {
                let results = node.status.as_ref().map_or(0, |status| status.image_statuses.len());
                node.spec.images.is_empty() && results == 0
            })
        };
        wait_until(LIMIT, "the nodes to be empty", clean).await.unwrap();
    }
}

impl Effort {
    /// What was done since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let more = |(resource, count): (&String, &f64)| {
            let known = before.writes.get(resource).copied().unwrap_or(0.0);
            (*count > known).then(|| (resource.clone(), count - known))
        };
        Self {
            writes: self.writes.iter().filter_map(more).collect(),
            cpu: self.cpu - before.cpu,
        }
    }

    /// All writes together.
    pub fn all_writes(&self) -> f64 {
        self.writes.values().sum()
    }
}

impl Controller {
    /// Resident memory, in megabytes: now, and the most there ever was.
    pub fn memory(&self) -> (f64, f64) {
        let pid = self.process.pid().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kilobytes = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
        };
        (kilobytes("VmRSS:") / 1024.0, kilobytes("VmHWM:") / 1024.0)
    }

    /// Seconds of processor time so far.
    pub fn cpu(&self) -> f64 {
        let pid = self.process.pid().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let ticks = |place: usize| rest.split_whitespace().nth(place).unwrap().parse::<f64>().unwrap();
        // Linux counts in hundredths.
        (ticks(11) + ticks(12)) / 100.0
    }

    /// A number among its metrics.
    pub async fn metric(&self, name: &str) -> f64 {
        let text = reqwest::get(format!("{}/metrics", self.url)).await.unwrap();
        let text = text.text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name} in\n{text}"))
            .parse()
            .unwrap()
    }

    async fn is_ready(&self) {
        let url = format!("{}/readyz", self.url);
        let ready = async || {
            reqwest::get(&url)
                .await
                .is_ok_and(|answer| answer.status().is_success())
        };
        let waited = wait_until(LIMIT, "the controller", ready).await;
        assert!(waited.is_ok(), "{}", self.process.log_tail());
    }
}

/// Resource and count of a line about writes that succeeded.
fn write_counter(line: &str) -> Option<(String, f64)> {
    let (labels, count) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
    let label = |name: &str| {
        let (_, rest) = labels.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    let writes = matches!(label("verb")?, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE");
    let resource = label("resource").filter(|resource| COUNTED.contains(resource))?;
    let name = match label("subresource") {
        None | Some("") => resource.to_owned(),
        Some(subresource) => format!("{resource}/{subresource}"),
    };
    (writes && label("code")?.starts_with('2')).then(|| (name, count.parse().unwrap()))
}

/// Names a folder that holds the programs already: a run of an hour then keeps them while the sources change.
const BUILT: &str = "LARDER_PROGRAMS";

/// The controller's program of the same profile as this one; built first, for cargo builds binaries of other packages for
/// no test.
#[expect(
    clippy::disallowed_methods,
    reason = "tests have no command line of their own; this stands in for it"
)]
async fn binary() -> PathBuf {
    if let Some(folder) = std::env::var_os(BUILT) {
        return PathBuf::from(folder).join("larder-controller");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--package", "larder-controller-bin"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .kill_on_drop(true);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let built = timeout(Duration::from_mins(20), cargo.output()).await.unwrap().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // target/PROFILE/deps/this-test or target/PROFILE/examples/this-example
    let here = std::env::current_exe().unwrap();
    here.parent().unwrap().parent().unwrap().join("larder-controller")
}

/// Kind and version of a job, as it is written.
pub(crate) fn job_type() -> (String, String) {
    (
        ImagePullJob::api_version(&()).into_owned(),
        ImagePullJob::kind(&()).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_told_from_reads_and_refusals() {
        let line = |verb: &str, code: u32, sub: &str| {
            format!(
                "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",group=\"apps.kruise.io\",\
                 resource=\"nodeimages\",scope=\"resource\",subresource=\"{sub}\",verb=\"{verb}\",version=\"v1beta1\"}} 7"
            )
        };
        assert_eq!(
            write_counter(&line("PATCH", 200, "status")),
            Some(("nodeimages/status".to_owned(), 7.0))
        );
        assert_eq!(
            write_counter(&line("POST", 201, "")),
            Some(("nodeimages".to_owned(), 7.0))
        );
        assert_eq!(write_counter(&line("PATCH", 422, "")), None);
        assert_eq!(write_counter(&line("WATCH", 200, "")), None);
    }
}
