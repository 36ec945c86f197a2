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
    "hostsDir /etc/certs.d is not inside runtime.configDir /etc/containerd"
)]
#[case::no_certificate("extraCA.pem=hello", "does not match pattern")]
#[case::no_number_of_agents(
    "agent.updateStrategy.rollingUpdate.maxUnavailable=foo",
    "'/agent/updateStrategy/rollingUpdate/maxUnavailable': 'foo' does not match"
)]
#[case::no_agent_would_ever_be_replaced(
    "agent.updateStrategy.rollingUpdate.maxUnavailable=0",
    "both 0, so no agent could be replaced"
)]
#[case::one_port_for_two_agents(
    "agent.updateStrategy.rollingUpdate.maxUnavailable=0,agent.updateStrategy.rollingUpdate.maxSurge=1",
    "would compete for a port of the node"
)]
#[case::kubernetes_wants_one_of_them(
    "agent.updateStrategy.rollingUpdate.maxSurge=10%,agent.hostNetwork=false",
    "Kubernetes accepts maxSurge only with maxUnavailable: 0"
)]
#[case::a_flag_of_the_chart(
    "agent.extraArgs={--pin-budget=10}",
    "agent.extraArgs contains --pin-budget, which the chart sets"
)]
#[case::the_controllers_too(
    "controller.extraArgs={--listen=:1}",
    "controller.extraArgs contains --listen, which the chart sets"
)]
#[case::no_account(
    "controller.serviceAccount.create=false",
    "controller.serviceAccount.name must name an existing ServiceAccount"
)]
#[case::one_account_for_both(
    "agent.serviceAccount.name=larder-controller",
    "agents must not have the controller's rights"
)]
#[case::a_label_of_the_chart(
    "commonLabels.app\\.kubernetes\\.io/name=mine",
    "'/commonLabels/app.kubernetes.io~1name': false schema"
)]
#[case::no_digest("agent.image.digest=sha256:12", "'/agent/image/digest': 'sha256:12' does not match")]
#[case::no_such_probe(
    "agent.livenessProbe.path=/x",
    "'/agent/livenessProbe': additional properties 'path' not allowed"
)]
#[case::more_than_all(
    "controller.podDisruptionBudget.maxUnavailable=150%",
    "'150%' does not match pattern"
)]
#[case::no_port("agent.port=70000", "'/agent/port': maximum: got 70,000, want 65,535")]
#[case::no_amount_of_memory(
    "controller.resources.limits.memory=lots",
    "'/controller/resources/limits/memory': 'lots' does not match"
)]
#[case::misspelt_resources("agent.resources.limit.cpu=1", "additional properties 'limit' not allowed")]
#[case::no_duration("monitoring.podMonitor.interval=often", "'often' does not match pattern")]
#[case::no_proxy_of_this_kind(
    "proxy.https=socks5://proxy:1080",
    "'/proxy/https': 'socks5://proxy:1080' does not match"
)]
#[case::no_address("kubeEdge.metaServer=http://", "'http://' does not match pattern")]
#[case::a_secret_without_a_name("imagePullSecrets[0].nam=x", "missing property 'name'")]
#[case::no_such_operator("agent.tolerations[0].operator=Always", "value must be one of 'Exists', 'Equal'")]
#[case::no_tag("image.tag=two words", "'two words' does not match pattern")]
#[case::no_name_of_a_namespace("installation.namespace=Pantry", "'Pantry' does not match pattern")]
#[case::a_term_that_matches_no_node(
    "agent.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields=null",
    "nodeSelectorTerms in the affinity of agents is empty, which matches no node"
)]
#[tokio::test]
async fn refuses(#[case] value: &str, #[case] sentence: &str) {
    let error = complaint(&format!("--set={value}")).await;
    assert!(error.contains(sentence), "{error}");
}

/// What the patterns must let through.
#[rstest]
#[case::agents_by_number("agent.updateStrategy.rollingUpdate.maxUnavailable=3")]
#[case::agents_by_share("agent.updateStrategy.rollingUpdate.maxUnavailable=100%")]
#[case::fraction_of_a_processor("agent.resources.limits.cpu=0.5")]
#[case::large_numbers("controller.resources.limits.memory=1.5Gi")]
#[case::no_limit("agent.resources.limits.cpu=null")]
#[case::durations("monitoring.serviceMonitor.interval=1m30s")]
#[case::proxy_with_a_password("proxy.http=http://me:secret@proxy.example:3128/")]
#[case::proxy_by_address("proxy.https=10.0.0.1:3128")]
#[case::digest("agent.image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123")]
#[case::additional_agents_first(
    "agent.updateStrategy.rollingUpdate.maxUnavailable=0,agent.updateStrategy.rollingUpdate.maxSurge=1,agent.hostNetwork=false"
)]
#[case::registry_with_a_port("image.registry=registry.example.com:5000/larder")]
#[case::toleration("controller.tolerations[0].key=dedicated,controller.tolerations[0].effect=NoSchedule")]
#[tokio::test]
async fn accepts(#[case] value: &str) {
    let arguments = ["--kube-version=1.36.0".to_owned(), format!("--set={value}")];
    chart::template(&arguments).await.unwrap();
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
