//! Whatever selects pods selects those that it should: a selector that matches nothing is no error anywhere.

use rstest::rstest;
use serde_json::{Map, Value};

use crate::chart::{objects, set};

/// A template of pods.
struct Pods<'a> {
    name: &'a str,
    labels: &'a Map<String, Value>,
    spec: &'a Value,
}

impl Pods<'_> {
    fn has_port(&self, wanted: &Value) -> bool {
        let ports = self.spec["containers"][0]["ports"].as_array();
        let is_it = |port: &Value| port["name"] == *wanted || port["containerPort"] == *wanted;
        ports.into_iter().flatten().any(is_it)
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// All pods that the chart makes, those of hooks included.
fn pods(objects: &[Value]) -> Vec<Pods<'_>> {
    let of = |object| -> Option<Pods<'_>> {
        let object: &Value = object;
        let pod = match text(&object["kind"]) {
            "Deployment" | "DaemonSet" | "Job" => &object["spec"]["template"],
            "Pod" => object,
            _ => return None,
        };
        Some(Pods {
            name: text(&object["metadata"]["name"]),
            labels: pod["metadata"]["labels"].as_object().unwrap(),
            spec: &pod["spec"],
        })
    };
    objects.iter().filter_map(of).collect()
}

/// The names of those that these labels match.
fn selected<'a>(pods: &[Pods<'a>], labels: &Value) -> Vec<&'a str> {
    let labels = labels.as_object().unwrap();
    assert!(!labels.is_empty(), "an empty selector selects everything");
    let matches = |pods: &&Pods<'_>| labels.iter().all(|(key, value)| pods.labels.get(key) == Some(value));
    pods.iter().filter(matches).map(|pods| pods.name).collect()
}

#[rstest]
#[case::usual("", &["larder-agent", "larder-controller"])]
#[case::edge("kubeedge", &["larder-agent", "larder-agent-edge", "larder-controller"])]
#[tokio::test]
async fn every_selector_selects_the_pods_it_is_named_after(#[case] values: &str, #[case] parts: &[&str]) {
    let mut arguments = set(values);
    arguments.extend(
        [
            "--set=monitoring.podMonitor.enabled=true",
            "--set=monitoring.serviceMonitor.enabled=true",
            "--set=networkPolicy.enabled=true",
            "--set=agent.hostNetwork=false",
            "--set=controller.port=8443",
            "--set=agent.port=9443",
        ]
        .map(str::to_owned),
    );
    let objects = objects("1.36.0", &arguments).await;
    let pods = pods(&objects);
    let mut monitored = Vec::new();
    let mut monitored_by_service = Vec::new();
    for object in &objects {
        let (kind, name, spec) = (
            text(&object["kind"]),
            text(&object["metadata"]["name"]),
            &object["spec"],
        );
        let (labels, ports): (&Value, Vec<&Value>) = match kind {
            "Deployment" | "DaemonSet" | "PodDisruptionBudget" => (&spec["selector"]["matchLabels"], vec![]),
            "NetworkPolicy" => (
                &spec["podSelector"]["matchLabels"],
                vec![&spec["ingress"][0]["ports"][0]["port"]],
            ),
            "Service" => (
                &spec["selector"],
                vec![&spec["ports"][0]["targetPort"], &spec["ports"][0]["port"]],
            ),
            "PodMonitor" => {
                monitored.push(name);
                (
                    &spec["selector"]["matchLabels"],
                    vec![&spec["podMetricsEndpoints"][0]["port"]],
                )
            }
            "ServiceMonitor" => {
                monitored_by_service.push(name);
                assert_monitors_one_service(&objects, object);
                continue;
            }
            _ => continue,
        };
        let part = name.trim_end_matches("-metrics");
        assert_eq!(selected(&pods, labels), [part], "{kind} {name}");
        let part = pods.iter().find(|pods| pods.name == part).unwrap();
        for port in ports {
            assert!(part.has_port(port), "{kind} {name}: {port}");
        }
    }
    for mut monitored in [monitored, monitored_by_service] {
        monitored.sort_unstable();
        assert_eq!(monitored, parts);
    }
    let controller = pods.iter().find(|pods| pods.name == "larder-controller").unwrap();
    for spread in controller.spec["topologySpreadConstraints"].as_array().unwrap() {
        let labels = &spread["labelSelector"]["matchLabels"];
        assert_eq!(selected(&pods, labels), ["larder-controller"]);
    }
}

/// Its labels are those of one Service, which has the port.
fn assert_monitors_one_service(objects: &[Value], monitor: &Value) {
    let labels = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let matches = |object: &&Value| {
        let has = |(key, value): (&String, &Value)| object["metadata"]["labels"][key] == *value;
        object["kind"] == "Service" && labels.iter().all(has)
    };
    let services: Vec<&Value> = objects.iter().filter(matches).collect();
    let [service] = services.as_slice() else {
        panic!("{monitor} selects {services:?}");
    };
    let name = format!("{}-metrics", text(&monitor["metadata"]["name"]));
    assert_eq!(service["metadata"]["name"], name);
    assert_eq!(
        monitor["spec"]["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
}

/// Rights and fairness go to accounts that exist and that pods run as.
#[rstest]
#[case::usual("")]
#[case::edge("kubeedge")]
#[tokio::test]
async fn every_account_that_is_named_exists(#[case] values: &str) {
    let objects = objects("1.36.0", &set(values)).await;
    let of_kind = |kind: &str| -> Vec<&Value> { objects.iter().filter(|object| object["kind"] == kind).collect() };
    let accounts: Vec<&str> = of_kind("ServiceAccount")
        .into_iter()
        .map(|account| text(&account["metadata"]["name"]))
        .collect();
    for pods in pods(&objects) {
        assert!(
            accounts.contains(&text(&pods.spec["serviceAccountName"])),
            "{}",
            pods.name
        );
    }
    let named = of_kind("ClusterRoleBinding")
        .into_iter()
        .chain(of_kind("RoleBinding"))
        .flat_map(|binding| binding["subjects"].as_array().unwrap())
        .filter(|subject| subject["kind"] == "ServiceAccount" && subject["namespace"] == crate::chart::NAMESPACE)
        .map(|subject| text(&subject["name"]));
    let fair = of_kind("FlowSchema")
        .into_iter()
        .flat_map(|schema| schema["spec"]["rules"][0]["subjects"].as_array().unwrap())
        .map(|subject| text(&subject["serviceAccount"]["name"]));
    let named: Vec<&str> = named.chain(fair).collect();
    assert!(named.len() > 5, "{named:?}");
    for name in named {
        assert!(accounts.contains(&name), "{name} of {accounts:?}");
    }
}
