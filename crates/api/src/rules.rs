//! Every refusal that the API server can make by itself, as CEL rules with the sentence that people read.
//!
//! What CEL cannot see (the members of image objects, how long an image's full name is, whether brackets hold an address)
//! the controller refuses later, in the job's status. Cross-checks between fields stand here; ranges and enumerations stand
//! in the schema.
//!
//! The rules keep to what every evaluator has: no `sortBy`, no `cel.bind`, no two-variable comprehensions.

use serde_json::{Value, json};

/// Docker's grammar of references in one expression: host, path, tag, digest. The first element of several is a host if
/// it has a dot, a port or brackets, or is `localhost`; otherwise it is a part of the path, and has no dot.
/// `larder_model::ImageRef` has the same grammar; a test compares the two.
fn reference() -> String {
    let label = "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?";
    let port = ":0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
    let host =
        format!(r"{label}([.]{label})*{port}|{label}([.]{label})+|localhost|\\[[a-fA-F0-9]*:[a-fA-F0-9:]*\\]({port})?");
    let element = "[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*";
    let without_dot = "[a-z0-9]+((__?|-+)[a-z0-9]+)*";
    let name = format!("({host})/{element}(/{element})*|{without_dot}(/{element})+|{element}");
    let tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    let digest = "sha(256:[a-f0-9]{64}|384:[a-f0-9]{96}|512:[a-f0-9]{128})";
    format!("^({name})(:{tag})?(@{digest})?$")
}

/// At most 255 characters before tag and digest, as Docker's own libraries count.
const NAME_LENGTH: &str = "^[^@]{1,255}(:[^:/@]*)?(@.*)?$";

/// A label's key: an optional DNS prefix and a name of up to 63 characters.
pub(crate) const LABEL_KEY: &str = concat!(
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    "([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$",
);

/// A name that Docker takes for an image id, and refuses as a reference.
const IMAGE_ID: &str = "^([a-f0-9]{64}|sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$";

fn rule(expression: &str, message: &str) -> Value {
    json!({ "rule": expression, "message": message })
}

/// On one image reference.
pub fn image() -> Value {
    json!([
        rule(
            &format!("self.matches('{}')", reference()),
            "invalid image: it must be [host[:port]/]name[:tag][@digest], with the name in lower case"
        ),
        rule(
            &format!("!self.matches('{IMAGE_ID}')"),
            "invalid image: an image id cannot be pulled; give a name with a tag or a digest"
        ),
        rule(
            &format!("self.matches('{NAME_LENGTH}')"),
            "invalid image: the name without tag and digest must have at most 255 characters"
        ),
    ])
}

/// On `parallelism`. An empty string counts as not given.
pub fn parallelism() -> Value {
    json!([
        rule(
            "type(self) != string || !self.endsWith('%')",
            "parallelism does not support percentage; give a number of nodes"
        ),
        rule(
            "type(self) == string ? (self == '' || self.matches('^[0-9]{1,10}$') && int(self) <= 2147483647) : (self >= 0 && self <= 2147483647)",
            "parallelism must be an integer from 0 (paused) to 2147483647"
        ),
    ])
}

/// On `failurePolicy.maxFailures`.
pub fn max_failures() -> Value {
    json!([rule(
        "type(self) == string ? self.matches('^(([0-9]|[1-9][0-9]|100)%|[0-9]{1,9})?$') : (self >= 0 && self <= 2147483647)",
        "maxFailures must be a count of nodes (0 or more) or a percentage from \"0%\" to \"100%\""
    )])
}

/// On one requirement of a label selector.
pub fn requirement() -> Value {
    json!([
        rule(
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
            "values must be given when operator is In or NotIn"
        ),
        rule(
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
            "values must not be given when operator is Exists or DoesNotExist"
        ),
    ])
}

/// On `matchLabels`.
pub fn match_labels() -> Value {
    json!([rule(
        &format!("self.all(key, size(key) <= 317 && key.matches('{LABEL_KEY}'))"),
        "a label key must be [prefix/]name: up to 63 letters, digits, '-', '_' and '.', after a DNS name if there is a prefix"
    )])
}

/// On `selector` of a Kruise kind.
pub fn node_selector() -> Value {
    json!([rule(
        "!(has(self.names) && size(self.names) > 0) || !((has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0))",
        "selector can not have both names and a label selector; set only one of them"
    )])
}

/// On `completionPolicy`.
pub fn completion_policy() -> Value {
    json!([rule(
        "!(has(self.type) && self.type == 'Never') || (!has(self.activeDeadlineSeconds) && !has(self.ttlSecondsAfterFinished))",
        "activeDeadlineSeconds and ttlSecondsAfterFinished can only work with the Always completion policy type"
    )])
}

/// On whatever holds `windows`.
fn window_end() -> Value {
    rule(
        "!has(self.windowEnd) || (has(self.windows) && size(self.windows) > 0)",
        "windowEnd has no meaning without windows; give windows, or leave windowEnd out",
    )
}

/// What is said of a `refreshSchedule` in a job that ends.
pub const REFRESH_WITHOUT_NEVER: &str =
    "refreshSchedule can only work with the Never completion policy type; an Always job refreshes nothing";

/// On the spec of both Kruise jobs.
fn refresh() -> [Value; 2] {
    [
        rule(
            "!has(self.refreshSchedule) || (has(self.completionPolicy) && has(self.completionPolicy.type) && self.completionPolicy.type == 'Never')",
            REFRESH_WITHOUT_NEVER,
        ),
        rule(
            "!has(self.refreshTimeZone) || has(self.refreshSchedule)",
            "refreshTimeZone has no meaning without refreshSchedule; give refreshSchedule, or leave refreshTimeZone out",
        ),
    ]
}

/// On `refreshSchedule`, field by field. Ranges that end before they begin, and days that no month has, are left to the
/// controller.
pub fn refresh_schedule() -> Value {
    const WORDS: &str = "@(hourly|daily|midnight|weekly|monthly|yearly|annually)";
    const FIVE: &str = "[^ ]+( +[^ ]+){4}";
    const FIELDS: [(&str, &str, &str); 5] = [
        ("minute", "[0-5]?[0-9]", "a number from 0 to 59"),
        ("hour", "[01]?[0-9]|2[0-3]", "a number from 0 to 23"),
        ("day of the month", "0?[1-9]|[12][0-9]|3[01]", "a number from 1 to 31"),
        (
            "month",
            "0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
            "a number from 1 to 12, a name from Jan to Dec",
        ),
        (
            "day of the week",
            "0?[0-7]|sun|mon|tue|wed|thu|fri|sat",
            "a number from 0 to 7 (both are Sunday), a name from Mon to Sun",
        ),
    ];
    let mut rules = vec![rule(
        &format!("self.matches('^({WORDS}|{FIVE})$')"),
        "refreshSchedule must be five cron fields (minute, hour, day of the month, month, day of the week) such as \"0 3 * * *\", \
         or one of @hourly, @daily, @weekly, @monthly and @yearly",
    )];
    for (position, (field, value, meant)) in FIELDS.into_iter().enumerate() {
        let part = format!("([*]|({value})(-({value}))?)(/0?[1-9]|/[1-9][0-9])?");
        // Another number of fields is the first rule's business.
        let expression =
            format!("!self.matches('^{FIVE}$') || self.matches('(?i)^([^ ]+ +){{{position}}}{part}(,{part})*( |$)')");
        let message = format!(
            "refreshSchedule: the {field} must be *, {meant}, a range such as 1-5, a step such as */2, or a list of these"
        );
        rules.push(rule(&expression, &message));
    }
    Value::Array(rules)
}

/// On the spec of both Kruise jobs. A job that ends has nothing to say about nodes that join later.
fn node_gate_never_ends() -> Value {
    rule(
        "!has(self.nodeGate) || !self.nodeGate || (has(self.completionPolicy) && has(self.completionPolicy.type) && self.completionPolicy.type == 'Never')",
        "nodeGate works only with completionPolicy.type Never; set that, or leave nodeGate out",
    )
}

/// On the spec of both Kruise jobs. No pod runs on a node that waits, so the job would not select it.
fn node_gate_by_node() -> Value {
    rule(
        "!has(self.nodeGate) || !self.nodeGate || !has(self.podSelector)",
        "can not set both nodeGate and podSelector, because no pods run on nodes that wait; use selector",
    )
}

/// On the spec of both Kruise jobs.
fn one_selector() -> Value {
    rule(
        "!(has(self.selector) && has(self.podSelector))",
        "can not set both selector and podSelector; set only one of them",
    )
}

/// On the specs of both Kruise jobs.
fn kruise_job_spec() -> Vec<Value> {
    let [only_with_never, time_zone] = refresh();
    vec![
        one_selector(),
        window_end(),
        only_with_never,
        time_zone,
        node_gate_never_ends(),
        node_gate_by_node(),
    ]
}

/// On the spec of an ImagePullJob. `pullPolicy` and `completionPolicy` have defaults, but an object that was stored before
/// may lack them.
pub fn image_pull_job_spec() -> Value {
    let mut rules = kruise_job_spec();
    rules.push(rule(
        "!has(self.completionPolicy) || !has(self.completionPolicy.activeDeadlineSeconds) || !has(self.pullPolicy) || !has(self.pullPolicy.timeoutSeconds) || self.pullPolicy.timeoutSeconds <= self.completionPolicy.activeDeadlineSeconds",
        "completionPolicy.activeDeadlineSeconds must be at least pullPolicy.timeoutSeconds (600 if not given)",
    ));
    rules.push(rule(
        "(has(self.pullSecrets) ? self.pullSecrets : []) == (has(oldSelf.pullSecrets) ? oldSelf.pullSecrets : [])",
        "spec.pullSecrets is immutable; delete the job and create it again",
    ));
    Value::Array(rules)
}

/// On the spec of an ImageListPullJob. Its deadline may be below its timeout, which has a default: the children's timeouts are
/// cut to the deadline.
pub fn image_list_pull_job_spec() -> Value {
    Value::Array(kruise_job_spec())
}

/// On `NodeImage.spec.images`.
pub fn node_image_names() -> Value {
    json!([rule(
        "self.all(name, size(name) > 0)",
        "the name of an image must not be empty"
    )])
}

/// On `imagePrePullTemplate`. The first two texts are KubeEdge's own.
pub fn pre_pull_template() -> Value {
    const NAMED: &str =
        "((has(self.nodeNames) && size(self.nodeNames) > 0) || (has(self.nodes) && size(self.nodes) > 0))";
    json!([
        rule(
            &format!("!({NAMED} && has(self.labelSelector))"),
            "nodeNames and nodeSelector cannot be specified at the same time; give nodeNames or labelSelector"
        ),
        rule(
            &format!("{NAMED} || has(self.labelSelector)"),
            "nodeNames and nodeSelector cannot both be empty; give nodeNames or labelSelector"
        ),
        rule(
            "!(has(self.nodeNames) && size(self.nodeNames) > 0 && has(self.nodes) && size(self.nodes) > 0)",
            "nodes is another name of nodeNames; give only one of them"
        ),
        window_end(),
    ])
}

/// On `failureTolerate`. An empty string counts as not given.
pub fn failure_tolerate() -> Value {
    json!([rule(
        "self.matches('^(0|0?[.][0-9]+|0[.]|1|1[.]0*)?$')",
        "failureTolerate must be a decimal between 0 and 1, such as \"0.1\""
    )])
}

/// On `imageSecrets`. An empty string counts as not given.
pub fn image_secrets() -> Value {
    json!([rule(
        "self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$')",
        "imageSecrets must have the form namespace/name"
    )])
}

/// On one component of an overrider: `add` and `replace` need a value.
pub fn component_override() -> Value {
    json!([rule(
        "self.operator == 'remove' || (has(self.value) && size(self.value) > 0)",
        "value must be given when operator is add or replace"
    )])
}

/// On one overrider: at most one way to choose nodes.
pub fn overrider() -> Value {
    json!([one_way_to_choose_nodes()])
}

/// On one item of the list, which may be an overrider itself or hold one: what stands in both places would be half ignored.
/// Empty fields count as not given.
pub fn overrider_item() -> Value {
    json!([
        one_way_to_choose_nodes(),
        rule(
            "!has(self.imagePrePullOverrider) || !((has(self.nodeLabel) && size(self.nodeLabel) > 0) \
             || has(self.labelSelector) \
             || (has(self.overriders) && has(self.overriders.imageOverriders) && size(self.overriders.imageOverriders) > 0) \
             || (has(self.overriders) && has(self.overriders.secretOverriders) && size(self.overriders.secretOverriders) > 0))",
            "fields stand inside imagePrePullOverrider and beside it; write them in one place"
        ),
    ])
}

fn one_way_to_choose_nodes() -> Value {
    rule(
        "!(has(self.nodeLabel) && size(self.nodeLabel) > 0 && has(self.labelSelector))",
        "nodeLabel and labelSelector cannot be given together",
    )
}
