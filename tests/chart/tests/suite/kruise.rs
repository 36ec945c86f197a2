//! The values that OpenKruise's guides tell people to set.

use larder_testkit::{ControlPlane, Kubectl, Options, Scratch, helm, kubectl};
use rstest::rstest;
use serde_json::{Value, json};

use crate::chart::{NAMESPACE, RELEASE, arguments_of, folder, objects, the};

/// Whether the controller may read Secrets.
fn reads_secrets(objects: &[Value]) -> bool {
    let role = the(objects, "ClusterRole", "larder-controller");
    let rules = role["rules"].as_array().unwrap();
    rules
        .iter()
        .any(|rule| rule["resources"].as_array().unwrap().contains(&json!("secrets")))
}

#[rstest]
#[case::not_given("", true)]
#[case::as_the_guide_has_it("ImagePullJobGate=true", true)]
#[case::off("ImagePullJobGate=false", false)]
#[case::the_last_word_counts("ImagePullJobGate=false\\,ImagePullJobGate=True", true)]
#[case::among_others("KruiseDaemon=true\\,ImagePullJobGate=false", false)]
#[tokio::test]
async fn the_gate_decides_about_secrets(#[case] gates: &str, #[case] on: bool) {
    let objects = objects("1.36.0", &[format!("--set=featureGates={gates}")]).await;
    assert_eq!(reads_secrets(&objects), on);
    let controller = the(&objects, "Deployment", "larder-controller");
    let passed_on = format!("--feature-gates={}", gates.replace('\\', ""));
    assert_eq!(
        arguments_of(controller).contains(&passed_on.as_str()),
        !gates.is_empty()
    );
}

#[tokio::test]
async fn the_guides_command_for_credential_plugins() {
    let arguments = [
        "--set=installation.createNamespace=false",
        "--set=daemon.credentialProvider.enable=true",
        "--set=daemon.credentialProvider.hostPath=/etc/eks/image-credential-provider",
        "--set=daemon.credentialProvider.configmap=credential-provider-config",
        "--set=daemon.credentialProvider.awsCredentialsDir=/root/.aws",
    ];
    let objects = objects("1.36.0", &arguments.map(str::to_owned)).await;
    let agents = the(&objects, "DaemonSet", "larder-agent");
    let arguments = arguments_of(agents);
    assert!(arguments.contains(&"--image-credential-provider-bin-dir=/etc/eks/image-credential-provider"));
    assert!(
        arguments.contains(
            &"--image-credential-provider-config=/etc/larder/credential-provider/CredentialProviderPlugin.yaml"
        )
    );
    let pod = &agents["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = |name: &str| volumes.iter().find(|volume| volume["name"] == name).unwrap();
    assert_eq!(
        volume("provider-plugins")["hostPath"]["path"],
        "/etc/eks/image-credential-provider"
    );
    assert_eq!(
        volume("provider-config")["configMap"]["name"],
        "credential-provider-config"
    );
    assert_eq!(volume("aws-credentials")["hostPath"]["path"], "/root/.aws");
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    for name in ["provider-plugins", "provider-config", "aws-credentials"] {
        let mount = mounts.iter().find(|mount| mount["name"] == name).unwrap();
        assert_eq!(mount["readOnly"], true, "{name}");
    }
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(
        env.contains(&json!({ "name": "HOME", "value": "/root" })),
        "plugins look below $HOME"
    );
}

#[tokio::test]
async fn the_kubelets_own_configuration_serves_as_well() {
    let arguments = [
        "--set=daemon.credentialProvider.enable=true",
        "--set=daemon.credentialProvider.hostPath=/opt/plugins",
        "--set=daemon.credentialProvider.configFile=/etc/kubernetes/providers.yaml",
    ];
    let objects = objects("1.36.0", &arguments.map(str::to_owned)).await;
    let agents = the(&objects, "DaemonSet", "larder-agent");
    assert!(arguments_of(agents).contains(&"--image-credential-provider-config=/etc/kubernetes/providers.yaml"));
    let volumes = agents["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(volumes.contains(r#""path":"/etc/kubernetes""#), "{volumes}");
}

#[tokio::test]
async fn another_namespace_than_the_releases() {
    let arguments = [
        "--set=installation.namespace=elsewhere",
        "--set=installation.createNamespace=true",
    ];
    let objects = objects("1.36.0", &arguments.map(str::to_owned)).await;
    the(&objects, "Namespace", "elsewhere");
    for object in &objects {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_null() || namespace == "elsewhere", "{object}");
    }
    let policy = the(&objects, "ValidatingAdmissionPolicy", "larder-agent-own-node");
    assert!(
        policy
            .to_string()
            .contains("system:serviceaccount:elsewhere:larder-controller")
    );
    assert!(!serde_json::to_string(&objects).unwrap().contains("larder-system"));
}

/// Helm deletes what a hook made before it runs the hook again, unless told otherwise; of a namespace it would delete all.
#[rstest]
#[case::not_there_yet("elsewhere", true)]
#[case::of_the_release(NAMESPACE, false)]
#[case::there_already("default", false)]
#[tokio::test]
async fn a_namespace_that_is_there_stays_as_it_is(#[case] name: &str, #[case] made: bool) {
    let plane = ControlPlane::shared(&larder_api::crds()).await.unwrap();
    let chart = folder();
    let namespace = format!("--namespace={NAMESPACE}");
    let wanted = format!("--set=installation.namespace={name}");
    let arguments = [
        "install",
        RELEASE,
        chart.to_str().unwrap(),
        &namespace,
        "--create-namespace",
        "--dry-run=server",
        "--set=installation.createNamespace=true",
        &wanted,
    ];
    let output = helm(plane.kubeconfig(), arguments).await.unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let said = String::from_utf8(output.stdout).unwrap();
    let rendered = said.split("\n---\n").find(|one| one.contains("kind: Namespace\n"));
    assert_eq!(rendered.is_some(), made, "{said}");
    if let Some(rendered) = rendered {
        assert!(
            rendered.contains("helm.sh/hook-delete-policy: hook-failed"),
            "{rendered}"
        );
    }
}

#[tokio::test]
async fn warnings_are_in_the_notes() {
    let plane = ControlPlane::shared(&larder_api::crds()).await.unwrap();
    let chart = folder();
    let namespace = format!("--namespace={NAMESPACE}");
    let arguments = [
        "install",
        RELEASE,
        chart.to_str().unwrap(),
        &namespace,
        "--create-namespace",
        "--dry-run=server",
        "--set=featureGates=KruiseDaemon=true\\,ImagePullJobGate=false",
        "--set=installation.roleListGroups={*}",
    ];
    let output = helm(plane.kubeconfig(), arguments).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    for sentence in [
        "WARNING: the feature gate KruiseDaemon is unknown and ignored.",
        "WARNING: the feature gate ImagePullJobGate is off: no job is processed.",
        "WARNING: installation.roleListGroups is ignored",
    ] {
        assert!(said.contains(sentence), "{sentence}\n{complaint}");
    }
    assert!(!said.contains("WARNING: the policy"), "this cluster has it");
}

/// What Helm says to an install into this cluster; nothing is changed.
async fn install(plane: &ControlPlane) -> Result<(), String> {
    let chart = folder();
    let namespace = format!("--namespace={NAMESPACE}");
    let arguments = [
        "install",
        RELEASE,
        chart.to_str().unwrap(),
        &namespace,
        "--create-namespace",
        "--dry-run=server",
    ];
    let output = helm(plane.kubeconfig(), arguments).await.unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(complaint)
    }
}

async fn must(plane: &ControlPlane, arguments: &[&str]) {
    let output = kubectl(Kubectl::Current, plane.kubeconfig(), arguments).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn apply(plane: &ControlPlane, object: &Value) {
    let scratch = Scratch::create("kruise").unwrap();
    let file = scratch.write("object.json", object.to_string()).unwrap();
    must(plane, &["apply", "-f", file.to_str().unwrap()]).await;
}

fn webhooks(resource: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": larder_api::names::KRUISE_VALIDATING_WEBHOOKS },
        "webhooks": [{
            "name": "some.kb.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "rules": [{ "apiGroups": ["apps.kruise.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource] }],
        }],
    })
}

#[tokio::test]
async fn beside_an_openkruise_that_serves_the_same_kinds_an_install_is_refused() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    install(&plane).await.unwrap();

    must(&plane, &["create", "namespace", larder_api::names::KRUISE_NAMESPACE]).await;
    let labels = json!({ "control-plane": "daemon" });
    let daemon = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": larder_api::names::KRUISE_DAEMON, "namespace": larder_api::names::KRUISE_NAMESPACE },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "daemon", "image": "kruise.invalid/daemon:1" }] },
            },
        },
    });
    apply(&plane, &daemon).await;
    install(&plane).await.unwrap();
    let running =
        r#"{"status":{"desiredNumberScheduled":3,"currentNumberScheduled":3,"numberMisscheduled":0,"numberReady":3}}"#;
    let daemon = ["daemonset", "kruise-daemon", "-n", "kruise-system"];
    let patch = ["patch", "--subresource=status", "--type=merge", "-p", running];
    must(&plane, &[&patch[..], &daemon].concat()).await;
    let refusal = install(&plane).await.unwrap_err();
    assert!(
        refusal.contains("its DaemonSet kruise-system/kruise-daemon runs on 3 nodes. Turn it off with"),
        "{refusal}"
    );
    must(&plane, &[&["delete"][..], &daemon].concat()).await;

    apply(&plane, &webhooks("imagepulljobs")).await;
    let refusal = install(&plane).await.unwrap_err();
    assert!(
        refusal
            .contains("OpenKruise serves imagepulljobs in this cluster: its kruise-validating-webhook-configuration"),
        "{refusal}"
    );
    // OpenKruise without these kinds is no rival.
    apply(&plane, &webhooks("clonesets")).await;
    install(&plane).await.unwrap();
}
