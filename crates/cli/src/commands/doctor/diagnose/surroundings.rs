//! What Larder lives in: the API server, the CRDs, other software, the policy and everybody's rights.

use super::{Area, Finding, count, names, unseen};
use crate::commands::doctor::facts::{Binding, Facts, FoundCrd, Probe, Seen};

/// The oldest Kubernetes that Larder is meant for.
const OLDEST: u32 = 27;

/// From here on a pod's token names its node.
const NODE_CLAIM: u32 = 30;

const INSTALL: &str = "Apply Larder's: larder crds | kubectl apply --server-side --force-conflicts -f -";

const RIGHTS: &str = "Apply the roles again: helm upgrade, or kubectl apply -f deploy/rbac.";

pub(super) fn server(facts: &Facts) -> Area {
    let server = &facts.server;
    let mut findings = Vec::new();
    if server.minor.is_some_and(|minor| minor < OLDEST) {
        findings.push(Finding::problem(
            format!("Kubernetes {} is older than Larder is meant for.", server.version),
            format!("Upgrade to 1.{OLDEST} or newer."),
        ));
    }
    Area {
        name: "cluster",
        fine: if server.embedded {
            format!("larder up, with an embedded API server {}.", server.version)
        } else {
            format!("Kubernetes {}.", server.version)
        },
        findings,
    }
}

pub(super) fn crds(facts: &Facts) -> Area {
    let mut findings = Vec::new();
    let missing: Vec<&str> = facts
        .crds
        .iter()
        .filter(|crd| matches!(crd.found, Ok(FoundCrd::Missing)))
        .map(|crd| crd.name.as_str())
        .collect();
    if !missing.is_empty() {
        let said = format!(
            "{} of {} CRDs are not installed: {}.",
            missing.len(),
            facts.crds.len(),
            names(&missing)
        );
        findings.push(Finding::problem(said, INSTALL));
    }
    for crd in &facts.crds {
        unseen(&format!("The CRD {}", crd.name), &crd.found, &mut findings);
        let Ok(FoundCrd::Installed { shortcoming, release }) = &crd.found else {
            continue;
        };
        let owner = release.as_ref().map(|release| format!("the Helm release {release}"));
        match (shortcoming, owner) {
            (Some(lack), owner) => {
                let from = owner.map(|owner| format!(" It belongs to {owner}.")).unwrap_or_default();
                findings.push(Finding::problem(format!("{}.{from}", capital(lack)), INSTALL));
            }
            (None, Some(owner)) => findings.push(Finding::note(
                format!(
                    "The CRD {} belongs to {owner}: its next upgrade may put another schema there, and removing it deletes all \
                     objects of this kind.",
                    crd.name
                ),
                format!(
                    "Have Helm keep it: kubectl annotate crd {} helm.sh/resource-policy=keep. Then turn the CRDs off in that \
                     release (OpenKruise: --set crds.managed=false)",
                    crd.name
                ),
            )),
            (None, None) => {}
        }
    }
    Area {
        name: "crds",
        fine: "All four CRDs can hold what Larder writes.".to_owned(),
        findings,
    }
}

pub(super) fn rivals(facts: &Facts) -> Area {
    let mut findings = Vec::new();
    unseen(
        "Other software that serves the same kinds",
        &facts.rivals,
        &mut findings,
    );
    for (name, nodes) in facts.rivals.iter().flat_map(|rivals| &rivals.daemons) {
        findings.push(Finding::problem(
            format!(
                "The DaemonSet {name} of OpenKruise runs on {} and acts on the same NodeImages.",
                count(usize::try_from(*nodes).unwrap_or(0), "node")
            ),
            "Turn it off: helm upgrade kruise openkruise/kruise --reuse-values --set featureGates=KruiseDaemon=false",
        ));
    }
    for (name, resources) in facts.rivals.iter().flat_map(|rivals| &rivals.webhooks) {
        findings.push(Finding::problem(
            format!("The webhooks of {name} judge {resources}, and change or refuse what Larder writes."),
            format!("Take these resources out of {name}, or turn the feature off in the software that it belongs to."),
        ));
    }
    Area {
        name: "others",
        fine: "Nobody else serves the same kinds.".to_owned(),
        findings,
    }
}

pub(super) fn policy(facts: &Facts) -> Area {
    let mut findings = Vec::new();
    if facts.server.minor.is_some_and(|minor| minor < NODE_CLAIM) {
        let wrong = format!("cannot be enforced below Kubernetes 1.{NODE_CLAIM}, where tokens do not name their node");
        let upgrade = format!("Upgrade to 1.{NODE_CLAIM} or newer");
        findings.push(unenforced(facts, &wrong, &upgrade));
    } else {
        unseen("The policy larder-agent-own-node", &facts.policy, &mut findings);
        if let Ok(policy) = &facts.policy {
            let wrong = match (policy.installed, policy.bound, policy.probe) {
                (false, _, _) => Some("is not installed"),
                (true, Binding::Missing, _) => Some("has no binding, and is not enforced"),
                (true, Binding::Toothless, _) => Some("has a binding that does not deny, and is not enforced"),
                (true, Binding::Denies, Probe::Accepted) => {
                    Some("is not enforced: the API server lets an agent's token without a node write a status")
                }
                (true, Binding::Denies, Probe::Refused | Probe::NotTried) => None,
            };
            let apply =
                "Apply it: helm upgrade with policy=auto, or kubectl apply -f deploy/rbac/30-agent-own-node.yaml";
            findings.extend(wrong.map(|wrong| unenforced(facts, wrong, apply)));
        }
    }
    let tried = matches!(&facts.policy, Ok(policy) if policy.probe == Probe::Refused);
    Area {
        name: "policy",
        fine: if tried {
            "A status is refused to whoever is not its node; tried.".to_owned()
        } else {
            "larder-agent-own-node is there and bound.".to_owned()
        },
        findings,
    }
}

/// A policy that is not enforced: a problem, unless the controller was told to accept it.
fn unenforced(facts: &Facts, wrong: &str, mend: &str) -> Finding {
    let policy = "The policy larder-agent-own-node";
    if super::controller::accepts_no_policy(facts) {
        return Finding::note(
            format!(
                "{policy} {wrong}, and the controller was told to accept that: any agent's token can write the status of any \
                 node, and have passwords sealed for a key of its own."
            ),
            format!("{mend}. Then take the flag away: helm upgrade with controller.acceptUnenforcedNodePolicy=false."),
        );
    }
    Finding::problem(
        format!("{policy} {wrong}; the controller sends no login to any node, and jobs with pull secrets wait."),
        format!(
            "{mend}. If you trust every node with the logins of all others, accept it: helm upgrade with \
             controller.acceptUnenforcedNodePolicy=true."
        ),
    )
}

pub(super) fn rights(facts: &Facts) -> Area {
    let mut findings = Vec::new();
    let rights = &facts.rights;
    let accounts = &facts.system.accounts;
    let parts = [
        (&accounts.controller, &rights.controller),
        (&accounts.agent, &rights.agent),
    ];
    for (account, lacks) in parts {
        unseen(&format!("What {account} may do"), lacks, &mut findings);
        findings.extend(lacking(facts, account, lacks));
    }
    unseen("What you may do", &rights.own, &mut findings);
    for (right, command) in rights.own.iter().flatten() {
        findings.push(Finding::note(
            format!("You may not {right}, so that {command} will not work for you."),
            "Ask whoever runs the cluster for a role, if you need it.",
        ));
    }
    Area {
        name: "rights",
        fine: "The controller and the agents may do what they have to.".to_owned(),
        findings,
    }
}

fn lacking(facts: &Facts, account: &str, lacks: &Seen<Vec<String>>) -> Option<Finding> {
    let lacks = lacks.as_ref().ok()?;
    let gate_off = super::controller::gate_is_off(facts);
    // Without jobs no Secret has to be read, and the chart leaves out what is for that alone.
    let lacks: Vec<&str> = lacks
        .iter()
        .map(String::as_str)
        .filter(|right| !(gate_off && is_only_for_secrets(right)))
        .collect();
    if lacks.is_empty() {
        return None;
    }
    let secrets = if lacks.iter().any(|right| right.ends_with(" secrets")) {
        " Without Secrets no private image can be pulled."
    } else {
        ""
    };
    let account = format!("{}/{account}", facts.system.namespace);
    let says = format!("The ServiceAccount {account} may not {}.{secrets}", names(&lacks));
    Some(Finding::problem(says, RIGHTS))
}

/// A right that the controller needs only where it reads Secrets.
fn is_only_for_secrets(right: &str) -> bool {
    let resource = right.split(' ').nth(1).unwrap_or_default();
    let resource = resource.split('.').next().unwrap_or_default();
    let only = [
        "secrets",
        "serviceaccounts",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    only.contains(&resource)
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}", letters.as_str())
}
