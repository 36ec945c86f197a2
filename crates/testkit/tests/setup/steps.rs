//! Each step, and what it leaves in the cache.

use std::collections::BTreeMap;

/// Every step of `tests/servers/setup` with its programs, and for each what the stand-ins write into it.
const STEPS: &[(&str, &[(&str, &str)])] = &[
    ("packages", &[]),
    (
        "kubernetes-client-debian",
        &[("servers/kubernetes-client-debian/kubectl", "Debian's kubernetes-client")],
    ),
    (
        "containerd-debian",
        &[
            ("servers/containerd-debian/containerd", "Debian's containerd"),
            (
                "servers/containerd-debian/containerd-shim-runc-v2",
                "Debian's containerd",
            ),
            ("servers/containerd-debian/ctr", "Debian's containerd"),
        ],
    ),
    ("etcd-debian", &[("servers/etcd-debian/etcd", "Debian's etcd-server")]),
    ("runc-debian", &[("servers/runc-debian/runc", "Debian's runc")]),
    (
        "cni-debian",
        &[
            ("servers/cni-debian/bridge", "Debian's containernetworking-plugins"),
            ("servers/cni-debian/host-local", "Debian's containernetworking-plugins"),
            ("servers/cni-debian/loopback", "Debian's containernetworking-plugins"),
        ],
    ),
    (
        "docker-registry-debian",
        &[(
            "servers/docker-registry-debian/docker-registry",
            "Debian's docker-registry",
        )],
    ),
    (
        "docker-debian",
        &[("servers/docker-debian/dockerd", "Debian's docker.io")],
    ),
    ("conmon-debian", &[("servers/conmon-debian/conmon", "Debian's conmon")]),
    (
        "kubernetes",
        &[
            (
                "servers/kubernetes-1.36.3/kube-apiserver",
                "k8s.io/kubernetes/cmd/kube-apiserver 1.36.3",
            ),
            (
                "servers/kubernetes-1.36.3/kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager 1.36.3",
            ),
            (
                "servers/kubernetes-1.36.3/kube-scheduler",
                "k8s.io/kubernetes/cmd/kube-scheduler 1.36.3",
            ),
            (
                "servers/kubernetes-1.36.3/kubectl",
                "k8s.io/kubernetes/cmd/kubectl 1.36.3",
            ),
            (
                "servers/kubernetes-1.36.3/kubelet",
                "k8s.io/kubernetes/cmd/kubelet 1.36.3",
            ),
        ],
    ),
    (
        "kubernetes-1.27.4",
        &[(
            "servers/kubernetes-1.27.4/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver 1.27.4",
        )],
    ),
    (
        "containerd",
        &[
            (
                "servers/containerd-2.4.2/containerd",
                "github.com/containerd/containerd/v2/cmd/containerd@v2.4.2",
            ),
            (
                "servers/containerd-2.4.2/containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.4.2",
            ),
            (
                "servers/containerd-2.4.2/ctr",
                "github.com/containerd/containerd/v2/cmd/ctr@v2.4.2",
            ),
        ],
    ),
    (
        "containerd-1.7",
        &[
            (
                "servers/containerd-1.7.28/containerd",
                "github.com/containerd/containerd@v1.7.28 ./cmd/containerd",
            ),
            (
                "servers/containerd-1.7.28/ctr",
                "github.com/containerd/containerd@v1.7.28 ./cmd/ctr",
            ),
        ],
    ),
    (
        "cri-o",
        &[("servers/cri-o-1.34.0/crio", "github.com/cri-o/cri-o@v1.34.0 ./cmd/crio")],
    ),
    (
        "cri-dockerd",
        &[(
            "servers/cri-dockerd-0.3.14/cri-dockerd",
            "github.com/Mirantis/cri-dockerd@v0.3.14 .",
        )],
    ),
    (
        "helm",
        &[("servers/helm-3.22.0/helm", "helm.sh/helm/v3/cmd/helm@v3.22.0")],
    ),
    (
        "go-client",
        &[(
            "servers/go-client-1/go-client",
            "module larder.invalid/tests/go-client .",
        )],
    ),
    (
        "pause",
        &[("servers/pause-1/pause", "module larder.invalid/tests/servers/pause .")],
    ),
    (
        "promtool",
        &[(
            "servers/prometheus-0.315.0/promtool",
            "github.com/prometheus/prometheus/cmd/promtool",
        )],
    ),
    ("cargo-nextest", &[("tools/bin/cargo-nextest", "cargo-nextest 0.9.151")]),
    ("cargo-deny", &[("tools/bin/cargo-deny", "cargo-deny 0.20.2")]),
];

/// Steps that run only when they are named.
const OTHER_STEPS: &[(&str, &[(&str, &str)])] = &[
    (
        "kubernetes-1.30.14",
        &[(
            "servers/kubernetes-1.30.14/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver 1.30.14",
        )],
    ),
    (
        "kubernetes-1.33.4",
        &[(
            "servers/kubernetes-1.33.4/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver 1.33.4",
        )],
    ),
];

/// The names of the steps that run without being named, in the order of the script.
pub(crate) fn names() -> Vec<&'static str> {
    STEPS.iter().map(|(name, _)| *name).collect()
}

/// The names of all steps.
pub(crate) fn all_names() -> Vec<&'static str> {
    STEPS.iter().chain(OTHER_STEPS).map(|(name, _)| *name).collect()
}

/// What is in the cache after these steps.
pub(crate) fn programs_of(steps: &[&str]) -> BTreeMap<String, String> {
    let named = STEPS.iter().chain(OTHER_STEPS).filter(|(name, _)| steps.contains(name));
    named
        .flat_map(|(_, programs)| programs.iter())
        .map(|(path, source)| ((*path).to_owned(), (*source).to_owned()))
        .collect()
}
