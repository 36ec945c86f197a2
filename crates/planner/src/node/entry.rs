//! What a NodeImage asks for, read once. A value that cannot be used is kept as a sentence and fails its own entry only.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use larder_api::node_image::{ImageSpec, ImageTagSpec, NodeImageSpec};
use larder_api::template::SandboxConfig;
use larder_model::{Check, ImageRef, PullWhen};
use serde::{Deserialize, Serialize};

/// Retries when a hand-written entry gives a negative limit, as upstream.
const RETRIES_IF_NEGATIVE: u32 = 3;

/// Seconds between two reports of bytes where the entry does not say.
const PROGRESS_SECONDS: u64 = 5;

/// Names one entry: familiar image name, and tag or digest, as they stand in the NodeImage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Familiar image name.
    pub name: String,
    /// Tag or digest.
    pub tag: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.tag.contains(':') { '@' } else { ':' };
        write!(f, "{}{separator}{}", self.name, self.tag)
    }
}

/// One wanted image with everything that says how to get it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Which entry.
    pub key: Key,
    /// The image, or why the key is none.
    pub image: Result<ImageRef, String>,
    /// Raised when a fresh answer is wanted.
    pub version: i64,
    /// Whether an image that is there already will do.
    pub when: PullWhen,
    /// Tries in all.
    pub tries: u32,
    /// Longest time of one try.
    pub timeout: Duration,
    /// Time for this version, from its first sight.
    pub deadline: Option<Duration>,
    /// Checks before the pull, in order.
    pub checks: Vec<Check>,
    /// Keep the image from the kubelet's clean-up.
    pub pin: bool,
    /// A second name for the image, or why it is none.
    pub alias: Option<Result<ImageRef, String>>,
    /// Ids of sealed credentials.
    pub credentials: Vec<String>,
    /// Secrets are named, so the image must not be pulled without credentials.
    pub secrets_named: bool,
    /// Time between two reports of bytes.
    pub progress: Duration,
    /// The job that it was last claimed for; none for an entry written by hand.
    pub job: Option<String>,
    /// Place among the images of that job: the lower starts first.
    pub position: u32,
    /// Entries with a higher priority start first.
    pub priority: i32,
    /// Report only, pull nothing.
    pub dry_run: bool,
    /// Labels and annotations for the runtime.
    pub sandbox: SandboxConfig,
}

impl Entry {
    fn read(name: &str, image: &ImageSpec, tag: &ImageTagSpec) -> Self {
        let policy = &tag.pull_policy;
        Self {
            key: Key {
                name: name.to_owned(),
                tag: tag.tag.clone(),
            },
            image: ImageRef::from_parts(name, &tag.tag).map_err(|error| error.to_string()),
            version: tag.version,
            // The schema refuses other words; an object from before it may still hold one, and upstream pulls then.
            when: tag
                .image_pull_policy
                .as_deref()
                .unwrap_or("")
                .parse()
                .unwrap_or_default(),
            tries: u32::try_from(policy.backoff_limit)
                .unwrap_or(RETRIES_IF_NEGATIVE)
                .saturating_add(1),
            timeout: Duration::from_secs(u64::try_from(policy.timeout_seconds).unwrap_or(0).max(1)),
            deadline: policy
                .active_deadline_seconds
                .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
            checks: tag.checks.iter().map(|check| Check::from(check.as_str())).collect(),
            pin: tag.pin,
            alias: tag
                .alias
                .as_deref()
                .filter(|alias| !alias.is_empty())
                .map(|alias| ImageRef::parse(alias).map_err(|error| error.to_string())),
            credentials: tag.credentials.clone(),
            // A job's entry has claims, and its secrets are the job's: those beside it belong to hand-written entries.
            secrets_named: !image.pull_secrets.is_empty() && tag.claims.is_empty(),
            progress: Duration::from_secs(
                tag.progress_seconds
                    .and_then(|seconds| u64::try_from(seconds).ok())
                    .unwrap_or(PROGRESS_SECONDS)
                    .max(1),
            ),
            job: tag
                .claims
                .iter()
                .max_by_key(|claim| claim.version)
                .map(|claim| claim.uid.clone()),
            position: tag
                .position
                .and_then(|position| u32::try_from(position).ok())
                .unwrap_or(0),
            priority: tag.priority,
            dry_run: tag.dry_run,
            sandbox: image.sandbox_config.clone().unwrap_or_default(),
        }
    }
}

/// Every entry of a spec.
pub fn entries(spec: &NodeImageSpec) -> BTreeMap<Key, Entry> {
    let all = spec
        .images
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |tag| (name, image, tag)));
    all.map(|(name, image, tag)| Entry::read(name, image, tag))
        .map(|entry| (entry.key.clone(), entry))
        .collect()
}

#[cfg(test)]
mod tests {
    use larder_api::node_image::{Claim, ImageTagPullPolicy, PullSecretReference};
    use rstest::rstest;

    use super::*;

    fn read(name: &str, tag: ImageTagSpec) -> Entry {
        let image = ImageSpec {
            tags: vec![tag],
            ..ImageSpec::default()
        };
        let spec = NodeImageSpec {
            images: [(name.to_owned(), image)].into(),
            ..NodeImageSpec::default()
        };
        entries(&spec).into_values().next().unwrap()
    }

    #[rstest]
    #[case::empty_means_pull(None, PullWhen::Always)]
    #[case::empty_text_means_pull(Some(""), PullWhen::Always)]
    #[case::unknown_means_pull(Some("Sometimes"), PullWhen::Always)]
    #[case::looks(Some("IfNotPresent"), PullWhen::IfNotPresent)]
    fn policy(#[case] text: Option<&str>, #[case] want: PullWhen) {
        let tag = ImageTagSpec {
            tag: "1".into(),
            image_pull_policy: text.map(str::to_owned),
            ..ImageTagSpec::default()
        };
        assert_eq!(read("nginx", tag).when, want);
    }

    #[rstest]
    #[case::none(0, 1)]
    #[case::three(3, 4)]
    #[case::negative(-1, 4)]
    #[case::all(i32::MAX, 1 << 31)]
    fn tries(#[case] backoff_limit: i32, #[case] want: u32) {
        let tag = ImageTagSpec {
            tag: "1".into(),
            pull_policy: ImageTagPullPolicy {
                backoff_limit,
                ..ImageTagPullPolicy::default()
            },
            ..ImageTagSpec::default()
        };
        assert_eq!(read("nginx", tag).tries, want);
    }

    #[rstest]
    #[case::by_hand(0, 1, true)]
    #[case::no_secret(0, 0, false)]
    #[case::a_job_beside_an_entry_by_hand(1, 1, false)]
    fn secrets_are_for_hand_written_entries(#[case] claims: usize, #[case] secrets: usize, #[case] named: bool) {
        let tag = ImageTagSpec {
            tag: "1".into(),
            claims: vec![Claim::default(); claims],
            ..ImageTagSpec::default()
        };
        let image = ImageSpec {
            pull_secrets: vec![PullSecretReference::default(); secrets],
            ..ImageSpec::default()
        };
        assert_eq!(Entry::read("nginx", &image, &tag).secrets_named, named);
    }

    #[test]
    fn a_digest_is_joined_with_an_at_sign() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let tag = ImageTagSpec {
            tag: digest.clone(),
            ..ImageTagSpec::default()
        };
        let entry = read("nginx", tag);
        assert_eq!(entry.key.to_string(), format!("nginx@{digest}"));
        assert_eq!(entry.image.unwrap().familiar(), format!("nginx@{digest}"));
    }

    #[test]
    fn a_name_that_is_none_says_why() {
        let tag = ImageTagSpec {
            tag: "no tag".into(),
            ..ImageTagSpec::default()
        };
        assert!(!read("nginx", tag).image.unwrap_err().is_empty());
    }
}
