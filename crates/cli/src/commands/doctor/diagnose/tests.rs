use super::super::facts::*;
use super::*;
use rstest::rstest;

fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        ready: true,
        has_node_image: true,
        agent: Some(Agent {
            version: Some("0.1.0".into()),
            runtime: Some("containerd 2.1.9".into()),
            has_key: true,
            conflicts_with: None,
        }),
    }
}

fn pod(name: &str, node: &str) -> Pod {
    Pod {
        name: name.into(),
        node: Some(node.into()),
        ready: true,
        version: Some("0.1.0".into()),
        ..Pod::default()
    }
}

/// A cluster in which nothing is wrong.
fn healthy() -> Facts {
    let crd = |name: &str| Crd {
        name: name.into(),
        found: Ok(FoundCrd::Installed {
            shortcoming: None,
            release: None,
        }),
    };
    Facts {
        server: Server {
            version: "v1.36.3".into(),
            minor: Some(36),
            embedded: false,
        },
        crds: ["imagepulljobs.apps.kruise.io", "nodeimages.apps.kruise.io"]
            .map(crd)
            .into(),
        rivals: Ok(Rivals::default()),
        system: System {
            namespace: "larder-system".into(),
            elsewhere: vec![],
            accounts: Accounts {
                controller: "larder-controller".into(),
                agent: "larder-agent".into(),
            },
            exists: Ok(true),
            lease: Ok(Some(Lease {
                holder: Some("larder-controller-1".into()),
                renewed: true,
            })),
            controllers: Ok(vec![pod("larder-controller-1", "a")]),
            agents: Ok(vec![pod("larder-agent-1", "a"), pod("larder-agent-2", "b")]),
        },
        nodes: Ok(vec![node("a"), node("b")]),
        policy: Ok(Policy {
            installed: true,
            bound: Binding::Denies,
            probe: Probe::Refused,
        }),
        rights: Rights {
            controller: Ok(vec![]),
            agent: Ok(vec![]),
            own: Ok(vec![]),
        },
        gating_job: None,
    }
}

#[rstest]
#[case::no_such_job(None, false, true)]
#[case::gate_off(Some("team/base"), false, false)]
#[case::gate_on(Some("team/base"), true, true)]
fn a_job_with_a_gate_needs_a_controller_with_one(#[case] job: Option<&str>, #[case] on: bool, #[case] fine: bool) {
    let mut facts = healthy();
    facts.gating_job = job.map(str::to_owned);
    facts.system.controllers.as_mut().unwrap()[0].gates_nodes = on;
    let found = findings(&facts);
    assert_eq!(found.is_empty(), fine, "{found:?}");
    assert!(
        found
            .iter()
            .all(|(area, finding)| *area == "controller" && finding.says.contains("team/base"))
    );
}

fn findings(facts: &Facts) -> Vec<(&'static str, Finding)> {
    let of = |area: Area| area.findings.into_iter().map(move |finding| (area.name, finding));
    diagnose(facts).into_iter().flat_map(of).collect()
}

#[test]
fn a_healthy_cluster_has_nothing_wrong() {
    assert_eq!(findings(&healthy()), []);
    let fine: Vec<String> = diagnose(&healthy())
        .into_iter()
        .map(|area| format!("{}: {}", area.name, area.fine))
        .collect();
    insta::assert_snapshot!(fine.join("\n"), @r"
    cluster: Kubernetes v1.36.3.
    crds: All four CRDs can hold what Larder writes.
    others: Nobody else serves the same kinds.
    controller: larder-controller-1 leads, in namespace larder-system.
    agents: An agent answers on all 2 nodes.
    policy: A status is refused to whoever is not its node; tried.
    rights: The controller and the agents may do what they have to.
    ");
}

fn not_ready(pods: &mut Seen<Vec<Pod>>, trouble: &str) {
    for pod in pods.iter_mut().flatten() {
        pod.ready = false;
        pod.trouble = Some(trouble.into());
    }
}

fn every_node(facts: &mut Facts, change: impl Fn(&mut Node)) {
    facts.nodes.iter_mut().flatten().for_each(change);
}

fn agent(facts: &mut Facts, change: impl Fn(&mut Agent)) {
    every_node(facts, |node| node.agent.iter_mut().for_each(&change));
}

#[rstest]
#[case::crd_missing(
    |facts: &mut Facts| facts.crds[0].found = Ok(FoundCrd::Missing),
    "crds", Level::Problem, "1 of 2 CRDs are not installed: imagepulljobs.apps.kruise.io."
)]
#[case::crd_of_another_chart(
    |facts: &mut Facts| facts.crds[0].found = Ok(FoundCrd::Installed { shortcoming: Some("the CRD x lacks y".into()), release: Some("kruise".into()) }),
    "crds", Level::Problem, "The CRD x lacks y. It belongs to the Helm release kruise."
)]
#[case::crd_that_others_own(
    |facts: &mut Facts| facts.crds[0].found = Ok(FoundCrd::Installed { shortcoming: None, release: Some("kruise".into()) }),
    "crds", Level::Note, "The CRD imagepulljobs.apps.kruise.io belongs to the Helm release kruise: its next upgrade may put another schema there, and removing it deletes all objects of this kind."
)]
#[case::crd_unseen(
    |facts: &mut Facts| facts.crds[0].found = Err("you may not.".into()),
    "crds", Level::Note, "The CRD imagepulljobs.apps.kruise.io cannot be looked at: you may not."
)]
#[case::kruise_daemon(
    |facts: &mut Facts| facts.rivals = Ok(Rivals { daemons: vec![("kruise-system/kruise-daemon".into(), 1)], webhooks: vec![] }),
    "others", Level::Problem, "The DaemonSet kruise-system/kruise-daemon of OpenKruise runs on 1 node and acts on the same NodeImages."
)]
#[case::webhooks(
    |facts: &mut Facts| facts.rivals = Ok(Rivals { daemons: vec![], webhooks: vec![("kruise-mutating".into(), "imagepulljobs, nodeimages".into())] }),
    "others", Level::Problem, "The webhooks of kruise-mutating judge imagepulljobs, nodeimages, and change or refuse what Larder writes."
)]
#[case::not_installed(
    |facts: &mut Facts| { facts.system.exists = Ok(false); facts.system.lease = Ok(None); facts.system.controllers = Ok(vec![]); },
    "controller", Level::Problem, "There is no namespace larder-system: Larder is not installed, or elsewhere."
)]
#[case::never_led(
    |facts: &mut Facts| { facts.system.lease = Ok(None); facts.system.controllers = Ok(vec![]); },
    "controller", Level::Problem, "No controller has ever led: there is no Lease larder-controller in larder-system, and no pod."
)]
#[case::in_another_namespace(
    |facts: &mut Facts| { facts.system.elsewhere = vec!["pantry".into()]; facts.system.exists = Ok(false); facts.system.lease = Ok(None); facts.system.controllers = Ok(vec![]); },
    "controller", Level::Problem, "A controller is installed in another namespace than larder-system: pantry."
)]
#[case::installed_twice(
    |facts: &mut Facts| facts.system.elsewhere = vec!["pantry".into()],
    "controller", Level::Problem, "Controllers are installed in larder-system and also in pantry; each hands out by itself, and they undo each other's work."
)]
#[case::pods_that_never_led(
    |facts: &mut Facts| facts.system.lease = Ok(None),
    "controller", Level::Problem, "No controller has ever led, although there are pods for it: larder-controller-1."
)]
#[case::dead_leader(
    |facts: &mut Facts| facts.system.lease = Ok(Some(Lease { holder: Some("old".into()), renewed: false })),
    "controller", Level::Problem, "No controller leads: old does not renew the Lease larder-controller any more."
)]
#[case::given_up(
    |facts: &mut Facts| facts.system.lease = Ok(Some(Lease { holder: None, renewed: true })),
    "controller", Level::Problem, "No controller leads: the Lease larder-controller was given up."
)]
#[case::one_replica_down(
    |facts: &mut Facts| not_ready(&mut facts.system.controllers, "CrashLoopBackOff"),
    "controller", Level::Note, "The pod larder-controller-1 of the controller is not ready: CrashLoopBackOff."
)]
#[case::gate_off(
    |facts: &mut Facts| { facts.system.controllers.as_mut().unwrap()[0].gate_off = true; facts.rights.controller = Ok(vec!["get secrets".into(), "impersonate serviceaccounts".into(), "watch validatingadmissionpolicies.admissionregistration.k8s.io".into()]); },
    "controller", Level::Problem, "The feature gate ImagePullJobGate is off: no job is served."
)]
#[case::paused(
    |facts: &mut Facts| facts.system.controllers.as_mut().unwrap()[0].paused = true,
    "controller", Level::Note, "The controller was started with --pause: nothing new is handed out."
)]
#[case::no_nodes(
    |facts: &mut Facts| facts.nodes = Ok(vec![]),
    "agents", Level::Problem, "The cluster has no node."
)]
#[case::node_down(
    |facts: &mut Facts| facts.nodes.as_mut().unwrap()[1].ready = false,
    "agents", Level::Note, "1 node is not ready, and left alone until then: b."
)]
#[case::no_node_image(
    |facts: &mut Facts| every_node(facts, |node| { node.has_node_image = false; node.agent = None; }),
    "agents", Level::Problem, "2 nodes have no NodeImage: a, b."
)]
#[case::no_agent(
    |facts: &mut Facts| { every_node(facts, |node| node.agent = None); facts.system.agents = Ok(vec![]); },
    "agents", Level::Problem, "No agent has ever answered and there is no pod for one on 2 nodes: a, b."
)]
#[case::agents_unseen(
    |facts: &mut Facts| { every_node(facts, |node| node.agent = None); facts.server.embedded = true; },
    "agents", Level::Problem, "No agent has ever answered on 2 nodes: a, b."
)]
#[case::agent_does_not_start(
    |facts: &mut Facts| { every_node(facts, |node| node.agent = None); not_ready(&mut facts.system.agents, "ImagePullBackOff."); },
    "agents", Level::Problem, "The agent's pod is not ready (ImagePullBackOff) on 2 nodes: a, b."
)]
#[case::agent_says_nothing(
    |facts: &mut Facts| facts.nodes.as_mut().unwrap()[0].agent = None,
    "agents", Level::Problem, "The agent's pod runs and its agent has never answered on 1 node: a."
)]
#[case::agent_gone(
    |facts: &mut Facts| facts.system.agents.as_mut().unwrap().truncate(1),
    "agents", Level::Problem, "An agent has answered and its pod is gone on 1 node: b."
)]
#[case::no_runtime(
    |facts: &mut Facts| agent(facts, |agent| agent.runtime = None),
    "agents", Level::Problem, "The agent finds no container runtime on 2 nodes: a, b."
)]
#[case::no_key(
    |facts: &mut Facts| agent(facts, |agent| agent.has_key = false),
    "agents", Level::Problem, "The agent has no key on 2 nodes, so that no pull secret can be sealed to it: a, b."
)]
#[case::two_agents_of_one_name(
    |facts: &mut Facts| agent(facts, |agent| agent.conflicts_with = Some("host-7_1f".into())),
    "agents", Level::Problem, "Two agents run with the name of the same node, and overwrite each other's status, on 2 nodes: a, b."
)]
#[case::patch_skew(
    |facts: &mut Facts| agent(facts, |agent| agent.version = Some("0.1.1".into())),
    "agents", Level::Note, "The agents on 2 nodes have version 0.1.1, the controller has 0.1.0: a, b."
)]
#[case::release_skew(
    |facts: &mut Facts| agent(facts, |agent| agent.version = Some("0.2.0".into())),
    "agents", Level::Problem, "The agents on 2 nodes have version 0.2.0, the controller has 0.1.0: a, b."
)]
#[case::before_node_claims(
    |facts: &mut Facts| { facts.server.minor = Some(29); facts.policy = Err("there is no such kind".into()); },
    "policy", Level::Problem, "The policy larder-agent-own-node cannot be enforced below Kubernetes 1.30, where tokens do not name their node; the controller sends no login to any node, and jobs with pull secrets wait."
)]
#[case::no_policy(
    |facts: &mut Facts| facts.policy.as_mut().unwrap().installed = false,
    "policy", Level::Problem, "The policy larder-agent-own-node is not installed; the controller sends no login to any node, and jobs with pull secrets wait."
)]
#[case::no_binding(
    |facts: &mut Facts| facts.policy.as_mut().unwrap().bound = Binding::Missing,
    "policy", Level::Problem, "The policy larder-agent-own-node has no binding, and is not enforced; the controller sends no login to any node, and jobs with pull secrets wait."
)]
#[case::toothless(
    |facts: &mut Facts| facts.policy.as_mut().unwrap().bound = Binding::Toothless,
    "policy", Level::Problem, "The policy larder-agent-own-node has a binding that does not deny, and is not enforced; the controller sends no login to any node, and jobs with pull secrets wait."
)]
#[case::let_through(
    |facts: &mut Facts| facts.policy.as_mut().unwrap().probe = Probe::Accepted,
    "policy", Level::Problem, "The policy larder-agent-own-node is not enforced: the API server lets an agent's token without a node write a status; the controller sends no login to any node, and jobs with pull secrets wait."
)]
#[case::no_policy_and_accepted(
    |facts: &mut Facts| { facts.policy.as_mut().unwrap().installed = false; facts.system.controllers.as_mut().unwrap()[0].accepts_no_policy = true; },
    "policy", Level::Note, "The policy larder-agent-own-node is not installed, and the controller was told to accept that: any agent's token can write the status of any node, and have passwords sealed for a key of its own."
)]
#[case::controller_rights(
    |facts: &mut Facts| facts.rights.controller = Ok(vec!["list nodes".into(), "get secrets".into()]),
    "rights", Level::Problem, "The ServiceAccount larder-system/larder-controller may not list nodes, get secrets. Without Secrets no private image can be pulled."
)]
#[case::agent_rights(
    |facts: &mut Facts| facts.rights.agent = Ok(vec!["patch nodeimages.apps.kruise.io/status".into()]),
    "rights", Level::Problem, "The ServiceAccount larder-system/larder-agent may not patch nodeimages.apps.kruise.io/status."
)]
#[case::own_rights(
    |facts: &mut Facts| facts.rights.own = Ok(vec![("list nodes".into(), "larder why")]),
    "rights", Level::Note, "You may not list nodes, so that larder why will not work for you."
)]
fn one_thing_wrong_is_one_finding(
    #[case] change: fn(&mut Facts),
    #[case] area: &str,
    #[case] level: Level,
    #[case] says: &str,
) {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts);
    let [(found_area, finding)] = found.as_slice() else {
        panic!("{found:#?}");
    };
    assert_eq!((*found_area, finding.level, finding.says.as_str()), (area, level, says));
    assert!(finding.advice.len() > 20, "{}", finding.advice);
}

#[test]
fn a_controller_that_does_not_start_is_a_problem_with_its_cause() {
    let mut facts = healthy();
    facts.system.lease = Ok(None);
    not_ready(&mut facts.system.controllers, "ImagePullBackOff");
    let levels: Vec<Level> = findings(&facts).into_iter().map(|(_, finding)| finding.level).collect();
    assert_eq!(levels, [Level::Problem, Level::Problem]);
}

#[test]
fn whoever_may_see_nothing_is_told_so_and_nothing_is_called_wrong() {
    let mut facts = healthy();
    let no = "you may not".to_owned();
    facts.rivals = Err(no.clone());
    facts.system.exists = Err(no.clone());
    facts.system.lease = Err(no.clone());
    facts.system.controllers = Err(no.clone());
    facts.system.agents = Err(no.clone());
    facts.nodes = Err(no.clone());
    facts.policy = Err(no.clone());
    facts.rights.controller = Err(no.clone());
    facts.rights.agent = Err(no.clone());
    facts.rights.own = Err(no);
    let found = findings(&facts);
    assert!(
        found.iter().all(|(_, finding)| finding.level == Level::Note),
        "{found:#?}"
    );
    assert_eq!(found.len(), 9);
}

#[test]
fn agents_that_nobody_runs_in_pods_are_not_missed() {
    let mut facts = healthy();
    facts.system.agents = Ok(vec![]);
    assert_eq!(findings(&facts), []);
}

#[test]
fn many_nodes_are_named_in_part_and_told_in_full() {
    let mut facts = healthy();
    let nodes = (0..12).map(|number| Node {
        agent: None,
        ..node(&format!("n{number:02}"))
    });
    facts.nodes = Ok(nodes.collect());
    facts.system.agents = Ok(vec![]);
    let found = findings(&facts);
    assert!(
        found[0]
            .1
            .says
            .ends_with("on 12 nodes: n00, n01, n02, n03, n04 and 7 more."),
        "{found:?}"
    );
    assert_eq!(found[0].1.nodes.len(), 12);
}

#[rstest]
#[case::controller_with_a_tag_that_is_no_version("latest", "0.1.0", 0)]
#[case::leading_v("v0.1.0", "0.1.0", 0)]
#[case::most_agents("latest", "0.2.0", 1)]
fn versions(#[case] controller: &str, #[case] first_agent: &str, #[case] wrong: usize) {
    let mut facts = healthy();
    facts.system.controllers.as_mut().unwrap()[0].version = Some(controller.into());
    facts.system.agents.as_mut().unwrap().push(pod("larder-agent-3", "c"));
    facts.nodes.as_mut().unwrap().push(node("c"));
    let nodes = facts.nodes.as_mut().unwrap();
    nodes[0].agent.as_mut().unwrap().version = Some(first_agent.into());
    assert_eq!(findings(&facts).len(), wrong);
}

#[test]
fn a_kubernetes_that_is_too_old_is_said() {
    let mut facts = healthy();
    (facts.server.minor, facts.server.version) = (Some(26), "v1.26.1".into());
    let found = findings(&facts);
    assert_eq!(found[0].1.says, "Kubernetes v1.26.1 is older than Larder is meant for.");
    assert_eq!(found[1].0, "policy", "and its tokens do not name their nodes");
    assert_eq!(found.len(), 2);
}
