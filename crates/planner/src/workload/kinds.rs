//! Kubernetes' own kinds of workloads, all in version v1.

/// A kind whose objects have pods.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadKind {
    /// `Deployment`.
    pub name: &'static str,
    /// `apps`; empty for the core group.
    pub group: &'static str,
    /// `deployments`.
    pub plural: &'static str,
    /// `deploy`, as kubectl takes it.
    pub short: &'static str,
    /// The label that keeps images on nodes can be set on its objects: they last, and start pods again and again.
    pub can_be_labelled: bool,
}

/// All of them.
pub const KINDS: [WorkloadKind; 8] = [
    WorkloadKind::new("Deployment", "apps", "deployments", "deploy", true),
    WorkloadKind::new("StatefulSet", "apps", "statefulsets", "sts", true),
    WorkloadKind::new("DaemonSet", "apps", "daemonsets", "ds", true),
    WorkloadKind::new("ReplicaSet", "apps", "replicasets", "rs", false),
    WorkloadKind::new("CronJob", "batch", "cronjobs", "cj", true),
    WorkloadKind::new("Job", "batch", "jobs", "job", false),
    WorkloadKind::new("ReplicationController", "", "replicationcontrollers", "rc", false),
    WorkloadKind::new("Pod", "", "pods", "po", false),
];

impl WorkloadKind {
    const fn new(
        name: &'static str,
        group: &'static str,
        plural: &'static str,
        short: &'static str,
        can_be_labelled: bool,
    ) -> Self {
        Self {
            name,
            group,
            plural,
            short,
            can_be_labelled,
        }
    }

    /// `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        }
    }

    /// As people type it: `deployment`.
    pub fn word(&self) -> String {
        self.name.to_ascii_lowercase()
    }
}
