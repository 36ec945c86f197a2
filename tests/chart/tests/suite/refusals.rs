//! Values that cannot be what was meant, and what is said about them.

use rstest::rstest;

use crate::chart;

/// What is said about these values.
async fn complaint(values: &str) -> String {
    let arguments = ["--kube-version=1.36.0", values];
    chart::template(&arguments.map(str::to_owned)).await.unwrap_err()
}

#[rstest]
#[case::unknown_name("foo=1", "additional properties 'foo' not allowed")]
#[case::misspelt_below("agent.runtime.sokcet=/x", "additional properties 'sokcet' not allowed")]
#[case::a_value_of_kruise_that_means_nothing_here("manager.replicas=3", "additional properties 'manager' not allowed")]
#[case::wrong_type("controller.replicas=two", "got string, want integer")]
#[case::relative_path("agent.stateDir=var/lib", "does not match pattern")]
#[case::not_one_of("policy=sometimes", "value must be one of 'auto', 'always', 'never'")]
#[case::too_much("agent.pinBudget=101", "maximum: got 101, want 100")]
#[case::gate_without_a_value(
    "featureGates=ImagePullJobGate",
    "`ImagePullJobGate` in featureGates is not of the form"
)]
#[case::plugins_without_their_folder(
    "daemon.credentialProvider.enable=true",
    "needs daemon.credentialProvider.hostPath"
)]
#[case::settings_that_are_not_mounted(
    "agent.runtime.hostsDir=/etc/certs.d",
    "hostsDir /etc/certs.d is not below runtime.configDir /etc/containerd"
)]
#[case::no_certificate("extraCA.pem=hello", "does not match pattern")]
#[tokio::test]
async fn refuses(#[case] value: &str, #[case] sentence: &str) {
    let error = complaint(&format!("--set={value}")).await;
    assert!(error.contains(sentence), "{error}");
}

#[tokio::test]
async fn plugins_without_configuration() {
    let values = "--set=daemon.credentialProvider.enable=true,daemon.credentialProvider.hostPath=/plugins";
    let error = complaint(values).await;
    assert!(error.contains("needs daemon.credentialProvider.configmap"), "{error}");
}

#[tokio::test]
async fn certificates_from_two_places() {
    let values = "--set-string=extraCA.pem=-----BEGIN CERTIFICATE-----,extraCA.configMap=mine";
    let error = complaint(values).await;
    assert!(
        error.contains("give extraCA.pem or extraCA.configMap, not both"),
        "{error}"
    );
}
