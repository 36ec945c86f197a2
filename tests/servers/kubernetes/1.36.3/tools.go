//go:build tools

// Package servers pins the Kubernetes programs that the tests run. Nothing here is compiled into Larder;
// `tests/servers/setup` builds the commands named below into the user's cache directory.
package servers

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
