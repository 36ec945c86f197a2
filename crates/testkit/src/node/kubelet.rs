//! The kubelet: its configuration, and how to see that it serves the cluster.

use std::path::Path;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::containerd::SOCKET;
use super::machine::{ADDRESS, Machine};
use super::{NodeOptions, merged};
use crate::environment::{KUBERNETES, cached};
use crate::{Access, Process, Result};

pub(super) fn start(machine: &Machine, access: &Access, name: &str, options: &NodeOptions) -> Result<Process> {
    let kubeconfig = access.write_kubeconfig(machine.scratch().path(), "kubelet", access.node_token(name)?)?;
    let config = merged(config(machine), &options.kubelet);
    let config = machine.scratch().write("kubelet.json", config.to_string())?;
    let mut arguments = vec![
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--hostname-override={name}"),
        format!("--node-ip={ADDRESS}"),
        "--v=2".to_owned(),
    ];
    if !options.labels.is_empty() {
        let labels: Vec<_> = options
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        arguments.push(format!("--node-labels={}", labels.join(",")));
    }
    Process::start(machine.program("kubelet", &cached(KUBERNETES, "kubelet")?, arguments))
}

/// Nothing is evicted unless a test asks for it; reports are quick.
fn config(machine: &Machine) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": machine.cgroup(),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": false,
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "enabled": true } },
        "nodeStatusReportFrequency": "10s",
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    })
}

fn readiness(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// When the kubelet last spoke.
pub(super) fn last_word(node: &Node) -> Option<Time> {
    readiness(node)?.last_heartbeat_time.clone()
}

/// Whether the node said, and not with this last word of an earlier kubelet, that it is Ready, and may take pods.
pub(super) fn is_ready(node: &Node, last_word: Option<&Time>) -> Result<(), String> {
    let ready = readiness(node).ok_or("it says nothing of itself yet")?;
    if ready.status != "True" {
        return Err(ready.message.clone().unwrap_or_default());
    }
    if last_word.is_some() && ready.last_heartbeat_time.as_ref() == last_word {
        return Err("what it says is from before it was started".into());
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let not_ready = taints
        .into_iter()
        .flatten()
        .find(|taint| taint.key.starts_with("node.kubernetes.io/not-ready"));
    not_ready.map_or(Ok(()), |taint| Err(format!("it still has the taint {}", taint.key)))
}

/// All log files below this folder.
pub(super) fn container_logs(folder: &Path) -> String {
    let mut texts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read(&path) {
                let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
                let end = lines[lines.len().saturating_sub(40)..].join(&b'\n');
                texts.push(format!("--- {}\n{}", path.display(), String::from_utf8_lossy(&end)));
            }
        }
    }
    texts.join("\n")
}
