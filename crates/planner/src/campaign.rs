//! What is asked for: a task for each selected node, so many nodes at once, until the campaign ends. No kind of job is
//! known here.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use larder_api::template::{DEFAULT_BACKOFF_LIMIT, DEFAULT_TIMEOUT_SECONDS, SandboxConfig};
use larder_model::{Check, PullWhen};
use thiserror::Error;

use crate::claim::Terms;
use crate::jitter;
use crate::schedule::Schedule;
use crate::secret::SecretRef;
use crate::select::Selection;
use crate::task::Tasks;
use crate::windows::Windows;

/// How long a node may be unable to take part before it counts as failed.
pub const RESPONSE_TIME: SignedDuration = SignedDuration::from_mins(10);

/// Nodes at once, when a job does not say.
const DEFAULT_PARALLELISM: usize = 1;

/// An entry of an ended job stays at least this much longer than its job's own bound, so that a parent job which is
/// started again soon finds the entries of the last run.
const ENTRY_TTL_EXTRA: i64 = 300;

/// Clean-up of a large fleet is spread over this many seconds.
const ENTRY_TTL_SPREAD: u64 = 300;

/// A job that never ends gives each pull at least this long, as upstream.
const NEVER_DEADLINE_MIN: i64 = 1_800;

/// Entries of a job that never ends would stay this long after its end; in fact they leave with the job.
const NEVER_TTL: i64 = 86_400;

/// A node counts its time by itself and reports when it is over. The report is waited for this much longer.
const REPORT_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// Images onto many nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    /// What stands as owner in the nodes' entries.
    pub owner: ObjectReference,
    /// What each node is asked for.
    pub tasks: Tasks,
    /// Which nodes.
    pub selection: Selection,
    /// How many nodes at once; 0 pauses.
    pub parallelism: usize,
    /// Where pulls are limited, campaigns with a higher priority go first.
    pub priority: i32,
    /// When it is over.
    pub ending: Ending,
    /// Under which rules each node pulls.
    pub rules: PullRules,
    /// When to give up on the whole.
    pub max_failures: Option<MaxFailures>,
    /// Nodes of the job that failed before anything was tried. They are not among the selected ones, and count as failed.
    pub failed_before: usize,
    /// The Secrets that the tasks use, each once.
    pub secrets: Vec<SecretRef>,
    /// What waits for a Secret that cannot be used.
    pub secret_scope: SecretScope,
    /// How long a node may be unable to take part before it counts as failed.
    pub response_time: SignedDuration,
    /// How long a node has for its whole task, from its own dispatch. None: each image has its own time only.
    pub node_timeout: Option<SignedDuration>,
    /// When work may be handed out.
    pub windows: Windows,
    /// When a campaign that never ends looks at its nodes again. None: once a day.
    pub refresh: Option<Schedule>,
    /// Whether new nodes wait for it before pods are scheduled there.
    pub gates_nodes: bool,
}

/// What waits for a Secret that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretScope {
    /// The whole campaign: nothing is handed out.
    #[default]
    Campaign,
    /// The nodes whose task needs the Secret; the others go on.
    Node,
}

/// When a campaign is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// When every node succeeded or failed.
    Always {
        /// Or after this long, whatever is still running.
        deadline: Option<SignedDuration>,
        /// The job is deleted this long after its end.
        ttl: Option<SignedDuration>,
    },
    /// Never: it follows new nodes and looks again each day, or by its schedule.
    Never,
}

/// Under which rules one node pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRules {
    /// Seconds that one attempt may take.
    pub timeout_seconds: i32,
    /// Retries after the first attempt.
    pub backoff_limit: i32,
    /// Whether an image that is there is a success.
    pub when: PullWhen,
    /// Labels and annotations for the runtime.
    pub sandbox: Option<SandboxConfig>,
    /// Whether the image is kept from the kubelet's garbage collection while the job exists.
    pub pin: bool,
    /// What a node checks before it pulls.
    pub checks: Vec<Check>,
}

impl Default for PullRules {
    fn default() -> Self {
        Self {
            timeout_seconds: DEFAULT_TIMEOUT_SECONDS,
            backoff_limit: DEFAULT_BACKOFF_LIMIT,
            when: PullWhen::IfNotPresent,
            sandbox: None,
            pin: false,
            checks: Vec::new(),
        }
    }
}

/// How many failed nodes are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxFailures {
    /// More than this many.
    Count(u32),
    /// More than this share of the job's nodes, rounded down.
    Percent(u32),
}

/// A number in a job that cannot be read. The API server refuses these; an object from before the CRD's rules may hold one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NumberError {
    /// `parallelism`.
    #[error("parallelism {0} is not a number of nodes; write an integer of 0 or more, percentages are not supported")]
    Parallelism(String),
    /// `failurePolicy.maxFailures`.
    #[error("failurePolicy.maxFailures {0} is neither an integer of 0 or more nor a percentage such as \"10%\"")]
    MaxFailures(String),
}

impl Campaign {
    /// The uid by which entries name this campaign.
    pub fn uid(&self) -> &str {
        self.owner.uid.as_deref().unwrap_or_default()
    }

    /// Whether it never ends.
    pub fn is_endless(&self) -> bool {
        self.ending == Ending::Never
    }

    /// When it ends at the latest, if it began at `started`.
    pub fn deadline(&self, started: Timestamp) -> Option<Timestamp> {
        match self.ending {
            Ending::Always { deadline, .. } => deadline.map(|deadline| later(started, deadline)),
            Ending::Never => None,
        }
    }

    /// How long after its end the job is deleted.
    pub fn ttl(&self) -> Option<SignedDuration> {
        match self.ending {
            Ending::Always { ttl, .. } => ttl,
            Ending::Never => None,
        }
    }

    /// Whether so many failed nodes out of `total` are too many.
    pub fn gives_up_after(&self, failed: usize, total: usize) -> bool {
        self.max_failures.is_some_and(|max| max.allowed(total) < failed)
    }

    /// What it asks of one node's entry.
    pub fn terms(&self, node: &str, started: Timestamp) -> Terms {
        let (timeout, retries) = (
            i64::from(self.rules.timeout_seconds),
            i64::from(self.rules.backoff_limit),
        );
        let spread = jitter::spread(&[node], ENTRY_TTL_SPREAD).cast_signed();
        let ttl = match self.ending {
            Ending::Always { deadline, ttl } => {
                let base = ttl.or(deadline).map_or(timeout * retries, |bound| bound.as_secs());
                base.saturating_add(ENTRY_TTL_EXTRA + spread)
            }
            Ending::Never => NEVER_TTL,
        };
        Terms {
            timeout_seconds: self.rules.timeout_seconds,
            backoff_limit: self.rules.backoff_limit,
            ttl_seconds: i32::try_from(ttl).unwrap_or(i32::MAX),
            deadline: self.deadline(started),
            seconds_per_order: match self.node_timeout {
                Some(timeout) => Some(timeout.as_secs()),
                None => self
                    .is_endless()
                    .then(|| NEVER_DEADLINE_MIN.max(timeout.saturating_mul(retries + 1))),
            },
            when: self.rules.when,
            sandbox: self.rules.sandbox.clone(),
            pin: self.rules.pin,
            priority: self.priority,
        }
    }

    /// When a node that was handed its task at a moment is no longer waited for.
    pub fn overdue_at(&self, handed_out: Timestamp) -> Option<Timestamp> {
        let timeout = self.node_timeout?;
        Some(later(later(handed_out, timeout), REPORT_GRACE))
    }

    /// Whether an edit that made `self` from `before` gives a failed node another chance. How many pull at once, and how
    /// many may fail, changes nothing for a node that failed already.
    pub fn tries_again_after(&self, before: &Campaign, node: &str) -> bool {
        self.rules != before.rules || self.secrets != before.secrets || self.tasks.of(node) != before.tasks.of(node)
    }
}

impl MaxFailures {
    /// Reads a count or a percentage; an empty string counts as not given.
    pub fn parse(value: &IntOrString) -> Result<Option<Self>, NumberError> {
        let refused = || NumberError::MaxFailures(shown(value));
        let max = match value {
            IntOrString::Int(count) => u32::try_from(*count).ok().map(Self::Count),
            IntOrString::String(text) if text.is_empty() => return Ok(None),
            IntOrString::String(text) => match text.strip_suffix('%') {
                Some(digits) => whole_number(digits).map(Self::Percent),
                None => whole_number(text).map(Self::Count),
            },
        };
        max.map(Some).ok_or_else(refused)
    }

    /// How many of `desired` nodes may fail.
    pub fn allowed(self, desired: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(percent) => {
                let share = u128::from(percent) * (desired as u128) / 100;
                usize::try_from(share).unwrap_or(usize::MAX)
            }
        }
    }
}

/// Reads how many nodes may pull at once: an integer, or a string that holds one; 1 if not given.
pub fn parallelism(value: Option<&IntOrString>) -> Result<usize, NumberError> {
    let Some(value) = value else {
        return Ok(DEFAULT_PARALLELISM);
    };
    let refused = || NumberError::Parallelism(shown(value));
    match value {
        IntOrString::Int(number) => usize::try_from(*number).map_err(|_| refused()),
        IntOrString::String(text) if text.is_empty() => Ok(DEFAULT_PARALLELISM),
        IntOrString::String(text) => {
            let number: i32 = text.parse().map_err(|_| refused())?;
            usize::try_from(number).map_err(|_| refused())
        }
    }
}

fn whole_number(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

fn shown(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
    }
}

/// `duration` after `moment`, or the end of time.
pub(crate) fn later(moment: Timestamp, duration: SignedDuration) -> Timestamp {
    moment.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// A moment as the API keeps it, in whole seconds: what is read back must equal what was written.
pub(crate) fn whole_seconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn text(text: &str) -> IntOrString {
        IntOrString::String(text.into())
    }

    #[rstest]
    #[case::not_given(None, Ok(1))]
    #[case::number(Some(IntOrString::Int(7)), Ok(7))]
    #[case::text(Some(text("7")), Ok(7))]
    #[case::paused(Some(IntOrString::Int(0)), Ok(0))]
    #[case::paused_as_text(Some(text("0")), Ok(0))]
    #[case::empty_text(Some(text("")), Ok(1))]
    #[case::percent(Some(text("10%")), Err("\"10%\""))]
    #[case::negative(Some(IntOrString::Int(-1)), Err("-1"))]
    #[case::negative_text(Some(text("-1")), Err("\"-1\""))]
    #[case::beyond_int32(Some(text("2147483648")), Err("\"2147483648\""))]
    fn reads_parallelism(#[case] value: Option<IntOrString>, #[case] want: Result<usize, &str>) {
        let want = want.map_err(|shown| NumberError::Parallelism(shown.into()));
        assert_eq!(parallelism(value.as_ref()), want);
    }

    #[rstest]
    #[case::count(IntOrString::Int(3), 100, Some(3))]
    #[case::none_at_all(IntOrString::Int(0), 100, Some(0))]
    #[case::percent_is_rounded_down(text("10%"), 19, Some(1))]
    #[case::percent_of_few(text("10%"), 9, Some(0))]
    #[case::more_than_all(IntOrString::String("200%".into()), 9, Some(18))]
    #[case::count_as_text(IntOrString::String("3".into()), 9, Some(3))]
    #[case::words(IntOrString::String("few".into()), 9, None)]
    #[case::negative(IntOrString::Int(-1), 9, None)]
    #[case::signed_percent(IntOrString::String("+5%".into()), 9, None)]
    #[case::fraction(IntOrString::String("5.5%".into()), 9, None)]
    fn reads_max_failures(#[case] value: IntOrString, #[case] desired: usize, #[case] want: Option<usize>) {
        let read = MaxFailures::parse(&value).ok();
        assert_eq!(read.map(|max| max.unwrap().allowed(desired)), want);
    }

    #[test]
    fn empty_max_failures_are_not_given() {
        assert_eq!(MaxFailures::parse(&text("")), Ok(None));
    }

    fn campaign(ending: Ending) -> Campaign {
        Campaign {
            ending,
            ..crate::view::samples::campaign(1)
        }
    }

    #[rstest]
    #[case::defaults(None, None, 600 * 3)]
    #[case::own_deadline(Some(900), None, 900)]
    #[case::own_ttl(Some(900), Some(60), 60)]
    fn an_always_entry_outlives_its_job(#[case] deadline: Option<i64>, #[case] ttl: Option<i64>, #[case] base: i32) {
        let ending = Ending::Always {
            deadline: deadline.map(SignedDuration::from_secs),
            ttl: ttl.map(SignedDuration::from_secs),
        };
        let terms = campaign(ending).terms("node-1", Timestamp::UNIX_EPOCH);
        assert!(
            (base + 300..base + 600).contains(&terms.ttl_seconds),
            "{}",
            terms.ttl_seconds
        );
        assert_eq!(
            terms.deadline,
            deadline.map(|seconds| Timestamp::from_second(seconds).unwrap())
        );
        assert_eq!(terms.seconds_per_order, None);
    }

    #[rstest]
    #[case::short_timeouts(10, 0, 1_800)]
    #[case::long_timeouts(3_600, 3, 14_400)]
    fn an_endless_job_bounds_each_order(#[case] timeout: i32, #[case] retries: i32, #[case] want: i64) {
        let mut endless = campaign(Ending::Never);
        endless.rules.timeout_seconds = timeout;
        endless.rules.backoff_limit = retries;
        let terms = endless.terms("node-1", Timestamp::UNIX_EPOCH);
        assert_eq!((terms.deadline, terms.seconds_per_order), (None, Some(want)));
    }
}
