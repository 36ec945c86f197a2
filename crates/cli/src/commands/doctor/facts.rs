//! What was seen of a cluster, as plain values: everything that the diagnosis looks at, and nothing else.

/// Something that was looked at, or why it could not be.
pub(super) type Seen<T> = Result<T, String>;

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) server: Server,
    pub(super) crds: Vec<Crd>,
    pub(super) rivals: Seen<Rivals>,
    pub(super) system: System,
    pub(super) nodes: Seen<Vec<Node>>,
    pub(super) policy: Seen<Policy>,
    pub(super) rights: Rights,
    /// A job with `nodeGate`, as `namespace/name`.
    pub(super) gating_job: Option<String>,
}

/// The API server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// As it says itself: `v1.36.3`.
    pub(super) version: String,
    pub(super) minor: Option<u32>,
    /// It runs inside `larder up`.
    pub(super) embedded: bool,
}

/// One of Larder's CRDs.
#[derive(Clone, Debug)]
pub(super) struct Crd {
    pub(super) name: String,
    pub(super) found: Seen<FoundCrd>,
}

#[derive(Clone, Debug)]
pub(super) enum FoundCrd {
    Missing,
    Installed {
        /// What it lacks, in a sentence without a point.
        shortcoming: Option<String>,
        /// The Helm release that it belongs to.
        release: Option<String>,
    },
}

/// Other software that serves the same kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivals {
    /// DaemonSets, and on how many nodes they run.
    pub(super) daemons: Vec<(String, i32)>,
    /// Webhook configurations, and for which of our resources.
    pub(super) webhooks: Vec<(String, String)>,
}

/// Larder's own parts.
#[derive(Clone, Debug)]
pub(super) struct System {
    pub(super) namespace: String,
    /// Other namespaces that have a controller, too.
    pub(super) elsewhere: Vec<String>,
    pub(super) accounts: Accounts,
    pub(super) exists: Seen<bool>,
    pub(super) lease: Seen<Option<Lease>>,
    pub(super) controllers: Seen<Vec<Pod>>,
    pub(super) agents: Seen<Vec<Pod>>,
}

/// Names of the ServiceAccounts.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    pub(super) controller: String,
    pub(super) agent: String,
}

#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) holder: Option<String>,
    /// It was renewed lately, or while we looked.
    pub(super) renewed: bool,
}

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one pod")]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) node: Option<String>,
    pub(super) ready: bool,
    /// Why it is not.
    pub(super) trouble: Option<String>,
    /// The tag of its image.
    pub(super) version: Option<String>,
    /// The feature gate `ImagePullJobGate` is off.
    pub(super) gate_off: bool,
    /// `--pause`.
    pub(super) paused: bool,
    /// `--accept-unenforced-node-policy`.
    pub(super) accepts_no_policy: bool,
    /// `--node-gate`.
    pub(super) gates_nodes: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) ready: bool,
    pub(super) has_node_image: bool,
    /// What its agent says of itself.
    pub(super) agent: Option<Agent>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    pub(super) version: Option<String>,
    pub(super) runtime: Option<String>,
    pub(super) has_key: bool,
    /// Another agent that runs with the name of this node.
    pub(super) conflicts_with: Option<String>,
}

/// The policy on writers of NodeImage status.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) installed: bool,
    pub(super) bound: Binding,
    pub(super) probe: Probe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    Missing,
    /// It warns or audits, and refuses nothing.
    Toothless,
    Denies,
}

/// The result of a trial status write by the agents' account, without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    NotTried,
    Refused,
    Accepted,
}

/// Who may do what.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    /// What the controller's account lacks.
    pub(super) controller: Seen<Vec<String>>,
    /// What the agents' account lacks.
    pub(super) agent: Seen<Vec<String>>,
    /// The rights that the current user lacks, and for which command.
    pub(super) own: Seen<Vec<(String, &'static str)>>,
}
