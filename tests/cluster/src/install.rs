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

    /// The same where it may be refused: all that Helm complains about.
    pub async fn try_install(&self, values: &[&str]) -> Result<String, String> {
        let arguments = with_chart("install", &["--create-namespace", "--wait"], values);
        self.helm(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            .await
    }

    /// `helm upgrade`, and waits until all pods are ready.
    pub async fn upgrade(&self, values: &[&str]) {
        self.helm_with_chart("upgrade", &["--wait"], values).await;
    }

    /// The same without waiting for the pods.
    pub async fn begin_upgrade(&self, values: &[&str]) {
        self.helm_with_chart("upgrade", &[], values).await;
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

    /// What tools that render without a cluster do first: apply the hook that brings the CRDs, with its rights.
    pub async fn apply_hook_that_brings_crds(&self) {
        let parts = [
            "templates/generated/installer.yaml",
            "templates/hooks/install-crds.yaml",
        ];
        let parts: Vec<&str> = parts.iter().flat_map(|part| ["--show-only", part]).collect();
        let arguments = with_chart("template", &[&parts[..], &["--kube-version=1.36.0"]].concat(), &[]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.apply_text(&self.helm(&arguments).await.unwrap()).await;
    }

    /// helm with all permissions: all that it prints, if it succeeds, and if it does not.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        let output = helm(self.plane.kubeconfig(), arguments).await.unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    async fn helm_with_chart(&self, what: &str, more: &[&str], values: &[&str]) {
        let arguments = with_chart(what, more, values);
        if let Err(error) = self
            .helm(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            .await
        {
            panic!("helm {what}: {error}\n{}", self.logs().await);
        }
    }
}

fn with_chart(what: &str, more: &[&str], values: &[&str]) -> Vec<String> {
    let chart = root().join("deploy/chart").display().to_string();
    let mut arguments = [what, RELEASE, &chart, "--namespace", NAMESPACE]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(more.iter().map(|&one| one.to_owned()));
    arguments.extend(values.iter().flat_map(|&value| ["--set".to_owned(), value.to_owned()]));
    arguments
}
