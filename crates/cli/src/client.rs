//! The way to a cluster, found as kubectl finds it.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::args::Cluster;
use crate::failure::{Failure, chain};

/// A person waits for the answer.
const CONNECT: Duration = Duration::from_secs(10);

/// A client with the namespace to use.
pub(crate) async fn connect(cluster: &Cluster) -> Result<Client, Failure> {
    let mut config = config(cluster).await?;
    config.connect_timeout = Some(CONNECT);
    // Whoever waits for long tries again by itself; whoever asks once is told at once.
    config.default_retry = false;
    if let Some(namespace) = &cluster.namespace {
        config.default_namespace.clone_from(namespace);
    }
    Client::try_from(config)
        .map_err(|error| Failure::wrong(format!("the kubeconfig cannot be used: {}", chain(&error))))
}

async fn config(cluster: &Cluster) -> Result<Config, Failure> {
    let options = KubeConfigOptions {
        context: cluster.context.clone(),
        ..KubeConfigOptions::default()
    };
    let unusable = |what: String| move |error| Failure::wrong(format!("{what} cannot be used: {}", chain(&error)));
    let (shown, kubeconfig) = if let Some(path) = &cluster.kubeconfig {
        let shown = format!("the kubeconfig {}", path.display());
        let read = Kubeconfig::read_from(path).map_err(unusable(shown.clone()))?;
        (shown, Some(read))
    } else {
        let shown = "the kubeconfig that KUBECONFIG names".to_owned();
        let read = Kubeconfig::from_env().map_err(unusable(shown.clone()))?;
        (shown, read)
    };
    match kubeconfig {
        Some(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(unusable(shown)),
        None if cluster.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(unusable("the kubeconfig ~/.kube/config".to_owned())),
        None => Config::infer().await.map_err(|_| {
            Failure::wrong("no cluster is configured; give --kubeconfig FILE, or set KUBECONFIG, or try: larder up")
        }),
    }
}
