//! What people and other software do to jobs, nodes, pods and Secrets.

use serde_json::{Value, json};

use super::super::World;
use super::Act;
use crate::api::{Call, Key, Kind, Object, Response, Shared, Writer};
use crate::scenario::{self, NAMESPACE};
use crate::windows;

/// How often a job is replaced in a row.
const REPLACED: u64 = 20;

/// Creates another job with the name and the spec of this one.
fn namesake(job: &Object) -> Call {
    let mut value = job.value.clone();
    value["metadata"] = match job.key.namespace.as_str() {
        "" => json!({"name": job.key.name}),
        namespace => json!({"name": job.key.name, "namespace": namespace}),
    };
    Call::Create(job.key.kind, value)
}

impl World {
    fn any_job(&mut self) -> Option<Shared> {
        let kinds = [Kind::PullJob, Kind::PrePullJob, Kind::ListJob];
        let jobs: Vec<Shared> = kinds.iter().flat_map(|kind| self.api.list(*kind)).cloned().collect();
        self.random.pick(&jobs).cloned()
    }

    pub(super) fn edit_job(&mut self) {
        let Some(job) = self.any_job() else {
            return;
        };
        let parallelism = self.random.between(1..=6);
        let nodes = u64::try_from(self.machines.len()).unwrap_or(1);
        let spec = match (job.key.kind, self.random.between(0..=4)) {
            (Kind::PullJob, 0) => json!({"image": scenario::image(&mut self.random), "pullSecrets": ["login"]}),
            (Kind::PrePullJob, 0) if job.value["spec"]["imagePrePullTemplate"]["nodeNames"].is_array() => {
                json!({"imagePrePullTemplate": {"nodeNames": scenario::names(&mut self.random, nodes)}})
            }
            (Kind::PullJob | Kind::ListJob, 1) if job.value["spec"]["podSelector"].is_null() => {
                json!({"selector": {"names": null, "matchLabels": {"zone": scenario::zone(&mut self.random)}}})
            }
            (Kind::PullJob | Kind::ListJob, 2) => json!({"windows": windows::draw(&mut self.random)}),
            (Kind::PrePullJob, 2) => {
                json!({"imagePrePullTemplate": {"priority": scenario::priority(&mut self.random)}})
            }
            (Kind::PullJob | Kind::ListJob, 3) => json!({"priority": scenario::priority(&mut self.random)}),
            (Kind::PrePullJob, _) => json!({"imagePrePullTemplate": {"concurrency": parallelism}}),
            _ => json!({"parallelism": parallelism}),
        };
        self.write(&Call::Merge(job.key.clone(), json!({"spec": spec})));
    }

    pub(super) fn delete_job(&mut self) {
        if let Some(job) = self.any_job() {
            let key = job.key.clone();
            self.write(&Call::Delete { key, uid: None });
        }
    }

    /// Deletes a job and creates another one of the same name; now and then many times in a row.
    pub(super) fn replace_any_job(&mut self) {
        let times = if self.random.permille(200) { REPLACED } else { 1 };
        if let Some(job) = self.any_job() {
            self.replace_job(&job.key.clone(), times);
        }
    }

    /// Now and then somebody applies a job anew as soon as its time to live is over.
    pub(crate) fn create_again(&mut self, deleted_by: Writer, job: &Shared) {
        let is_job = matches!(job.key.kind, Kind::PullJob | Kind::PrePullJob | Kind::ListJob);
        let is_alone = job.value["metadata"]["ownerReferences"].is_null();
        if is_job && is_alone && deleted_by != Writer::Other && self.now() < self.chaos && self.random.permille(800) {
            let pause = self.random.between(1..=20);
            self.later(pause, Act::Create(namesake(job)));
        }
    }

    pub(super) fn replace_job(&mut self, key: &Key, times: u64) {
        let Some(job) = self.api.get(key).cloned() else {
            return;
        };
        self.write(&Call::Delete {
            key: key.clone(),
            uid: None,
        });
        let longest = if times == 1 { 3_000 } else { 300 };
        let pause = if self.random.coin() {
            0
        } else {
            self.random.between(1..=longest)
        };
        self.later(pause, Act::Create(namesake(&job)));
        if 1 < times {
            let pause = pause + self.random.between(1..=500);
            self.later(pause, Act::ReplaceAgain(key.clone(), times - 1));
        }
    }

    pub(super) fn relabel(&mut self) {
        let index = self.random.index(self.machines.len());
        if let Some(name) = self.disturb_node(index) {
            let patch = json!({"metadata": {"labels": {"zone": scenario::zone(&mut self.random)}}});
            self.write(&Call::Merge(Key::cluster(Kind::Node, &name), patch));
        }
    }

    pub(crate) fn set_ready(&mut self, index: usize, ready: bool) {
        if let Some(name) = self.disturb_node(index) {
            let mut status = scenario::ready(ready);
            status["conditions"][0]["lastTransitionTime"] = json!(self.time().to_string());
            // A kubelet leaves the conditions of others alone.
            self.write(&Call::Conditions(
                Key::cluster(Kind::Node, &name),
                json!({"status": status}),
            ));
        }
    }

    pub(super) fn delete_node(&mut self, index: usize) {
        let Some(name) = self.disturb_node(index) else {
            return;
        };
        let key = Key::cluster(Kind::Node, &name);
        let Some(node) = self.api.get(&key).cloned() else {
            return;
        };
        self.write(&Call::Delete { key, uid: None });
        if self.random.permille(700) {
            let mut value = node.value.clone();
            value["metadata"] = json!({"name": name, "labels": node.value["metadata"]["labels"]});
            if self.fleet.gates_nodes {
                value["spec"] = scenario::tainted();
                value["status"] = scenario::ready(true);
            }
            let pause = self.random.between(0..=30_000);
            self.later(pause, Act::Create(Call::Create(Kind::Node, value)));
        }
    }

    pub(super) fn write_entry(&mut self, index: usize) {
        let Some(name) = self.machine_name(index) else {
            return;
        };
        let key = Key::cluster(Kind::NodeImage, &name);
        let Some(object) = self.api.get(&key) else {
            return;
        };
        let mut tags: Vec<Value> = object.value["spec"]["images"]["busybox"]["tags"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        tags.retain(|tag| tag["tag"] != "by-hand");
        let version = self.random.between(0..=3);
        tags.push(json!({
            "tag": "by-hand", "version": version, "imagePullPolicy": "IfNotPresent",
            "pullPolicy": {"timeoutSeconds": 30, "backoffLimit": 1, "ttlSecondsAfterFinished": 300},
        }));
        self.write(&Call::Merge(
            key,
            json!({"spec": {"images": {"busybox": {"tags": tags}}}}),
        ));
    }

    pub(super) fn move_pod(&mut self) {
        self.checks.pods_moved(self.queue.now());
        let pods: Vec<Shared> = self.api.list(Kind::Pod).cloned().collect();
        let nodes = u64::try_from(self.machines.len()).unwrap_or(1);
        let number = u64::try_from(pods.len()).unwrap_or(0) + 100;
        if let Some(pod) = self.random.pick(&pods).cloned() {
            let key = pod.key.clone();
            self.write(&Call::Delete { key, uid: None });
        }
        let pod = scenario::pod(&mut self.random, number, nodes);
        self.write(&Call::Create(Kind::Pod, pod));
    }

    /// The Secret is there, with the right password.
    pub(crate) fn set_secret(&mut self) {
        let secret = scenario::secret("login");
        let mut response = self.write(&Call::Create(Kind::Secret, secret));
        if matches!(response, Response::Refused(_)) {
            let key = Key::new(Kind::Secret, NAMESPACE, "login");
            let patch = json!({"metadata": {"annotations": {"changed": self.now().to_string()}}});
            response = self.write(&Call::Merge(key, patch));
        }
        if let Response::Object(object) = response {
            self.good_logins.insert(format!("{}@{}", object.uid, object.version));
        }
    }
}
