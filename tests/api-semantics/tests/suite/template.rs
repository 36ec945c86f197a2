//! What ImagePullJob and ImageListPullJob have in common: pace, end, pull rules.

use crate::case::{Case, accept, refuse};
use crate::selectors;

/// The cases of both kinds, around the line that names the image or images.
pub(crate) fn cases(images: &str) -> Vec<Case> {
    [
        parallelism(images),
        selectors::cases(images),
        completion_policy(images),
        pull_policy(images),
        image_pull_policy(images),
        extras(images),
        refresh_schedule(images),
        node_gate(images),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn parallelism(images: &str) -> Vec<Case> {
    let with = |value: &str| format!("{{{images}, parallelism: {value}}}");
    vec![
        accept("parallelism is a number", with("10")),
        accept("parallelism is a number in quotes", with("\"5\"")),
        accept("parallelism 0 pauses", with("0")),
        accept("parallelism 0 in quotes", with("\"0\"")),
        accept("empty parallelism counts as not given", with("\"\"")),
        accept("largest parallelism", with("2147483647")),
        accept("largest parallelism in quotes", with("\"2147483647\"")),
        refuse(
            "negative parallelism",
            with("-1"),
            "parallelism must be an integer from 0",
        ),
        refuse(
            "negative parallelism in quotes",
            with("\"-1\""),
            "parallelism must be an integer from 0",
        ),
        refuse(
            "parallelism in percent",
            with("\"5%\""),
            "parallelism does not support percentage",
        ),
        refuse(
            "parallelism beyond int32",
            with("2147483648"),
            "parallelism must be an integer from 0",
        ),
        refuse(
            "parallelism beyond int32 in quotes",
            with("\"2147483648\""),
            "parallelism must be an integer from 0",
        ),
        refuse(
            "parallelism is a word",
            with("many"),
            "parallelism must be an integer from 0",
        ),
        refuse(
            "parallelism with a blank",
            with("\" 5\""),
            "parallelism must be an integer from 0",
        ),
        refuse("parallelism is a fraction", with("1.5"), "spec.parallelism"),
        accept("parallelism is null", with("null")),
        refuse("parallelism is a list", with("[5]"), "spec.parallelism"),
    ]
}

fn completion_policy(images: &str) -> Vec<Case> {
    const NEVER: &str = "can only work with the Always completion policy type";
    let with = |value: &str| format!("{{{images}, completionPolicy: {value}}}");
    let times = |timeout: i64, deadline: i64| {
        format!(
            "{{{images}, pullPolicy: {{timeoutSeconds: {timeout}}}, completionPolicy: {{activeDeadlineSeconds: {deadline}}}}}"
        )
    };
    vec![
        accept("no completion policy", format!("{{{images}}}")),
        accept("completion policy is null", with("null")),
        accept("empty completion policy", with("{}")),
        accept("Always", with("{type: Always}")),
        accept("empty type counts as not given", with("{type: \"\"}")),
        accept(
            "the guides' completion policy",
            with("{type: Always, activeDeadlineSeconds: 1200, ttlSecondsAfterFinished: 300}"),
        ),
        accept("deleted as soon as it ends", with("{ttlSecondsAfterFinished: 0}")),
        accept("Never", with("{type: Never}")),
        refuse(
            "Never with deadline",
            with("{type: Never, activeDeadlineSeconds: 1200}"),
            NEVER,
        ),
        refuse(
            "Never with TTL",
            with("{type: Never, ttlSecondsAfterFinished: 300}"),
            NEVER,
        ),
        refuse(
            "type that nobody knows",
            with("{type: Sometimes}"),
            "spec.completionPolicy.type: Unsupported value: \"Sometimes\"",
        ),
        accept("deadline equals timeout", times(1200, 1200)),
        accept("deadline equals default timeout", with("{activeDeadlineSeconds: 600}")),
        refuse(
            "deadline 0",
            with("{activeDeadlineSeconds: 0}"),
            "spec.completionPolicy.activeDeadlineSeconds in body should be greater than or equal to 1",
        ),
        refuse(
            "negative TTL",
            with("{ttlSecondsAfterFinished: -1}"),
            "spec.completionPolicy.ttlSecondsAfterFinished in body should be greater than or equal to 0",
        ),
        refuse(
            "TTL in quotes",
            with("{ttlSecondsAfterFinished: \"5\"}"),
            "must be of type integer",
        ),
    ]
}

fn pull_policy(images: &str) -> Vec<Case> {
    let with = |value: &str| format!("{{{images}, pullPolicy: {value}}}");
    vec![
        accept("empty pull policy", with("{}")),
        accept("pull policy is null", with("null")),
        accept(
            "the guides' pull policy",
            with("{backoffLimit: 3, timeoutSeconds: 300}"),
        ),
        accept("shortest timeout", with("{timeoutSeconds: 1}")),
        accept("no retries", with("{backoffLimit: 0}")),
        refuse(
            "timeout 0",
            with("{timeoutSeconds: 0}"),
            "spec.pullPolicy.timeoutSeconds in body should be greater than or equal to 1",
        ),
        refuse(
            "negative timeout",
            with("{timeoutSeconds: -600}"),
            "spec.pullPolicy.timeoutSeconds in body should be greater than or equal to 1",
        ),
        refuse(
            "timeout beyond int32",
            with("{timeoutSeconds: 2147483648}"),
            "spec.pullPolicy.timeoutSeconds",
        ),
        refuse(
            "negative retries",
            with("{backoffLimit: -1}"),
            "spec.pullPolicy.backoffLimit in body should be greater than or equal to 0",
        ),
        refuse(
            "retries is a fraction",
            with("{backoffLimit: 1.5}"),
            "must be of type integer",
        ),
        refuse("pull policy is a word", with("Always"), "must be of type object"),
    ]
}

fn image_pull_policy(images: &str) -> Vec<Case> {
    const UNKNOWN: &str = "spec.imagePullPolicy: Unsupported value";
    let with = |value: &str| format!("{{{images}, imagePullPolicy: {value}}}");
    vec![
        accept("image pull policy Always", with("Always")),
        accept("image pull policy IfNotPresent", with("IfNotPresent")),
        accept("empty image pull policy counts as not given", with("\"\"")),
        refuse("image pull policy Never", with("Never"), UNKNOWN),
        refuse("image pull policy in lower case", with("always"), UNKNOWN),
        refuse("image pull policy is a bool", with("true"), "spec.imagePullPolicy"),
    ]
}

fn refresh_schedule(images: &str) -> Vec<Case> {
    const FIELDS: &str = "refreshSchedule must be five cron fields";
    let with = |value: &str| format!("{{{images}, completionPolicy: {{type: Never}}, {value}}}");
    let schedule = |value: &str| with(&format!("refreshSchedule: \"{value}\""));
    vec![
        accept("every night", schedule("0 3 * * *")),
        accept(
            "lists, ranges, steps and names",
            schedule("0,30 1-5/2,22 */2 Jan-mar,12 MON-Fri,sun"),
        ),
        accept("largest numbers", schedule("59 23 31 12 7")),
        accept("word for a schedule", schedule("@daily")),
        accept(
            "schedule with a time zone",
            with("refreshSchedule: \"0 3 * * *\", refreshTimeZone: Europe/Berlin"),
        ),
        accept("schedule is null", with("refreshSchedule: null")),
        refuse("four fields", schedule("0 3 * *"), FIELDS),
        refuse("six fields", schedule("0 0 3 * * *"), FIELDS),
        refuse("word that stands for no schedule", schedule("@sometimes"), FIELDS),
        refuse("interval", schedule("@every 1h"), FIELDS),
        refuse(
            "empty schedule",
            schedule(""),
            "spec.refreshSchedule in body should be at least 1 chars long",
        ),
        refuse(
            "minute 60",
            schedule("60 3 * * *"),
            "refreshSchedule: the minute must be",
        ),
        refuse("hour 24", schedule("0 24 * * *"), "refreshSchedule: the hour must be"),
        refuse(
            "day 32",
            schedule("0 3 32 * *"),
            "refreshSchedule: the day of the month must be",
        ),
        refuse("month 0", schedule("0 3 * 0 *"), "refreshSchedule: the month must be"),
        refuse(
            "day of the week 8",
            schedule("0 3 * * 8"),
            "refreshSchedule: the day of the week must be",
        ),
        refuse(
            "day of the week in full",
            schedule("0 3 * * Monday"),
            "refreshSchedule: the day of the week must be",
        ),
        refuse("step 0", schedule("*/0 3 * * *"), "refreshSchedule: the minute must be"),
        refuse(
            "schedule of a job that ends",
            format!("{{{images}, refreshSchedule: \"0 3 * * *\"}}"),
            "refreshSchedule can only work with the Never completion policy type",
        ),
        refuse(
            "time zone without a schedule",
            with("refreshTimeZone: Europe/Berlin"),
            "refreshTimeZone has no meaning without refreshSchedule",
        ),
    ]
}

fn extras(images: &str) -> Vec<Case> {
    const MAX_FAILURES: &str = "maxFailures must be a count of nodes (0 or more) or a percentage";
    let with = |value: &str| format!("{{{images}, {value}}}");
    let failures = |value: &str| with(&format!("failurePolicy: {{maxFailures: {value}}}"));
    vec![
        accept("pull secrets", with("pullSecrets: [secret-name1, secret-name2]")),
        refuse(
            "pull secret in capitals",
            with("pullSecrets: [My-Secret]"),
            "spec.pullSecrets[0]",
        ),
        refuse(
            "pull secret of another namespace",
            with("pullSecrets: [other/secret]"),
            "spec.pullSecrets[0]",
        ),
        refuse(
            "pull secret without name",
            with("pullSecrets: [\"\"]"),
            "spec.pullSecrets[0]",
        ),
        accept(
            "sandbox config",
            with(
                "sandboxConfig: {annotations: {io.kubernetes.image.metrics.tags: \"cluster=cn-shanghai\"}, labels: {io.kubernetes.image.app: foo}}",
            ),
        ),
        refuse(
            "sandbox label that is a number",
            with("sandboxConfig: {labels: {a: 1}}"),
            "spec.sandboxConfig.labels.a",
        ),
        accept("pin", with("pin: true")),
        refuse("pin is a word", with("pin: forever"), "spec.pin"),
        accept("empty failure policy", with("failurePolicy: {}")),
        accept("no failures", failures("0")),
        accept("count of failures", failures("3")),
        accept("count of failures in quotes", failures("\"7\"")),
        accept("share of failures", failures("\"10%\"")),
        accept("all may fail", failures("\"100%\"")),
        accept("empty max failures counts as not given", failures("\"\"")),
        refuse("negative failures", failures("-1"), MAX_FAILURES),
        refuse("negative failures in quotes", failures("\"-1\""), MAX_FAILURES),
        refuse("more than all may fail", failures("\"101%\""), MAX_FAILURES),
        refuse("fraction of a percent", failures("\"5.5%\""), MAX_FAILURES),
        refuse("failures is a word", failures("few"), MAX_FAILURES),
        refuse(
            "failures is a fraction",
            failures("0.5"),
            "spec.failurePolicy.maxFailures",
        ),
        accept(
            "tolerations",
            with("tolerations: [{operator: Exists}, {key: gpu, operator: Equal, value: a100, effect: NoSchedule}]"),
        ),
        accept("no tolerations", with("tolerations: []")),
        refuse(
            "toleration with an operator that nobody knows",
            with("tolerations: [{operator: In}]"),
            "spec.tolerations[0].operator: Unsupported value: \"In\"",
        ),
        refuse(
            "toleration of an effect that nobody knows",
            with("tolerations: [{effect: Never}]"),
            "spec.tolerations[0].effect: Unsupported value: \"Never\"",
        ),
    ]
}

fn node_gate(images: &str) -> Vec<Case> {
    const NEVER: &str = "nodeGate works only with completionPolicy.type Never";
    let with = |value: &str| format!("{{{images}, {value}}}");
    vec![
        accept("nodes wait", with("nodeGate: true, completionPolicy: {type: Never}")),
        accept("nodes do not wait", with("nodeGate: false")),
        accept("nodeGate is null", with("nodeGate: null")),
        refuse("nodes wait for a job that ends", with("nodeGate: true"), NEVER),
        refuse(
            "nodes wait for a job of type Always",
            with("nodeGate: true, completionPolicy: {type: Always}"),
            NEVER,
        ),
        refuse(
            "nodes wait that are selected by their pods",
            with("nodeGate: true, completionPolicy: {type: Never}, podSelector: {matchLabels: {a: b}}"),
            "can not set both nodeGate and podSelector",
        ),
        refuse("nodeGate is a word", with("nodeGate: maybe"), "spec.nodeGate"),
    ]
}
