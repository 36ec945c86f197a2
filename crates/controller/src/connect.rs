//! How the controller finds its cluster: the file it is given, else the account of the Pod it runs in, else KUBECONFIG.

use std::path::{Path, PathBuf};

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The file that was named does not help.
    #[error("cannot use the kubeconfig {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// Nothing was named and nothing was found.
    #[error("no cluster to talk to: give --kubeconfig FILE, run in a Pod ({in_cluster}) or set KUBECONFIG")]
    Nowhere {
        /// Why this is no Pod.
        in_cluster: InClusterError,
        /// Why there is no kubeconfig.
        source: KubeconfigError,
    },
    /// The configuration is there, but no client can be made of it.
    #[error("cannot make a client for {server}")]
    Client {
        /// The API server.
        server: String,
        /// What is wrong.
        source: kube::Error,
    },
}

/// A client for the cluster. Nothing is sent yet.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let config = match kubeconfig {
        Some(path) => from_file(path).await?,
        None => match Config::incluster() {
            Ok(config) => config,
            Err(in_cluster) => Config::from_kubeconfig(&KubeConfigOptions::default())
                .await
                .map_err(|source| ConnectError::Nowhere { in_cluster, source })?,
        },
    };
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| ConnectError::Client { server, source })
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable = |source| ConnectError::File {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_chain::chain;

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named() {
        let Err(error) = connect(Some(Path::new("/nowhere/kubeconfig"))).await else {
            panic!("there is a client");
        };
        assert!(
            chain(&error).starts_with("cannot use the kubeconfig /nowhere/kubeconfig: "),
            "{}",
            chain(&error)
        );
    }
}
