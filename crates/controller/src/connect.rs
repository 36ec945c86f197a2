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
    /// The file that was named is no kubeconfig. The parser's own words quote lines, which may hold tokens and keys.
    #[error("cannot use the kubeconfig {}: it is not valid YAML, or has another shape, at line {line}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where the parser stopped, 0 if it does not say.
        line: u64,
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
    let unusable = |source| match source {
        KubeconfigError::Parse(error) => ConnectError::Unreadable {
            path: path.to_owned(),
            line: error.location().map_or(0, |place| place.line()),
        },
        source => ConnectError::File {
            path: path.to_owned(),
            source,
        },
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
    async fn no_line_of_a_broken_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, "users:\n- user:\n    token: hunter2\n  bad: [\n").unwrap();
        let Err(error) = connect(Some(&file)).await else {
            panic!("there is a client");
        };
        let told = chain(&error);
        assert!(told.contains("at line") && !told.contains("hunter2"), "{told}");
    }

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
