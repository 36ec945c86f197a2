//! Names that charts, scripts and other crates rely on.

/// ServiceAccount, ClusterRole, Role and Lease of the controller.
pub const CONTROLLER: &str = "larder-controller";

/// ClusterRole of the controller where it keeps jobs for labelled workloads, and its binding.
pub const WARM_WORKLOADS: &str = "larder-warm-workloads";

/// ClusterRole of the controller where new nodes wait for images, and its binding.
pub const NODE_GATE: &str = "larder-node-gate";

/// ServiceAccount and ClusterRole of the agents.
pub const AGENT: &str = "larder-agent";

/// ServiceAccount and ClusterRole of the job that applies the CRDs.
pub const INSTALLER: &str = "larder-installer";

/// ServiceAccount, ClusterRole and Role of the job that cleans up before an uninstall.
pub const UNINSTALLER: &str = "larder-uninstaller";

/// The policy on writers of NodeImage status, and its binding.
pub const POLICY: &str = "larder-agent-own-node";

/// Whoever has this verb on nodeimages/status may write the status of every NodeImage, as far as other verbs allow it.
/// Nothing in this crate grants it.
pub const BYPASS_VERB: &str = "bypass-node-check";

/// Under this key the API server says which node a token is bound to (Kubernetes 1.30 and newer).
pub const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// The name CloudCore acts in as its own chart installs it.
pub const CLOUD_CORE_USER: &str = "system:serviceaccount:kubeedge:cloudcore";
