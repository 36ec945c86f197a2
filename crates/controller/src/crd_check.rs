//! Whether the CRDs in the cluster can hold what Larder writes, and nobody else serves them.
//!
//! The API server silently drops a field that a CRD's schema does not know. If another chart put an older schema in the
//! place of ours, orders would lose their claims and jobs their conditions, and nobody would see why. So the four CRDs are
//! compared with those that this program was built with, and watched; while one of them falls short, the controller is
//! unready, hands out nothing and says what is wrong.
//!
//! A schema that knows more than ours is fine: that is a newer Larder, or somebody's addition. The same goes for an
//! OpenKruise that leaves these kinds alone; one that serves them is treated like a wrong CRD (see `conflicting_install`).

mod compare;
mod conflicting_install;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use self::compare::shortcoming;
pub use self::conflicting_install::conflicting_installs;
use crate::error_chain::chain;

/// What is known about the CRDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdState {
    /// Not all of them were seen yet.
    Unknown,
    /// All of them can hold what Larder writes, and Larder alone serves them.
    Fine,
    /// It is not so: a sentence that says what to change.
    Wrong(String),
}

/// Watches the CRDs until `stop`, and tells every change of the answer.
pub async fn watch_crds(client: Client, state: watch::Sender<CrdState>, stop: CancellationToken) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let ours: BTreeMap<String, CustomResourceDefinition> = larder_api::crds()
        .into_iter()
        .map(|crd| (crd.name_any(), crd))
        .collect();
    // One watch each: a list of all CRDs of a cluster can be tens of megabytes, and RBAC grants these four by name.
    let streams = ours.keys().map(|name| {
        let ours = ours.get(name).cloned();
        let name = name.clone();
        watch_object(definitions.clone(), &name)
            .default_backoff()
            .map(move |event| {
                let answer = event.map(|theirs| ours.as_ref().and_then(|ours| lack(ours, theirs.as_ref())));
                (name.clone(), answer)
            })
            .boxed()
    });
    let streams = streams.chain(conflicting_install::streams(&client));
    let mut events = pin!(stream::select_all(streams).take_until(stop.cancelled_owned()));
    let mut answers: BTreeMap<String, Option<String>> = BTreeMap::new();
    // Whose watch failed and has not shown anything since: a lasting failure is logged once.
    let mut troubled: BTreeSet<String> = BTreeSet::new();
    while let Some((name, event)) = events.next().await {
        match event {
            Ok(answer) => {
                troubled.remove(&name);
                answers.insert(name, answer);
            }
            Err(error) => {
                if troubled.insert(name.clone()) {
                    warn!(name, error = chain(&error), "an object cannot be watched; trying again");
                }
                continue;
            }
        }
        publish(
            &state,
            if answers.len() == ours.len() + conflicting_install::WATCHED {
                judge(&answers)
            } else {
                CrdState::Unknown
            },
        );
    }
}

fn judge(answers: &BTreeMap<String, Option<String>>) -> CrdState {
    let wrong: Vec<&str> = answers.values().flatten().map(String::as_str).collect();
    if wrong.is_empty() {
        return CrdState::Fine;
    }
    CrdState::Wrong(format!("{}. Nothing is handed out until then", wrong.join("; ")))
}

/// The same with what to do about it.
fn lack(ours: &CustomResourceDefinition, theirs: Option<&CustomResourceDefinition>) -> Option<String> {
    shortcoming(ours, theirs)
        .map(|lack| format!("{lack}. Apply Larder's own, for example by: larder crds | kubectl apply -f -"))
}

fn publish(sender: &watch::Sender<CrdState>, state: CrdState) {
    sender.send_if_modified(|before| {
        if *before == state {
            return false;
        }
        match &state {
            CrdState::Unknown => {}
            CrdState::Fine => info!("the CRDs can hold what Larder writes, and nobody else serves them"),
            CrdState::Wrong(sentence) => error!(
                sentence,
                "the CRDs cannot hold what Larder writes, or are served by another"
            ),
        }
        *before = state;
        true
    });
}
