//! The way to a cluster, found as kubectl finds it.

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::args::Cluster;
use crate::failure::{Failure, chain};

/// A client, and the namespace to use.
pub(crate) async fn connect(cluster: &Cluster) -> Result<Client, Failure> {
    let options = KubeConfigOptions {
        context: cluster.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut config = match &cluster.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|error| {
                Failure::wrong(format!(
                    "the kubeconfig {} cannot be used: {}",
                    path.display(),
                    chain(&error)
                ))
            })?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(|error| {
                    Failure::wrong(format!(
                        "the kubeconfig {} cannot be used: {}",
                        path.display(),
                        chain(&error)
                    ))
                })?
        }
        None if cluster.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|error| Failure::wrong(format!("the kubeconfig cannot be used: {}", chain(&error))))?,
        None => Config::infer().await.map_err(|_| {
            Failure::wrong("no cluster is configured; give --kubeconfig FILE, or set KUBECONFIG".to_owned())
        })?,
    };
    if let Some(namespace) = &cluster.namespace {
        config.default_namespace.clone_from(namespace);
    }
    Client::try_from(config).map_err(|error| Failure::from_api("connecting", &error))
}
