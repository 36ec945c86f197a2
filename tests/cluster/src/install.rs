//! Helm, as an operator types it.

use larder_testkit::helm;

use crate::{Cluster, root};

/// Where Larder is installed.
pub const NAMESPACE: &str = "larder-system";

/// What the installation is called.
pub const RELEASE: &str = "larder";

impl Cluster {
    /// `helm install`, with the chart's own values but for these, and waits until all pods are ready.
    pub async fn install(&self, values: &[&str]) {
        self.helm_with_chart("install", &["--create-namespace", "--wait"], values)
            .await;
    }

    /// The same without waiting for the pods.
    pub async fn begin_install(&self, values: &[&str]) {
        self.helm_with_chart("install", &["--create-namespace"], values).await;
    }

    /// `helm upgrade`, the same way.
    pub async fn upgrade(&self, values: &[&str]) {
        self.helm_with_chart("upgrade", &["--wait"], values).await;
    }

    /// `helm uninstall`.
    pub async fn uninstall(&self) {
        let done = self
            .helm(&["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"])
            .await;
        if let Err(error) = done {
            panic!("{error}\n{}", self.logs().await);
        }
    }

    /// helm with all permissions; its output if it succeeds.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        let output = helm(self.plane.kubeconfig(), arguments).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    async fn helm_with_chart(&self, what: &str, more: &[&str], values: &[&str]) {
        let chart = root().join("deploy/chart");
        let mut arguments = vec![what, RELEASE, chart.to_str().unwrap(), "--namespace", NAMESPACE];
        arguments.extend(more);
        arguments.extend(values.iter().flat_map(|value| ["--set", value]));
        if let Err(error) = self.helm(&arguments).await {
            panic!("helm {what}: {error}\n{}", self.logs().await);
        }
    }
}
