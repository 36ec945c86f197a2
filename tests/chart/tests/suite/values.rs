//! What single values do to the objects.

use rstest::rstest;
use serde_json::{Value, json};

use crate::chart::{arguments_of, has, objects, set, the};

async fn with(values: &[&str]) -> Vec<Value> {
    let arguments: Vec<String> = values.iter().map(|value| format!("--set={value}")).collect();
    objects("1.36.0", &arguments).await
}

fn pod(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]
}

fn container(object: &Value) -> &Value {
    &pod(object)["containers"][0]
}

const DIGEST: &str = "sha256:0123456789012345678901234567890123456789012345678901234567890123";

#[rstest]
#[case::default(&[], "larder-agent:0.1.0")]
#[case::registry(&["image.registry=r.example.com/larder/"], "r.example.com/larder/larder-agent:0.1.0")]
#[case::of_one_component(&["image.registry=a", "agent.image.registry=b", "agent.image.repository=c/d"], "b/c/d:0.1.0")]
#[case::tag(&["image.tag=v1", "agent.image.tag=v2"], "larder-agent:v2")]
#[tokio::test]
async fn an_image_has_registry_repository_and_tag(#[case] values: &[&str], #[case] image: &str) {
    let objects = with(values).await;
    assert_eq!(container(the(&objects, "DaemonSet", "larder-agent"))["image"], image);
}

#[tokio::test]
async fn a_digest_pins_the_image_of_hooks_too() {
    let objects = with(&[&format!("controller.image.digest={DIGEST}")]).await;
    let image = format!("larder-controller:0.1.0@{DIGEST}");
    assert_eq!(
        container(the(&objects, "Deployment", "larder-controller"))["image"],
        image
    );
    for job in ["larder-install-crds", "larder-uninstall"] {
        assert_eq!(container(the(&objects, "Job", job))["image"], image);
    }
}

/// Other programs find the Lease and the policy by their names.
#[rstest]
#[case::name(&["nameOverride=pantry"], "pantry", "pantry")]
#[case::fullname(&["fullnameOverride=cellar"], "larder", "cellar")]
#[case::both(&["nameOverride=pantry", "fullnameOverride=cellar"], "pantry", "cellar")]
#[tokio::test]
async fn names_change_together(#[case] values: &[&str], #[case] name: &str, #[case] prefix: &str) {
    let objects = with(values).await;
    for object in &objects {
        let (kind, found) = (&object["kind"], object["metadata"]["name"].as_str().unwrap());
        assert_eq!(
            object["metadata"]["labels"]["app.kubernetes.io/name"], name,
            "{kind} {found}"
        );
        assert_eq!(
            object["metadata"]["labels"]["app.kubernetes.io/part-of"], "larder",
            "{kind} {found}"
        );
        let fixed = found == "larder-agent-own-node";
        assert!(fixed || found.starts_with(prefix), "{kind} {found}");
    }
    let of = |part: &str| format!("{prefix}-{part}");
    let controller = the(&objects, "Deployment", &of("controller"));
    assert_eq!(pod(controller)["serviceAccountName"], of("controller"));
    let selected = &controller["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"];
    assert_eq!(*selected, name);
    let clean_up = the(&objects, "Job", &of("uninstall"));
    let deployment = format!("--deployment={prefix}-controller");
    assert!(arguments_of(clean_up).contains(&deployment.as_str()));
    let rules = the(&objects, "Role", &of("uninstaller"))["rules"].as_array().unwrap();
    let names = |resource: &str, verb: &str| -> Value {
        let rule = rules.iter().find(|rule| {
            rule["resources"] == json!([resource]) && rule["verbs"].as_array().unwrap().contains(&json!(verb))
        });
        rule.unwrap()["resourceNames"].clone()
    };
    assert_eq!(names("deployments/scale", "patch"), json!([of("controller")]));
    assert_eq!(names("leases", "delete"), json!(["larder-controller"]));
    let policy = the(&objects, "ValidatingAdmissionPolicy", "larder-agent-own-node");
    let account = format!("system:serviceaccount:larder-system:{prefix}-controller'");
    assert!(policy.to_string().contains(&account), "{policy}");
}

/// Rights follow the accounts, whoever creates them.
#[rstest]
#[case::created(true)]
#[case::there_already(false)]
#[tokio::test]
async fn service_accounts_have_the_names_that_are_given(#[case] created: bool) {
    let create = [
        format!("controller.serviceAccount.create={created}"),
        format!("agent.serviceAccount.create={created}"),
    ];
    let names = [
        "controller.serviceAccount.name=keeper",
        "agent.serviceAccount.name=hand",
    ];
    let annotations = [
        "serviceAccount.annotations.both=yes",
        "serviceAccount.annotations.role=nobody",
        "controller.serviceAccount.annotations.role=one",
    ];
    let values: Vec<&str> = create
        .iter()
        .map(String::as_str)
        .chain(names)
        .chain(annotations)
        .collect();
    let objects = with(&values).await;
    let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount");
    let accounts: Vec<&str> = accounts.map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(accounts.contains(&"keeper"), created, "{accounts:?}");
    assert_eq!(accounts.contains(&"hand"), created, "{accounts:?}");
    assert!(!accounts.contains(&"larder-controller") && !accounts.contains(&"larder-agent"));
    for (part, account) in [("controller", "keeper"), ("agent", "hand")] {
        let binding = the(&objects, "ClusterRoleBinding", &format!("larder-{part}"));
        assert_eq!(binding["subjects"][0]["name"], account);
        assert_eq!(binding["roleRef"]["name"], format!("larder-{part}"));
        let flow = if part == "agent" {
            "larder-agents"
        } else {
            "larder-controller"
        };
        let subject = &the(&objects, "FlowSchema", flow)["spec"]["rules"][0]["subjects"][0];
        assert_eq!(subject["serviceAccount"]["name"], account);
    }
    assert_eq!(
        the(&objects, "Pod", "larder-test")["spec"]["serviceAccountName"],
        "keeper"
    );
    let policy = the(&objects, "ValidatingAdmissionPolicy", "larder-agent-own-node");
    assert!(
        policy
            .to_string()
            .contains("system:serviceaccount:larder-system:keeper'")
    );
    if created {
        let annotations = |name| &the(&objects, "ServiceAccount", name)["metadata"]["annotations"];
        assert_eq!(*annotations("keeper"), json!({ "both": "yes", "role": "one" }));
        assert_eq!(*annotations("hand"), json!({ "both": "yes", "role": "nobody" }));
    }
}

#[tokio::test]
async fn common_labels_and_annotations_are_on_every_object() {
    let values = [
        "commonLabels.team=images",
        "commonAnnotations.contact=me",
        "controller.podLabels.team=other",
        "installation.createNamespace=true",
        "monitoring.podMonitor.enabled=true",
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
        "networkPolicy.enabled=true",
        "kubeEdge.enabled=true",
        "extraCA.pem=-----BEGIN CERTIFICATE-----",
    ];
    let objects = with(&values).await;
    assert!(objects.len() > 45, "{}", objects.len());
    for object in &objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        assert_eq!(object["metadata"]["labels"]["team"], "images", "{name}");
        assert_eq!(object["metadata"]["annotations"]["contact"], "me", "{name}");
    }
    let labels = |object: &Value| object["spec"]["template"]["metadata"]["labels"]["team"].clone();
    assert_eq!(labels(the(&objects, "DaemonSet", "larder-agent")), "images");
    assert_eq!(labels(the(&objects, "Deployment", "larder-controller")), "other");
    // Hooks stay hooks.
    let job = the(&objects, "Job", "larder-install-crds");
    assert_eq!(
        job["metadata"]["annotations"]["helm.sh/hook"],
        "pre-install,pre-upgrade"
    );
    let role = the(&objects, "ClusterRole", "larder-uninstaller");
    assert_eq!(role["metadata"]["annotations"]["helm.sh/hook"], "pre-delete");
    let selector = &the(&objects, "DaemonSet", "larder-agent")["spec"]["selector"]["matchLabels"];
    assert_eq!(selector.get("team"), None, "a selector cannot be changed later");
}

#[tokio::test]
async fn probes_and_contexts_are_merged_with_the_defaults_and_null_removes() {
    let objects = with(&[
        "agent.livenessProbe.periodSeconds=60",
        "agent.readinessProbe=null",
        "agent.securityContext.privileged=true",
        "agent.securityContext.allowPrivilegeEscalation=null",
        "controller.podSecurityContext.runAsUser=null",
        "controller.startupProbe.failureThreshold=30",
    ])
    .await;
    let agent = container(the(&objects, "DaemonSet", "larder-agent"));
    assert_eq!(
        agent["livenessProbe"],
        json!({
            "httpGet": { "path": "/healthz", "port": "http" },
            "periodSeconds": 60, "timeoutSeconds": 5, "failureThreshold": 6,
        })
    );
    assert_eq!(agent.get("readinessProbe"), None);
    assert_eq!(
        agent["securityContext"],
        json!({ "privileged": true, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } })
    );
    let controller = the(&objects, "Deployment", "larder-controller");
    let context = json!({ "runAsNonRoot": true, "runAsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" } });
    assert_eq!(pod(controller)["securityContext"], context);
    assert_eq!(
        pod(the(&objects, "Job", "larder-uninstall"))["securityContext"],
        context
    );
    assert_eq!(container(controller)["startupProbe"]["failureThreshold"], 30);
    assert_eq!(container(controller)["startupProbe"]["httpGet"]["path"], "/healthz");
}

#[tokio::test]
async fn a_strategy_without_settings_has_none() {
    let objects = with(&[
        "agent.updateStrategy.type=OnDelete",
        "controller.updateStrategy.type=Recreate",
    ])
    .await;
    let agent = the(&objects, "DaemonSet", "larder-agent");
    assert_eq!(agent["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
    let controller = the(&objects, "Deployment", "larder-controller");
    assert_eq!(controller["spec"]["strategy"], json!({ "type": "Recreate" }));
    // A zero is a setting, too.
    let objects = with(&["controller.updateStrategy.rollingUpdate.maxSurge=0"]).await;
    let controller = the(&objects, "Deployment", "larder-controller");
    let settings = json!({ "maxSurge": 0, "maxUnavailable": 1 });
    assert_eq!(controller["spec"]["strategy"]["rollingUpdate"], settings);
}

#[tokio::test]
async fn edge_nodes_have_resources_and_tolerations_of_their_own() {
    let mut arguments = set("kubeedge");
    arguments.extend(
        [
            "--set=kubeEdge.resources.limits.memory=64Mi",
            "--set=kubeEdge.tolerations[0].key=edge,kubeEdge.tolerations[0].operator=Exists",
            "--set=agent.tolerations[0].key=cloud,agent.tolerations[0].operator=Exists",
        ]
        .map(str::to_owned),
    );
    let objects = objects("1.36.0", &arguments).await;
    for (name, key, memory) in [
        ("larder-agent", "cloud", "128Mi"),
        ("larder-agent-edge", "edge", "64Mi"),
    ] {
        let agents = the(&objects, "DaemonSet", name);
        assert_eq!(
            pod(agents)["tolerations"],
            json!([{ "key": key, "operator": "Exists" }])
        );
        assert_eq!(container(agents)["resources"]["limits"]["memory"], memory);
    }
}

#[tokio::test]
async fn agents_are_given_the_nodes_own_logins() {
    let mut arguments = set("kubeedge");
    arguments.push("--set=agent.registryConfigSecret=mirrors".to_owned());
    let given = objects("1.36.0", &arguments).await;
    for name in ["larder-agent", "larder-agent-edge"] {
        let agents = the(&given, "DaemonSet", name);
        let folder = "/etc/larder/registry";
        assert!(arguments_of(agents).contains(&format!("--registry-config={folder}/config.json").as_str()));
        let of_this = |list: &Value| -> Value {
            let mut found = list.as_array().unwrap().iter();
            found.find(|one| one["name"] == "registry-config").unwrap().clone()
        };
        assert_eq!(
            of_this(&container(agents)["volumeMounts"]),
            json!({ "name": "registry-config", "mountPath": folder, "readOnly": true })
        );
        let items = json!([{ "key": ".dockerconfigjson", "path": "config.json" }]);
        assert_eq!(
            of_this(&pod(agents)["volumes"])["secret"],
            json!({ "secretName": "mirrors", "items": items })
        );
    }
    let usual = objects("1.36.0", &set("kubeedge")).await;
    assert!(
        !the(&usual, "DaemonSet", "larder-agent")
            .to_string()
            .contains("registry-config")
    );
}

/// The controller tries the policy as the agents' account.
#[rstest]
#[case::usual(&[], "larder-agent", None)]
#[case::renamed(&["agent.serviceAccount.name=hand"], "hand", Some("--agent-service-account=hand"))]
#[case::with_another_prefix(&["fullnameOverride=cellar"], "cellar-agent", Some("--agent-service-account=cellar-agent"))]
#[tokio::test]
async fn the_controller_may_act_as_the_agents_account(
    #[case] values: &[&str],
    #[case] account: &str,
    #[case] flag: Option<&str>,
) {
    let objects = with(values).await;
    let role = objects.iter().find(|object| {
        object["kind"] == "Role" && object["metadata"]["name"].as_str().unwrap().ends_with("-controller")
    });
    let rules = role.unwrap()["rules"].as_array().unwrap();
    let rule = rules
        .iter()
        .find(|rule| rule["resources"] == json!(["serviceaccounts"]))
        .unwrap();
    assert_eq!(rule["resourceNames"], json!([account]));
    assert_eq!(rule["verbs"], json!(["impersonate"]));
    let controller = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let found = arguments_of(controller)
        .into_iter()
        .find(|flag| flag.starts_with("--agent-service-account"));
    assert_eq!(found, flag);
}

#[tokio::test]
async fn alerts_and_dashboard_are_those_of_deploy_monitoring() {
    let folder = crate::chart::folder().join("../monitoring");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let mut alerts: Value = serde_saphyr::from_str(&read("alerts.yaml")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let enabled = [
        "monitoring.prometheusRule.enabled=true",
        "monitoring.dashboard.enabled=true",
    ];
    let plain = with(&enabled).await;
    assert_eq!(the(&plain, "PrometheusRule", "larder")["spec"], alerts);
    let shown = &the(&plain, "ConfigMap", "larder-dashboard")["data"]["larder.json"];
    let shown: Value = serde_json::from_str(shown.as_str().unwrap()).unwrap();
    assert_eq!(shown, dashboard);
    assert!(!has(&with(&[]).await, "PrometheusRule"));

    let runbooks = "monitoring.prometheusRule.runbookUrl=https://wiki.example.com/larder/";
    let linked = with(&[enabled[0], runbooks]).await;
    for rule in alerts["groups"][0]["rules"].as_array_mut().unwrap() {
        let address = format!("https://wiki.example.com/larder/{}.md", rule["alert"].as_str().unwrap());
        rule["annotations"]["runbook_url"] = json!(address);
    }
    assert_eq!(the(&linked, "PrometheusRule", "larder")["spec"], alerts);
}

#[tokio::test]
async fn monitors_elsewhere_find_the_pods_here() {
    let values = ["podMonitor", "serviceMonitor"].map(|kind| {
        format!(
            "monitoring.{kind}.enabled=true,monitoring.{kind}.namespace=monitoring,monitoring.{kind}.scrapeTimeout=9s,\
             monitoring.{kind}.relabelings[0].action=labeldrop,monitoring.{kind}.relabelings[0].regex=pod"
        )
    });
    let objects = with(&values.each_ref().map(String::as_str)).await;
    for (kind, endpoints) in [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")] {
        let monitor = the(&objects, kind, "larder-agent");
        assert_eq!(monitor["metadata"]["namespace"], "monitoring");
        assert_eq!(
            monitor["spec"]["namespaceSelector"],
            json!({ "matchNames": ["larder-system"] })
        );
        let endpoint = &monitor["spec"][endpoints][0];
        assert_eq!(endpoint["scrapeTimeout"], "9s");
        assert_eq!(endpoint["relabelings"][0]["targetLabel"], "node");
        assert_eq!(
            endpoint["relabelings"][1],
            json!({ "action": "labeldrop", "regex": "pod" })
        );
    }
    let service = the(&objects, "Service", "larder-agent-metrics");
    assert_eq!(service["metadata"]["namespace"], "larder-system");
}

#[test]
fn the_chart_names_its_home_sources_and_icon() {
    let text = std::fs::read_to_string(crate::chart::folder().join("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text).unwrap();
    assert!(chart["home"].as_str().unwrap().starts_with("https://"));
    assert!(chart["sources"][0].as_str().unwrap().starts_with("https://"));
    assert!(
        chart["icon"]
            .as_str()
            .unwrap()
            .starts_with("data:image/svg+xml;base64,")
    );
}
