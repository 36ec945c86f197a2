//! Names that other software and people's scripts rely on. A change here breaks somebody.

/// Group of [`crate::ImagePullJob`], [`crate::ImageListPullJob`] and [`crate::NodeImage`].
pub const KRUISE_GROUP: &str = "apps.kruise.io";

/// Group of [`crate::ImagePrePullJob`].
pub const KUBEEDGE_GROUP: &str = "operations.kubeedge.io";

/// Finalizer that OpenKruise puts on ImagePullJobs. Larder needs none: it is taken off once, and again when the job is
/// deleted. Whoever puts it back in between is left alone.
pub const KRUISE_FINALIZER: &str = "apps.kruise.io/deletion-protection";

/// Finalizer that KubeEdge puts on ImagePrePullJobs; treated as [`KRUISE_FINALIZER`].
pub const KUBEEDGE_FINALIZER: &str = "kubeedge.io/imageprepulljob-controller";

/// Label on a list job's children that holds a hash of the template. OpenKruise's hash cannot be computed outside Go, so
/// it is written for others to see and never read: children are compared by their fields.
pub const TEMPLATE_HASH_LABEL: &str = "controller-revision-hash";

/// A node with this label and [`VIRTUAL_KUBELET_VALUE`] has no runtime to pull with and gets no NodeImage.
pub const NODE_TYPE_LABEL: &str = "type";

/// See [`NODE_TYPE_LABEL`].
pub const VIRTUAL_KUBELET_VALUE: &str = "virtual-kubelet";

/// A NodeImage with this label may exist without a Node. For tests; the value does not matter.
pub const FAKE_NODE_IMAGE_LABEL: &str = "apps.kruise.io/fake-nodeimage";

/// Annotation that stands in the sandbox config of every CRI pull, so that registries and runtimes can tell a
/// pre-download from a pod's own pull. Key and value are OpenKruise's: filters that exist go on working.
pub const PULLING_BY_ANNOTATION: &str = "apps.kruise.io/pulling-image-by";

/// See [`PULLING_BY_ANNOTATION`].
pub const PULLING_BY_VALUE: &str = "kruise-daemon";

/// A KubeEdge edge node carries this label with an empty value; one with any other value is not an edge node.
pub const EDGE_NODE_LABEL: &str = "node-role.kubernetes.io/edge";

/// Label by which KubeEdge tells the node group that a node belongs to.
pub const NODE_GROUP_LABEL: &str = "apps.kubeedge.io/belonging-to";

/// Label on a workload or Namespace whose images are kept on the nodes, with the value `true`; and on the job that does it.
pub const WARM_LABEL: &str = "larder.dev/warm";

/// Taint of a new node on which no pod is scheduled until its images are there.
pub const WARMING_TAINT: &str = "larder.dev/warming";

/// Condition of a Node: whether the images are there that its gating jobs ask for, or are no longer waited for.
pub const IMAGES_READY_CONDITION: &str = "larder.dev/ImagesReady";

/// Namespace of Larder's own objects.
pub const LARDER_NAMESPACE: &str = "larder-system";

/// Namespace in which OpenKruise keeps copied pull secrets.
pub const KRUISE_SECRET_NAMESPACE: &str = "kruise-daemon-config";

/// Namespaces that hand-written NodeImage entries may name secrets from.
pub const HAND_WRITTEN_SECRET_NAMESPACES: [&str; 2] = [LARDER_NAMESPACE, KRUISE_SECRET_NAMESPACE];

/// Namespace into which OpenKruise's chart installs it unless told otherwise.
pub const KRUISE_NAMESPACE: &str = "kruise-system";

/// OpenKruise's DaemonSet, whose pods serve NodeImages.
pub const KRUISE_DAEMON: &str = "kruise-daemon";

/// An agent that serves NodeImages and is not Larder's, as an example in messages.
pub const FOREIGN_AGENT: &str = KRUISE_DAEMON;

/// The software that [`FOREIGN_AGENT`] is part of.
pub const FOREIGN_AGENT_VENDOR: &str = "OpenKruise";

/// OpenKruise's MutatingWebhookConfiguration.
pub const KRUISE_MUTATING_WEBHOOKS: &str = "kruise-mutating-webhook-configuration";

/// OpenKruise's ValidatingWebhookConfiguration.
pub const KRUISE_VALIDATING_WEBHOOKS: &str = "kruise-validating-webhook-configuration";
