//! Whether a controller leads, and what keeps it from it.

use super::{Area, Finding, names, unseen};
use crate::commands::doctor::facts::{Facts, Pod, System};

pub(super) fn controller(facts: &Facts) -> Area {
    let system = &facts.system;
    let mut findings = Vec::new();
    let elsewhere = elsewhere(system);
    let leads = match &elsewhere {
        Some(_) if is_bare(system) => None,
        Some(_) | None => lease(system, &mut findings),
    };
    findings.extend(elsewhere);
    if let Ok(pods) = &system.controllers {
        for pod in pods.iter().filter(|pod| !pod.ready) {
            let why = pod.trouble.as_deref().unwrap_or("it does not say why");
            let says = format!(
                "The pod {} of the controller is not ready: {}.",
                pod.name,
                why.trim_end_matches('.')
            );
            let look = format!("Look at it: kubectl -n {} describe pod {}", system.namespace, pod.name);
            findings.push(match leads {
                Some(_) => Finding::note(says, look),
                None => Finding::problem(says, look),
            });
        }
    }
    unseen("The controller's pods", &system.controllers, &mut findings);
    if gate_is_off(facts) {
        findings.push(Finding::problem(
            "The feature gate ImagePullJobGate is off: no job is served.",
            "Turn it on: helm upgrade with featureGates=ImagePullJobGate=true, or leave the flag out.",
        ));
    }
    if pods(system).any(|pod| pod.paused) {
        findings.push(Finding::note(
            "The controller was started with --pause: nothing new is handed out.",
            "Take the flag away when the pause is over: helm upgrade with controller.pause=false.",
        ));
    }
    findings.extend(gate_without_controller(facts));
    Area {
        name: "controller",
        fine: format!(
            "{} leads, in namespace {}.",
            leads.as_deref().unwrap_or("A replica"),
            system.namespace
        ),
        findings,
    }
}

/// Controllers of two namespaces know nothing of each other. One that is not where we look is what was meant, perhaps.
fn elsewhere(system: &System) -> Option<Finding> {
    let others: Vec<&str> = system.elsewhere.iter().map(String::as_str).collect();
    let first = others.first()?;
    let here = &system.namespace;
    Some(if is_bare(system) {
        Finding::problem(
            format!(
                "A controller is installed in another namespace than {here}: {}.",
                names(&others)
            ),
            format!("Look there: larder doctor --system-namespace {first}"),
        )
    } else {
        Finding::problem(
            format!(
                "Controllers are installed in {here} and also in {}; each hands out by itself, and they undo each other's work.",
                names(&others)
            ),
            "Uninstall all but one: helm list --all-namespaces",
        )
    })
}

/// Nothing of a controller was seen where we look.
fn is_bare(system: &System) -> bool {
    matches!(system.lease, Ok(None)) && pods(system).next().is_none()
}

/// Whether jobs are turned off, as far as the controller's pods show.
pub(super) fn gate_is_off(facts: &Facts) -> bool {
    pods(&facts.system).any(|pod| pod.gate_off)
}

/// A job asks new nodes to wait, and no controller lets them.
fn gate_without_controller(facts: &Facts) -> Option<Finding> {
    let job = facts.gating_job.as_deref()?;
    let mut pods = pods(&facts.system).peekable();
    pods.peek()?;
    (!pods.any(|pod| pod.gates_nodes)).then(|| {
        Finding::note(
            format!(
                "The job {job} has nodeGate, but the controller runs without --node-gate: no node waits for its images."
            ),
            "Switch it on: helm upgrade with controller.nodeGate.enabled=true; or take nodeGate out of the job.",
        )
    })
}

/// Whether the controller was told to send logins although the node policy is not enforced.
pub(super) fn accepts_no_policy(facts: &Facts) -> bool {
    pods(&facts.system).any(|pod| pod.accepts_no_policy)
}

/// The version that the controller runs, if all its pods run one.
pub(super) fn version(facts: &Facts) -> Option<&str> {
    let mut versions: Vec<&str> = pods(&facts.system).filter_map(|pod| pod.version.as_deref()).collect();
    versions.sort_unstable();
    versions.dedup();
    match versions.as_slice() {
        [one] => Some(one),
        _ => None,
    }
}

fn pods(system: &System) -> impl Iterator<Item = &Pod> {
    system.controllers.iter().flatten()
}

/// Who leads, and otherwise a finding.
fn lease(system: &System, findings: &mut Vec<Finding>) -> Option<String> {
    let namespace = &system.namespace;
    if system.exists == Ok(false) {
        findings.push(Finding::problem(
            format!("There is no namespace {namespace}: Larder is not installed, or elsewhere."),
            "Install it, or say where it is with --system-namespace.",
        ));
        return None;
    }
    unseen(
        &format!("The Lease larder-controller in {namespace}"),
        &system.lease,
        findings,
    );
    let pods: Vec<&str> = pods(system).map(|pod| pod.name.as_str()).collect();
    let look = format!("Look at its log: kubectl -n {namespace} logs deployment/larder-controller");
    let start = format!(
        "Install Larder into {namespace}, say where it is with --system-namespace, or, if it is there, see why it has no pod: \
         kubectl -n {namespace} describe deployment,replicaset"
    );
    match (&system.lease, pods.as_slice()) {
        (Err(_), _) => None,
        (Ok(None), []) => {
            findings.push(Finding::problem(
                format!("No controller has ever led: there is no Lease larder-controller in {namespace}, and no pod."),
                start,
            ));
            None
        }
        (Ok(None), pods) => {
            findings.push(Finding::problem(
                format!(
                    "No controller has ever led, although there are pods for it: {}.",
                    names(pods)
                ),
                look,
            ));
            None
        }
        (Ok(Some(lease)), pods) => match (&lease.holder, lease.renewed) {
            (Some(holder), true) => Some(holder.clone()),
            (holder, _) => {
                let last = match holder {
                    Some(holder) => format!("{holder} does not renew the Lease larder-controller any more"),
                    None => "the Lease larder-controller was given up".to_owned(),
                };
                let advice = if pods.is_empty() { start } else { look };
                findings.push(Finding::problem(format!("No controller leads: {last}."), advice));
                None
            }
        },
    }
}
