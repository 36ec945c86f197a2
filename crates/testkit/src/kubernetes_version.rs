//! Which Kubernetes the tests run against, and what that version can do. What a test expects of a version is stated here,
//! by the name of the ability, and nowhere else.

use crate::environment;

/// The version of the API server that control planes of this run have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesVersion {
    text: String,
    minor: u32,
}

impl KubernetesVersion {
    /// The version that `LARDER_TEST_KUBERNETES` names, else the newest one.
    pub fn tested() -> Self {
        Self::of(environment::kubernetes_version())
    }

    fn of(text: String) -> Self {
        let minor = text.split('.').nth(1).and_then(|minor| minor.parse().ok());
        Self {
            // Of a version that nobody can read there is no folder, and the first control plane says so.
            minor: minor.unwrap_or_default(),
            text,
        }
    }

    /// For example `1.36.3`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the policy that binds an agent to its own node can be enforced: ValidatingAdmissionPolicy is
    /// generally available, and the token of a pod names its node.
    pub fn enforces_node_policy(&self) -> bool {
        30 <= self.minor
    }

    /// Whether a token can be bound to a Node without a pod.
    pub fn binds_tokens_to_nodes(&self) -> bool {
        31 <= self.minor
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1.27.4", false, false)]
    #[case("1.30.14", true, false)]
    #[case("1.33.4", true, true)]
    #[case("1.36.3", true, true)]
    fn abilities(#[case] text: &str, #[case] policy: bool, #[case] bound: bool) {
        let version = KubernetesVersion::of(text.to_owned());
        assert_eq!(version.as_str(), text);
        assert_eq!(
            (version.enforces_node_policy(), version.binds_tokens_to_nodes()),
            (policy, bound)
        );
    }
}
