//! ImagePullJob: one image onto many nodes, as a campaign.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use kube_core::Resource;
use larder_api::ImagePullJob;
use larder_api::rules::REFRESH_WITHOUT_NEVER;
use larder_api::template::{NodeSelector, PullTemplate};
use larder_model::{ImageRef, PullWhen};

use crate::campaign::{Campaign, Ending, MaxFailures, PullRules, RESPONSE_TIME, SecretScope, parallelism};
use crate::schedule::Schedule;
use crate::secret::SecretRef;
use crate::select::{LabelRule, SelectBy, Selection};
use crate::task::{NodeTask, TaskImage, Tasks};
use crate::windows::Windows;

/// What upstream's webhook would write for a policy that is not given; an empty text counts as not given.
fn pull_when(policy: Option<&str>) -> Result<PullWhen, String> {
    match policy.unwrap_or_default() {
        "" => Ok(PullWhen::IfNotPresent),
        given => given
            .parse()
            .map_err(|error: larder_model::UnknownWord| error.to_string()),
    }
}

/// The campaign that a job asks for, or what to change in it. The API server has refused most of what ends here; what is
/// left are objects from before its rules.
pub fn campaign(job: &ImagePullJob) -> Result<Campaign, String> {
    let template = &job.spec.template;
    let policy = &template.completion_policy;
    let seconds = SignedDuration::from_secs;
    let ending = if policy.is_never() {
        Ending::Never
    } else {
        Ending::Always {
            deadline: policy.active_deadline_seconds.map(seconds),
            ttl: policy.ttl_seconds_after_finished.map(|ttl| seconds(ttl.into())),
        }
    };
    let max_failures = template
        .failure_policy
        .as_ref()
        .and_then(|policy| policy.max_failures.as_ref());
    let max_failures = max_failures
        .map(MaxFailures::parse)
        .transpose()
        .map_err(|error| error.to_string())?;
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let secret = |name: &String| SecretRef {
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let secrets: Vec<SecretRef> = template.pull_secrets.iter().map(secret).collect();
    let image = ImageRef::parse(&job.spec.image).map_err(|error| error.to_string())?;
    let task = NodeTask::new(vec![TaskImage::new(image, secrets.clone())], Vec::new());
    Ok(Campaign {
        owner: reference(job),
        tasks: Tasks::shared(task),
        selection: selection(template)?,
        parallelism: parallelism(template.parallelism.as_ref()).map_err(|error| error.to_string())?,
        priority: template.priority,
        ending,
        rules: PullRules {
            timeout_seconds: template.pull_policy.timeout_seconds.max(1),
            backoff_limit: template.pull_policy.backoff_limit.max(0),
            when: pull_when(job.spec.image_pull_policy.as_deref())?,
            sandbox: template.sandbox_config.clone(),
            pin: template.pin.unwrap_or(false),
            checks: Vec::new(),
        },
        max_failures: max_failures.flatten(),
        failed_before: 0,
        secrets,
        secret_scope: SecretScope::Campaign,
        response_time: RESPONSE_TIME,
        node_timeout: None,
        windows: Windows::parse(&template.windows, template.window_end).map_err(|error| error.to_string())?,
        refresh: refresh(template)?,
        gates_nodes: gates_nodes(template)?,
    })
}

/// When a job that never ends refreshes. One that ends has nothing to refresh.
fn refresh(template: &PullTemplate) -> Result<Option<Schedule>, String> {
    let Some(schedule) = &template.refresh_schedule else {
        return Ok(None);
    };
    if !template.completion_policy.is_never() {
        return Err(REFRESH_WITHOUT_NEVER.to_owned());
    }
    let schedule = Schedule::parse(schedule, template.refresh_time_zone.as_deref());
    schedule.map(Some).map_err(|error| error.to_string())
}

fn gates_nodes(template: &PullTemplate) -> Result<bool, String> {
    let gates = template.node_gate.unwrap_or(false);
    if gates && !template.completion_policy.is_never() {
        return Err("nodeGate works only with completionPolicy.type Never; set that, or leave nodeGate out".to_owned());
    }
    if gates && template.pod_selector.is_some() {
        return Err(
            "nodeGate and podSelector exclude each other: no pods run on nodes that wait; use selector".to_owned(),
        );
    }
    Ok(gates)
}

/// How entries name their owner, as upstream writes it.
pub fn reference(job: &ImagePullJob) -> ObjectReference {
    ObjectReference {
        api_version: Some(ImagePullJob::api_version(&()).into_owned()),
        kind: Some(ImagePullJob::kind(&()).into_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn selection(template: &PullTemplate) -> Result<Selection, String> {
    let by = match (&template.selector, &template.pod_selector) {
        (_, Some(pods)) => SelectBy::Pods(LabelRule::parse(pods).map_err(|error| error.to_string())?),
        (None, None) => SelectBy::All,
        (Some(nodes), None) => by_node(nodes)?,
    };
    Ok(Selection {
        by,
        tolerations: template.tolerations.clone(),
    })
}

fn by_node(selector: &NodeSelector) -> Result<SelectBy, String> {
    if !selector.names.is_empty() {
        return Ok(SelectBy::Names(selector.names.iter().cloned().collect()));
    }
    if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
        return Ok(SelectBy::All);
    }
    let rule = LabelRule::new(&selector.match_labels, &selector.match_expressions);
    rule.map(SelectBy::Labels).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn job(spec: &Value) -> ImagePullJob {
        let object = json!({
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "ImagePullJob",
            "metadata": {"name": "job", "namespace": "team", "uid": "u"},
            "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn upstreams_defaults() {
        let campaign = campaign(&job(&json!({"image": "nginx"}))).unwrap();
        assert_eq!(
            campaign.tasks.of("a").unwrap().images()[0].image.familiar(),
            "nginx:latest"
        );
        assert_eq!((campaign.parallelism, campaign.selection.by), (1, SelectBy::All));
        assert_eq!((campaign.rules.timeout_seconds, campaign.rules.backoff_limit), (600, 3));
        assert_eq!(campaign.rules.when, PullWhen::IfNotPresent);
        let when_all_are_done = Ending::Always {
            deadline: None,
            ttl: None,
        };
        assert_eq!(campaign.ending, when_all_are_done);
        assert_eq!(campaign.owner.api_version.as_deref(), Some("apps.kruise.io/v1beta1"));
    }

    #[rstest]
    #[case::empty_selector(json!({"selector": {}}), SelectBy::All)]
    #[case::empty_names(json!({"selector": {"names": []}}), SelectBy::All)]
    #[case::names(json!({"selector": {"names": ["b", "a"]}}), SelectBy::Names(["a".to_owned(), "b".to_owned()].into()))]
    fn selects(#[case] template: Value, #[case] want: SelectBy) {
        let mut spec = json!({"image": "nginx"});
        spec.as_object_mut()
            .unwrap()
            .extend(template.as_object().unwrap().clone());
        assert_eq!(campaign(&job(&spec)).unwrap().selection.by, want);
    }

    #[test]
    fn a_never_job_and_everything_else_that_can_be_said() {
        let spec = json!({
            "image": "nginx:1", "imagePullPolicy": "Always", "parallelism": "7", "priority": -3, "pin": true,
            "completionPolicy": {"type": "Never"}, "pullSecrets": ["a"],
            "podSelector": {"matchLabels": {"app": "web"}},
            "failurePolicy": {"maxFailures": "10%"},
            "refreshSchedule": "0 3 * * *", "refreshTimeZone": "Europe/Berlin",
        });
        let campaign = campaign(&job(&spec)).unwrap();
        let nightly = Schedule::parse("0 3 * * *", Some("Europe/Berlin")).unwrap();
        assert_eq!(campaign.refresh, Some(nightly));
        assert!(campaign.is_endless() && campaign.rules.pin);
        assert_eq!((campaign.parallelism, campaign.rules.when), (7, PullWhen::Always));
        assert_eq!(campaign.priority, -3);
        assert_eq!(campaign.max_failures, Some(MaxFailures::Percent(10)));
        assert!(matches!(campaign.selection.by, SelectBy::Pods(_)));
        assert_eq!(campaign.secrets[0].to_string(), "team/a");
    }

    #[rstest]
    #[case::image(json!({"image": "UPPER/case"}), "")]
    #[case::percent(json!({"image": "nginx", "parallelism": "10%"}), "parallelism")]
    #[case::policy(json!({"image": "nginx", "imagePullPolicy": "Sometimes"}), "imagePullPolicy")]
    #[case::zone(json!({"image": "nginx", "windows": [{"from": "22:00", "to": "06:00", "timeZone": "Europe/Atlantis"}]}), "Atlantis")]
    #[case::schedule(json!({"image": "nginx", "completionPolicy": {"type": "Never"}, "refreshSchedule": "0 24 * * *"}), "hour")]
    #[case::schedule_that_ends(json!({"image": "nginx", "refreshSchedule": "0 3 * * *"}), "Never")]
    fn what_cannot_be_carried_out_is_said(#[case] spec: Value, #[case] names: &str) {
        let refusal = campaign(&job(&spec)).unwrap_err();
        assert!(refusal.contains(names) && !refusal.is_empty(), "{refusal}");
    }
}
