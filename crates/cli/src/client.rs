//! The way to a cluster, found as kubectl finds it.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::args::Cluster;
use crate::failure::{Failure, chain};

/// Short, because the command is interactive.
const CONNECT: Duration = Duration::from_secs(10);

/// A client with the namespace to use.
pub(crate) async fn connect(cluster: &Cluster) -> Result<Client, Failure> {
    let mut config = config(cluster).await?;
    config.connect_timeout = Some(CONNECT);
    // Watches have retries of their own; a single request reports its failure at once.
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
    let (shown, kubeconfig) = match (kubeconfig, &cluster.context) {
        (None, Some(_)) => {
            let shown = "the kubeconfig ~/.kube/config".to_owned();
            let read = Kubeconfig::read().map_err(unusable(shown.clone()))?;
            (shown, Some(read))
        }
        (kubeconfig, _) => (shown, kubeconfig),
    };
    match kubeconfig {
        Some(kubeconfig) => {
            has_context(&shown, &kubeconfig, cluster.context.as_deref())?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(unusable(shown))
        }
        None => Config::infer().await.map_err(|_| {
            Failure::wrong("no cluster is configured; give --kubeconfig FILE, or set KUBECONFIG, or try: larder up")
        }),
    }
}

/// A context that is asked for has to be there; which there are is said.
fn has_context(shown: &str, kubeconfig: &Kubeconfig, wanted: Option<&str>) -> Result<(), Failure> {
    let there: Vec<&str> = kubeconfig
        .contexts
        .iter()
        .map(|context| context.name.as_str())
        .collect();
    match wanted {
        Some(wanted) if there.is_empty() => Err(Failure::wrong(format!(
            "{shown} has no context {wanted:?}; it has none at all"
        ))),
        Some(wanted) if !there.contains(&wanted) => Err(Failure::wrong(format!(
            "{shown} has no context {wanted:?}; there are: {}",
            there.join(", ")
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::there(&["home", "work"], Some("work"), None)]
    #[case::not_asked_for(&[], None, None)]
    #[case::typed_wrong(&["home", "work"], Some("nope"), Some("FILE has no context \"nope\"; there are: home, work"))]
    #[case::empty(&[], Some("nope"), Some("FILE has no context \"nope\"; it has none at all"))]
    fn contexts(#[case] names: &[&str], #[case] wanted: Option<&str>, #[case] says: Option<&str>) {
        let named = |name: &&str| serde_json::json!({"name": name, "context": {"cluster": "c", "user": "u"}});
        let contexts: Vec<serde_json::Value> = names.iter().map(named).collect();
        let kubeconfig = serde_json::from_value(serde_json::json!({ "contexts": contexts })).unwrap();
        let said = has_context("FILE", &kubeconfig, wanted).err();
        assert_eq!(said.as_ref().map(Failure::parts), says.map(|says| (2, Some(says))));
    }
}
