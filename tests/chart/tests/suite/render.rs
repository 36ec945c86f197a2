//! What comes out of the chart, for old and new clusters and for each set of values.

use larder_planner::agent_nodes::AgentNodes;
use larder_planner::windows::Windows;
use rstest::rstest;
use serde_json::{Value, json};

use crate::chart::{SETS, arguments_of, has, objects, run, set, the};

#[tokio::test]
async fn every_set_of_values_in_the_folder_is_tested() {
    let mut found: Vec<String> = std::fs::read_dir(crate::chart::folder().join("values"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(found, SETS[1..]);
}

#[tokio::test]
async fn the_chart_has_nothing_to_complain_about() {
    for name in SETS {
        let mut arguments = set(name);
        arguments.push("--strict".to_owned());
        run(&["lint"], &arguments)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[rstest]
#[case::before_the_node_claim("1.27.0", false, "flowcontrol.apiserver.k8s.io/v1beta3")]
#[case::fairness_became_stable("1.29.0", false, "flowcontrol.apiserver.k8s.io/v1")]
#[case::first_with_the_node_claim("1.30.0", true, "flowcontrol.apiserver.k8s.io/v1")]
#[case::newest("1.36.0", true, "flowcontrol.apiserver.k8s.io/v1")]
#[tokio::test]
async fn each_version_of_kubernetes_gets_what_it_knows(
    #[case] kubernetes: &str,
    #[case] policy: bool,
    #[case] fairness: &str,
) {
    for name in SETS {
        let objects = objects(kubernetes, &set(name)).await;
        assert_eq!(has(&objects, "ValidatingAdmissionPolicy"), policy, "{name}");
        assert_eq!(
            the(&objects, "FlowSchema", "larder-agents")["apiVersion"],
            fairness,
            "{name}"
        );
        assert!(!has(&objects, "CustomResourceDefinition"), "the hook brings them");
    }
}

#[tokio::test]
async fn older_versions_of_kubernetes_are_refused() {
    let error = crate::chart::template(&["--kube-version=1.26.0".to_owned()])
        .await
        .unwrap_err();
    assert!(error.contains(">=1.27.0"), "{error}");
}

#[tokio::test]
async fn a_container_may_do_nothing_but_its_work() {
    let objects = objects("1.36.0", &[]).await;
    let pods = objects.iter().filter_map(|object| match object["kind"].as_str()? {
        "Deployment" | "DaemonSet" | "Job" => Some((object, &object["spec"]["template"]["spec"])),
        "Pod" => Some((object, &object["spec"])),
        _ => None,
    });
    let mut count = 0;
    for (object, pod) in pods {
        let name = &object["metadata"]["name"];
        let context = &pod["containers"][0]["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
            "{name}"
        );
        if object["kind"] != "DaemonSet" {
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        }
        assert!(
            pod["containers"][0]["resources"]["requests"]["memory"].is_string(),
            "{name}"
        );
        count += 1;
    }
    assert_eq!(count, 5, "controller, agents, two hooks and a test");
}

/// Folders of the node that a DaemonSet mounts, with whether they can be written.
fn host_paths(daemon_set: &Value) -> Vec<(String, bool)> {
    let pod = &daemon_set["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let volumes = pod["volumes"].as_array().unwrap().iter();
    let of_the_node = volumes.filter_map(|volume| Some((&volume["name"], volume["hostPath"]["path"].as_str()?)));
    let mut found: Vec<(String, bool)> = of_the_node
        .map(|(name, path)| {
            let mount = mounts.iter().find(|mount| mount["name"] == *name).unwrap();
            (path.to_owned(), mount["readOnly"] != true)
        })
        .collect();
    found.sort();
    found
}

#[rstest]
#[case::containerd(
    "",
    "/run/containerd/containerd.sock",
    "/run/containerd",
    "/var/lib/containerd",
    "/etc/containerd"
)]
#[case::k3s(
    "k3s",
    "/run/k3s/containerd/containerd.sock",
    "/run/k3s/containerd",
    "/var/lib/rancher/k3s/agent/containerd",
    "/var/lib/rancher/k3s/agent/etc/containerd"
)]
#[case::rke2(
    "rke2",
    "/run/k3s/containerd/containerd.sock",
    "/run/k3s/containerd",
    "/var/lib/rancher/rke2/agent/containerd",
    "/var/lib/rancher/rke2/agent/etc/containerd"
)]
#[case::k0s("k0s", "/run/k0s/containerd.sock", "/run/k0s", "/var/lib/k0s/containerd", "/etc/k0s")]
#[case::microk8s(
    "microk8s",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/var/snap/microk8s/common/run",
    "/var/snap/microk8s/common/var/lib/containerd",
    "/var/snap/microk8s/current/args"
)]
#[case::crio(
    "crio",
    "/run/crio/crio.sock",
    "/run/crio",
    "/var/lib/containers/storage",
    "/etc/containers"
)]
#[tokio::test]
async fn agents_see_the_runtime_and_no_more_of_the_node(
    #[case] name: &str,
    #[case] socket: &str,
    #[case] socket_folder: &str,
    #[case] images: &str,
    #[case] settings: &str,
) {
    let objects = objects("1.36.0", &set(name)).await;
    let agents = the(&objects, "DaemonSet", "larder-agent");
    let endpoint = format!("--runtime-endpoint=unix:///host{socket}");
    assert!(
        arguments_of(agents).contains(&endpoint.as_str()),
        "{:?}",
        arguments_of(agents)
    );
    let mut wanted = vec![
        (socket_folder.to_owned(), true),
        ("/var/lib/larder-agent".to_owned(), true),
        (images.to_owned(), false),
        (settings.to_owned(), false),
    ];
    wanted.sort();
    assert_eq!(host_paths(agents), wanted);
}

#[tokio::test]
async fn edge_nodes_have_agents_of_their_own_that_ask_metaserver() {
    let objects = objects("1.36.0", &set("kubeedge")).await;
    let edge = the(&objects, "DaemonSet", "larder-agent-edge");
    let pod = &edge["spec"]["template"]["spec"];
    assert!(arguments_of(edge).contains(&"--server=http://127.0.0.1:10550"));
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["nodeSelector"]["node-role.kubernetes.io/edge"], "");
    let cloud = the(&objects, "DaemonSet", "larder-agent");
    let affinity = cloud["spec"]["template"]["spec"]["affinity"].to_string();
    assert!(
        affinity.contains(r#"{"key":"node-role.kubernetes.io/edge","operator":"NotIn","values":[""]}"#),
        "{affinity}"
    );
    the(&objects, "ClusterRoleBinding", "larder-agent-edge-nodes");
}

/// The controller and the DaemonSets must mean the same nodes: otherwise jobs wait for agents that never come.
#[rstest]
#[case::usual("", &[])]
#[case::edge("kubeedge", &[])]
#[case::selected("", &["--set=agent.nodeSelector.pool=big", "--set-json=agent.tolerations=[{\"key\":\"gpu\",\"operator\":\"Exists\"}]"])]
#[case::everything("kubeedge", &["--set-json=agent.affinity={\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"zone\",\"operator\":\"Exists\"}]}]}}}"])]
#[tokio::test]
async fn the_controller_is_told_where_the_agents_run(#[case] values: &str, #[case] more: &[&str]) {
    let mut arguments = set(values);
    arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
    let objects = objects("1.36.0", &arguments).await;
    let placement = |daemon_set: &Value| {
        let pod = &daemon_set["spec"]["template"]["spec"];
        json!({"nodeSelector": pod["nodeSelector"], "affinity": pod["affinity"], "tolerations": pod["tolerations"]})
    };
    let daemon_sets: Vec<Value> = objects
        .iter()
        .filter(|object| object["kind"] == "DaemonSet")
        .map(placement)
        .collect();
    assert!(!daemon_sets.is_empty());
    let controller = arguments_of(the(&objects, "Deployment", "larder-controller"));
    let told = controller
        .iter()
        .find_map(|argument| argument.strip_prefix("--agent-nodes="));
    let told = told.expect("the controller is told where agents run");
    assert_eq!(serde_json::from_str::<Value>(told).unwrap(), json!(daemon_sets));
    let nodes = AgentNodes::parse(told).unwrap();
    let windows = [("kubernetes.io/os".to_owned(), "windows".to_owned())].into();
    assert!(nodes.without_agent("a", &windows, &[]).is_some());
}

#[tokio::test]
async fn the_controller_is_told_when_the_fleet_may_pull() {
    let windows = json!([{"days": ["Sat"], "from": "22:00", "to": "06:00", "timeZone": "Europe/Berlin"}]);
    let set = [
        format!("--set-json=controller.windows={windows}"),
        "--set=controller.windowEnd=Stop".to_owned(),
    ];
    let with_windows = objects("1.36.0", &set).await;
    let told = arguments_of(the(&with_windows, "Deployment", "larder-controller"));
    let json = told.iter().find_map(|argument| argument.strip_prefix("--windows="));
    let json = json.expect("the controller is told the windows");
    assert_eq!(serde_json::from_str::<Value>(json).unwrap(), windows);
    Windows::parse_fleet(json).unwrap();
    assert!(told.contains(&"--window-end=Stop"), "{told:?}");
    let usual = objects("1.36.0", &[]).await;
    let usual = arguments_of(the(&usual, "Deployment", "larder-controller"));
    assert!(
        !usual.iter().any(|argument| argument.starts_with("--window")),
        "{usual:?}"
    );
}

/// The required terms of a DaemonSet's node affinity.
fn node_terms(daemon_set: &Value) -> &Vec<Value> {
    let affinity = &daemon_set["spec"]["template"]["spec"]["affinity"];
    let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"].as_array().unwrap()
}

/// On an edge node both DaemonSets would otherwise compete for one host port.
#[tokio::test]
async fn an_affinity_of_agents_keeps_them_off_edge_and_virtual_nodes() {
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] },
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] },
            ] },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                { "weight": 1, "preference": { "matchExpressions": [{ "key": "ssd", "operator": "Exists" }] } },
            ],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "kubernetes.io/hostname" }],
        },
    });
    let mut arguments = set("kubeedge");
    arguments.push(format!("--set-json=agent.affinity={affinity}"));
    let objects = objects("1.36.0", &arguments).await;
    let cloud = the(&objects, "DaemonSet", "larder-agent");
    let terms = node_terms(cloud);
    assert_eq!(terms.len(), 2);
    for term in terms {
        let expressions = term["matchExpressions"].as_array().unwrap();
        for (key, value) in [
            ("node-role.kubernetes.io/edge", ""),
            ("type", "virtual-kubelet"),
            ("eks.amazonaws.com/compute-type", "fargate"),
        ] {
            let wanted = json!({ "key": key, "operator": "NotIn", "values": [value] });
            assert!(expressions.contains(&wanted), "{term}");
        }
    }
    assert_eq!(terms[0]["matchExpressions"][0]["key"], "zone");
    assert_eq!(terms[1]["matchFields"][0]["key"], "metadata.name");
    let pod = &cloud["spec"]["template"]["spec"];
    let preferred = &affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
        *preferred
    );
    assert_eq!(pod["affinity"]["podAntiAffinity"], affinity["podAntiAffinity"]);
}

#[rstest]
#[case::each_node_speaks_for_itself("Node", false)]
#[case::cloudcore_speaks_for_all("CloudCore", true)]
#[tokio::test]
async fn policy_and_controller_agree_about_cloudcore(#[case] identity: &str, #[case] accepted: bool) {
    let mut arguments = set("kubeedge");
    arguments.push(format!("--set=kubeEdge.identity={identity}"));
    let objects = objects("1.36.0", &arguments).await;
    let controller = the(&objects, "Deployment", "larder-controller");
    let arguments = arguments_of(controller);
    assert_eq!(arguments.contains(&"--accept-cloudcore=true"), accepted);
    let mut flags: Vec<_> = arguments.iter().map(|one| one.split('=').next()).collect();
    flags.sort_unstable();
    flags.dedup();
    assert_eq!(
        flags.len(),
        arguments.len(),
        "a flag given twice is refused: {arguments:?}"
    );
    let policy = the(&objects, "ValidatingAdmissionPolicy", "larder-agent-own-node");
    let expression = policy["spec"]["validations"][0]["expression"].as_str().unwrap();
    assert_eq!(expression.contains("isCloudCore"), accepted);
}

#[tokio::test]
async fn proxy_and_certificates_reach_the_agents() {
    let arguments = [
        "--set=proxy.https=http://proxy:3128",
        "--set=proxy.noProxy=10.0.0.0/8\\,.svc",
        "--set-string=extraCA.pem=-----BEGIN CERTIFICATE-----",
    ];
    let objects = objects("1.36.0", &arguments.map(str::to_owned)).await;
    let pod = &the(&objects, "DaemonSet", "larder-agent")["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| {
        env.iter()
            .find(|one| one["name"] == name)
            .map(|one| one["value"].clone())
    };
    assert_eq!(value("HTTPS_PROXY"), Some(json!("http://proxy:3128")));
    assert_eq!(value("NO_PROXY"), Some(json!("10.0.0.0/8,.svc")));
    assert_eq!(value("HTTP_PROXY"), None);
    assert_eq!(value("SSL_CERT_DIR"), Some(json!("/etc/larder/ca")));
    let authorities = the(&objects, "ConfigMap", "larder-extra-ca");
    assert_eq!(authorities["data"]["extra-ca.pem"], "-----BEGIN CERTIFICATE-----\n");
}

#[tokio::test]
async fn what_is_optional_comes_when_asked_for() {
    let none = objects("1.36.0", &[]).await;
    for kind in ["PodMonitor", "ServiceMonitor", "NetworkPolicy", "Namespace"] {
        assert!(!has(&none, kind), "{kind}");
    }
    let arguments = [
        "--set=monitoring.podMonitor.enabled=true",
        "--set=monitoring.serviceMonitor.enabled=true",
        "--set=networkPolicy.enabled=true",
        "--set=agent.hostNetwork=false",
        "--set=installation.createNamespace=true",
        "--set=priorityClass.create=false",
        "--set=priorityClass.name=system-node-critical",
        "--set=flowControl.enabled=false",
        "--set=crds.install=false",
        "--set=uninstall.cleanUp=false",
        "--set=rbac.aggregate=false",
        "--set=controller.podDisruptionBudget.enabled=false",
    ];
    let all = objects("1.36.0", &arguments.map(str::to_owned)).await;
    for name in ["larder-controller", "larder-agent"] {
        the(&all, "PodMonitor", name);
        the(&all, "ServiceMonitor", name);
        the(&all, "NetworkPolicy", name);
    }
    the(&all, "Namespace", "larder-system");
    let agents = the(&all, "DaemonSet", "larder-agent");
    assert_eq!(
        agents["spec"]["template"]["spec"]["priorityClassName"],
        "system-node-critical"
    );
    for kind in ["PriorityClass", "FlowSchema", "Job", "PodDisruptionBudget"] {
        assert!(!has(&all, kind), "{kind}");
    }
    for gone in ["larder-installer", "larder-uninstaller", "larder-view", "larder-edit"] {
        assert!(!all.iter().any(|object| object["metadata"]["name"] == gone), "{gone}");
    }
}

/// A cluster whose nodes are all new must get a controller and agents: their pods tolerate the start-up taint.
#[tokio::test]
async fn nodes_that_wait_can_run_larder_and_only_then_the_controller_may_write_nodes() {
    let gpu = "agent.tolerations=[{\"key\":\"gpu\",\"operator\":\"Exists\"}]";
    let off = objects("1.36.0", &[format!("--set-json={gpu}")]).await;
    assert!(
        !off.iter()
            .any(|object| object["metadata"]["name"] == "larder-node-gate")
    );
    let taint = "example.com/warming";
    let on = [
        format!("--set-json={gpu}"),
        "--set=controller.nodeGate.enabled=true".to_owned(),
        format!("--set=controller.nodeGate.taint={taint}"),
    ];
    let on = objects("1.36.0", &on).await;
    assert_eq!(
        the(&on, "ClusterRole", "larder-node-gate")["rules"][0]["verbs"],
        json!(["patch"])
    );
    the(&on, "ClusterRoleBinding", "larder-node-gate");
    let arguments = arguments_of(the(&on, "Deployment", "larder-controller"));
    assert!(arguments.contains(&"--node-gate=example.com/warming"), "{arguments:?}");
    assert!(arguments.contains(&"--node-gate-max-wait=15m"), "{arguments:?}");
    let tolerates = json!({"key": taint, "operator": "Exists"});
    for (kind, name) in [("Deployment", "larder-controller"), ("DaemonSet", "larder-agent")] {
        let tolerations = &the(&on, kind, name)["spec"]["template"]["spec"]["tolerations"];
        assert!(
            tolerations.as_array().unwrap().contains(&tolerates),
            "{name}: {tolerations}"
        );
    }
    let hooks = on.iter().filter(|object| object["kind"] == "Job");
    for hook in hooks {
        let tolerations = &hook["spec"]["template"]["spec"]["tolerations"];
        assert!(tolerations.as_array().unwrap().contains(&tolerates), "{hook}");
    }
    // The agents' default tolerates everything, and is left alone.
    let usual = objects("1.36.0", &["--set=controller.nodeGate.enabled=true".to_owned()]).await;
    let tolerations = &the(&usual, "DaemonSet", "larder-agent")["spec"]["template"]["spec"]["tolerations"];
    assert_eq!(*tolerations, json!([{"operator": "Exists"}]));
}

/// Agents are on the nodes' network: their metrics ask for a token, and the monitors send it.
#[rstest]
#[case::made_by_the_chart(&[], "larder-metrics-token")]
#[case::given(&["--set=monitoring.metricsTokenSecret=own-token"], "own-token")]
#[tokio::test]
async fn monitors_send_the_token_that_the_agents_ask_for(#[case] more: &[&str], #[case] secret: &str) {
    let arguments = [
        "--set=monitoring.podMonitor.enabled=true",
        "--set=monitoring.serviceMonitor.enabled=true",
        "--set=kubeEdge.enabled=true",
    ];
    let arguments: Vec<String> = arguments.iter().chain(more).map(|&text| text.to_owned()).collect();
    let objects = objects("1.36.0", &arguments).await;
    let credentials = json!({"name": secret, "key": "token"});
    for name in ["larder-agent", "larder-agent-edge"] {
        let pods = &the(&objects, "PodMonitor", name)["spec"]["podMetricsEndpoints"][0];
        let service = &the(&objects, "ServiceMonitor", name)["spec"]["endpoints"][0];
        assert_eq!(pods["authorization"]["credentials"], credentials);
        assert_eq!(service["authorization"]["credentials"], credentials);
        let pod = &the(&objects, "DaemonSet", name)["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].as_array().unwrap();
        assert!(args.contains(&json!("--metrics-token-file=/etc/larder/metrics/token")));
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "metrics-token").unwrap();
        assert_eq!(volume["secret"]["secretName"], secret);
    }
    let controller = &the(&objects, "PodMonitor", "larder-controller")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(controller.get("authorization"), None);
    let made = objects.iter().find(|object| object["kind"] == "Secret");
    match secret {
        "larder-metrics-token" => assert!(made.unwrap()["data"]["token"].as_str().unwrap().len() > 30),
        _ => assert_eq!(made, None),
    }
}
