//! Tests of `deploy/chart` and `deploy/manifests`, with a real helm, kubectl and kube-apiserver; see `tests/suite`.
