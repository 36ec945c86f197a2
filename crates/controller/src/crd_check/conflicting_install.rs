//! Whether OpenKruise serves the same kinds in this cluster.
//!
//! Two that serve one object undo each other's work: OpenKruise's daemon pulls what our agents were told, and its webhooks
//! refuse or change what we write. What counts is not whether OpenKruise is installed, but whether its daemon runs or its
//! webhooks are asked about these kinds: one without them may go on creating jobs for us from its workloads.

use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Client, Error, Resource};
use larder_api::names::{
    KRUISE_DAEMON, KRUISE_GROUP, KRUISE_MUTATING_WEBHOOKS, KRUISE_NAMESPACE, KRUISE_VALIDATING_WEBHOOKS,
};
use serde::de::DeserializeOwned;

/// The kinds that both serve.
const RESOURCES: [&str; 3] = ["imagepulljobs", "imagelistpulljobs", "nodeimages"];

/// What is looked at, by name.
pub(super) const WATCHED: usize = 3;

/// The name of what was looked at, and a sentence if it is in the way.
pub(super) type Found = (String, Result<Option<String>, watcher::Error>);

/// What of OpenKruise is in the way at this moment, a sentence for each. What this API server does not serve, or does not let
/// us see, is not in the way.
pub async fn conflicting_installs(client: &Client) -> Result<Vec<String>, Error> {
    let daemons = Api::<DaemonSet>::namespaced(client.clone(), KRUISE_NAMESPACE);
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let (daemon, mutating, validating) = futures::join!(
        daemons.get_opt(KRUISE_DAEMON),
        mutating.get_opt(KRUISE_MUTATING_WEBHOOKS),
        validating.get_opt(KRUISE_VALIDATING_WEBHOOKS),
    );
    let sentences = [
        shown(daemon)?.as_ref().and_then(daemon_is_in_the_way),
        shown(mutating)?.as_ref().and_then(mutating_are_in_the_way),
        shown(validating)?.as_ref().and_then(validating_are_in_the_way),
    ];
    Ok(sentences.into_iter().flatten().collect())
}

fn shown<K>(answer: Result<Option<K>, Error>) -> Result<Option<K>, Error> {
    match answer {
        Err(Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        answer => answer,
    }
}

/// One stream for each part of OpenKruise that may be in the way. One that this API server does not serve, or does not let
/// us see, says once that nothing is in the way and ends.
pub(super) fn streams(client: &Client) -> Vec<BoxStream<'static, Found>> {
    vec![
        look(
            Api::<DaemonSet>::namespaced(client.clone(), KRUISE_NAMESPACE),
            KRUISE_DAEMON,
            daemon_is_in_the_way,
        ),
        look(
            Api::<MutatingWebhookConfiguration>::all(client.clone()),
            KRUISE_MUTATING_WEBHOOKS,
            mutating_are_in_the_way,
        ),
        look(
            Api::<ValidatingWebhookConfiguration>::all(client.clone()),
            KRUISE_VALIDATING_WEBHOOKS,
            validating_are_in_the_way,
        ),
    ]
}

fn look<K>(api: Api<K>, name: &'static str, judge: fn(&K) -> Option<String>) -> BoxStream<'static, Found>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watch_object(api, name)
        .default_backoff()
        .scan(false, move |over, event| {
            if *over {
                return futures::future::ready(None);
            }
            let answer = match event {
                Ok(found) => Ok(found.as_ref().and_then(judge)),
                Err(error) if is_not_for_us(&error) => {
                    *over = true;
                    Ok(None)
                }
                Err(error) => Err(error),
            };
            futures::future::ready(Some((name.to_owned(), answer)))
        })
        .boxed()
}

/// The kind is not served, or not shown to us.
fn is_not_for_us(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(Error::Api(status)) | watcher::Error::WatchStartFailed(Error::Api(status))) =
        error
    else {
        return false;
    };
    matches!(status.code, 403 | 404)
}

fn daemon_is_in_the_way(daemon: &DaemonSet) -> Option<String> {
    let wanted = daemon
        .status
        .as_ref()
        .map_or(0, |status| status.desired_number_scheduled);
    (wanted > 0 && daemon.metadata.deletion_timestamp.is_none()).then(|| {
        format!(
            "OpenKruise serves NodeImages in this cluster: its DaemonSet {KRUISE_NAMESPACE}/{KRUISE_DAEMON} runs on {wanted} nodes. \
             Turn it off with OpenKruise's feature gate KruiseDaemon=false"
        )
    })
}

fn mutating_are_in_the_way(found: &MutatingWebhookConfiguration) -> Option<String> {
    let rules = found.webhooks.iter().flatten().filter_map(|hook| hook.rules.as_ref());
    webhooks_are_in_the_way(KRUISE_MUTATING_WEBHOOKS, rules)
}

fn validating_are_in_the_way(found: &ValidatingWebhookConfiguration) -> Option<String> {
    let rules = found.webhooks.iter().flatten().filter_map(|hook| hook.rules.as_ref());
    webhooks_are_in_the_way(KRUISE_VALIDATING_WEBHOOKS, rules)
}

fn webhooks_are_in_the_way<'a>(name: &str, rules: impl Iterator<Item = &'a Vec<RuleWithOperations>>) -> Option<String> {
    let asked: Vec<_> = rules.flatten().filter(|rule| is_of_our_group(rule)).collect();
    let of_ours = RESOURCES.iter().filter(|resource| {
        let named = |rule: &&RuleWithOperations| {
            let resources = rule.resources.iter().flatten();
            resources
                .clone()
                .any(|given| given == *resource || given == "*" || given == "*/*")
        };
        asked.iter().any(named)
    });
    let of_ours: Vec<&str> = of_ours.copied().collect();
    (!of_ours.is_empty()).then(|| {
        format!(
            "OpenKruise serves {} in this cluster: its {name} is asked about them. \
             Take these entries out of it: OpenKruise's feature gates leave them in",
            of_ours.join(", ")
        )
    })
}

fn is_of_our_group(rule: &RuleWithOperations) -> bool {
    let mut groups = rule.api_groups.iter().flatten();
    groups.any(|group| group == KRUISE_GROUP || group == "*")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::running(json!({ "status": { "desiredNumberScheduled": 3 } }), true)]
    #[case::on_no_node(json!({ "status": { "desiredNumberScheduled": 0 } }), false)]
    #[case::being_deleted(json!({
        "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "desiredNumberScheduled": 3 },
    }), false)]
    fn a_daemon_is_in_the_way_while_it_is_wanted_on_a_node(#[case] mut daemon: Value, #[case] wanted: bool) {
        for counter in ["currentNumberScheduled", "numberMisscheduled", "numberReady"] {
            daemon["status"][counter] = json!(0);
        }
        let daemon = serde_json::from_value(daemon).unwrap();
        assert_eq!(daemon_is_in_the_way(&daemon).is_some(), wanted);
    }

    #[rstest]
    #[case::ours("apps.kruise.io", "nodeimages", Some("nodeimages"))]
    #[case::everything("*", "*", Some("imagepulljobs, imagelistpulljobs, nodeimages"))]
    #[case::another_kind("apps.kruise.io", "clonesets", None)]
    #[case::another_group("apps", "nodeimages", None)]
    #[case::status_alone("apps.kruise.io", "nodeimages/status", None)]
    fn webhooks_are_in_the_way_if_asked_about_our_kinds(
        #[case] group: &str,
        #[case] resource: &str,
        #[case] named: Option<&str>,
    ) {
        let rule = json!([{ "apiGroups": [group], "resources": [resource], "operations": ["CREATE"] }]);
        let rules: Vec<RuleWithOperations> = serde_json::from_value(rule).unwrap();
        let sentence = webhooks_are_in_the_way(KRUISE_MUTATING_WEBHOOKS, std::iter::once(&rules));
        assert_eq!(sentence.is_some(), named.is_some());
        if let (Some(sentence), Some(named)) = (sentence, named) {
            assert!(sentence.contains(&format!("serves {named} in")), "{sentence}");
        }
    }
}
