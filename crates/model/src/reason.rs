//! Why a pull failed or waits: a closed set, so that people, dashboards and retry rules can rely on it.
//!
//! A reason says what kind of trouble it is and what a person can do about it. The runtime's or registry's own words
//! travel beside it, as the message.

use crate::text::closed_set;

/// What went wrong with one image on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The registry refused the credentials, or wants some and got none.
    AuthDenied,
    /// The registry has no such repository, tag or digest.
    NotFound,
    /// The image exists, but not for the node's operating system and architecture.
    NoPlatform,
    /// The registry asks to come back later.
    RateLimited,
    /// No trusted encrypted connection to the registry.
    Tls,
    /// The registry's host name has no address.
    Dns,
    /// No connection to the registry, or it answers with server errors.
    Unreachable,
    /// The image file system ran full.
    NoSpace,
    /// The pull began and then moved no bytes for too long.
    Stalled,
    /// One attempt took longer than its timeout.
    Timeout,
    /// The job's active deadline passed.
    DeadlineExceeded,
    /// A check before the pull (disk, memory, processor) said no.
    CheckFailed,
    /// The container runtime does not answer.
    RuntimeDown,
    /// The node's agent did not take up the order.
    Unresponsive,
    /// The image reference cannot be read.
    InvalidReference,
    /// What the registry sent is no usable image: a manifest that cannot be read, content of another digest.
    InvalidImage,
    /// A pull secret that the job names does not exist.
    SecretMissing,
    /// Credentials reached the node but cannot be opened there.
    CredentialsUnreadable,
    /// The node policy is not known to be enforced, so that no credentials are sent to any node.
    NodePolicyNotEnforced,
    /// The node's NodeImage has no room for another entry.
    NodeFull,
    /// Kubernetes reports the node as not ready.
    NodeNotReady,
    /// The node can never take part: gone, or of the wrong kind.
    NodeUnsuitable,
    /// The order was withdrawn.
    Canceled,
    /// Something that fits nowhere else; the message has the details.
    Internal,
}

/// What a failure means for further tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// Another try would end the same way: the entry ends here.
    Permanent,
    /// Worth another try, within the entry's backoff limit.
    Backoff,
    /// Uses up no try: something outside has to change first. The caller limits how long it waits.
    Later,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 24] = [
        Reason::AuthDenied,
        Reason::NotFound,
        Reason::NoPlatform,
        Reason::RateLimited,
        Reason::Tls,
        Reason::Dns,
        Reason::Unreachable,
        Reason::NoSpace,
        Reason::Stalled,
        Reason::Timeout,
        Reason::DeadlineExceeded,
        Reason::CheckFailed,
        Reason::RuntimeDown,
        Reason::Unresponsive,
        Reason::InvalidReference,
        Reason::InvalidImage,
        Reason::SecretMissing,
        Reason::CredentialsUnreadable,
        Reason::NodePolicyNotEnforced,
        Reason::NodeFull,
        Reason::NodeNotReady,
        Reason::NodeUnsuitable,
        Reason::Canceled,
        Reason::Internal,
    ];

    /// The word in status fields, events and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::AuthDenied => "AuthDenied",
            Reason::NotFound => "NotFound",
            Reason::NoPlatform => "NoPlatform",
            Reason::RateLimited => "RateLimited",
            Reason::Tls => "Tls",
            Reason::Dns => "Dns",
            Reason::Unreachable => "Unreachable",
            Reason::NoSpace => "NoSpace",
            Reason::Stalled => "Stalled",
            Reason::Timeout => "Timeout",
            Reason::DeadlineExceeded => "DeadlineExceeded",
            Reason::CheckFailed => "CheckFailed",
            Reason::RuntimeDown => "RuntimeDown",
            Reason::Unresponsive => "Unresponsive",
            Reason::InvalidReference => "InvalidReference",
            Reason::InvalidImage => "InvalidImage",
            Reason::SecretMissing => "SecretMissing",
            Reason::CredentialsUnreadable => "CredentialsUnreadable",
            Reason::NodePolicyNotEnforced => "NodePolicyNotEnforced",
            Reason::NodeFull => "NodeFull",
            Reason::NodeNotReady => "NodeNotReady",
            Reason::NodeUnsuitable => "NodeUnsuitable",
            Reason::Canceled => "Canceled",
            Reason::Internal => "Internal",
        }
    }

    /// What the failure means for further tries.
    pub const fn retry(self) -> Retry {
        match self {
            Reason::AuthDenied
            | Reason::NotFound
            | Reason::NoPlatform
            | Reason::DeadlineExceeded
            | Reason::CheckFailed
            | Reason::InvalidReference
            | Reason::NodeUnsuitable
            | Reason::Canceled => Retry::Permanent,
            // A certificate is also "not valid yet" on a board that has not learnt the time since it booted.
            Reason::Tls
            | Reason::RateLimited
            | Reason::Dns
            | Reason::Unreachable
            // The kubelet's own clean-up may make room between two tries.
            | Reason::NoSpace
            | Reason::Stalled
            | Reason::Timeout
            // Bytes that were damaged on the way, or by a cache, may come intact the next time.
            | Reason::InvalidImage
            | Reason::Internal => Retry::Backoff,
            Reason::RuntimeDown
            | Reason::Unresponsive
            | Reason::SecretMissing
            // The controller seals again as soon as it sees the node's present key.
            | Reason::CredentialsUnreadable
            | Reason::NodePolicyNotEnforced
            | Reason::NodeFull
            | Reason::NodeNotReady => Retry::Later,
        }
    }

    /// One sentence that tells a person what to do.
    pub const fn advice(self) -> &'static str {
        match self {
            Reason::AuthDenied => "Give the job a pull secret whose user may read this image, or correct its password.",
            Reason::NotFound => "Check the image name and tag for typing errors, and that the image has been pushed.",
            Reason::NoPlatform => {
                "Push the image for this node's architecture too, or select only nodes that it is built for."
            }
            Reason::RateLimited => {
                "Log in to the registry with a pull secret, use a mirror, or lower the job's parallelism."
            }
            Reason::Tls => {
                "Install the registry's CA certificate on the node, and check that the node's clock is right."
            }
            Reason::Dns => "Check the registry's host name, and that the node's DNS server can resolve it.",
            Reason::Unreachable => {
                "Check that the registry is up and that no firewall or proxy stands between the node and it."
            }
            Reason::NoSpace => "Free space on the node's image file system, or give it a larger disk.",
            Reason::Stalled => "Check the link between node and registry; another try goes on where this one stopped.",
            Reason::Timeout => {
                "Raise the job's timeoutSeconds if the image is large for this link; if nothing came at all, check that the registry answers."
            }
            Reason::DeadlineExceeded => "Raise the job's activeDeadlineSeconds or its parallelism, and run it again.",
            Reason::CheckFailed => "Relieve the node's disk, memory or processor, or take the check out of checkItems.",
            Reason::RuntimeDown => "Look at the container runtime on the node, for example with systemctl status.",
            Reason::Unresponsive => "Check that the Larder agent runs on the node and can reach the API server.",
            Reason::InvalidReference => "Write the image as [host[:port]/]path[:tag] or path@digest, in lower case.",
            Reason::InvalidImage => {
                "Push the image again with a current tool, or clear the cache or proxy between the node and the registry."
            }
            Reason::SecretMissing => "Create the pull secret in the job's namespace, or remove it from the job.",
            Reason::CredentialsUnreadable => {
                "Nothing to do if the node's key has just changed; otherwise restart the node's agent and read its log."
            }
            Reason::NodePolicyNotEnforced => {
                "Restore the policy larder-agent-own-node, without which no login is sent to a node; larder doctor says what it lacks."
            }
            Reason::NodeFull => {
                "Delete jobs or entries that this node no longer needs; its NodeImage has no room left."
            }
            Reason::NodeNotReady => "Bring the node back, or take it out of the job's selector.",
            Reason::NodeUnsuitable => {
                "Remove the node from the job; it does not exist or is not of the kind asked for."
            }
            Reason::Canceled => "Create the job again if the image is still wanted; its order was withdrawn.",
            Reason::Internal => {
                "Read the message and the agent's log, and report it as a bug if they do not explain it."
            }
        }
    }
}

closed_set!(Reason, "reason");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_are_distinct_and_come_back_as_themselves() {
        assert_eq!(
            Reason::ALL
                .map(Reason::as_str)
                .into_iter()
                .collect::<BTreeSet<_>>()
                .len(),
            Reason::ALL.len()
        );
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
            assert_eq!(format!("{reason:?}"), reason.as_str());
        }
        assert!("authDenied".parse::<Reason>().is_err());
    }

    #[test]
    fn every_reason_has_its_own_short_sentence() {
        let mut seen = BTreeSet::new();
        for reason in Reason::ALL {
            let advice = reason.advice();
            assert!(advice.ends_with('.') && !advice.ends_with(".."), "{reason}: {advice}");
            assert!(advice.len() < 160, "{reason}: {} characters", advice.len());
            assert!(advice.starts_with(char::is_uppercase), "{reason}: {advice}");
            assert!(seen.insert(advice), "{reason} repeats the advice of another reason");
        }
    }

    #[test]
    fn what_only_an_edit_can_mend_is_permanent_and_what_the_fleet_can_mend_waits() {
        let of = |retry| {
            Reason::ALL
                .into_iter()
                .filter(move |r| r.retry() == retry)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(Retry::Permanent),
            [
                Reason::AuthDenied,
                Reason::NotFound,
                Reason::NoPlatform,
                Reason::DeadlineExceeded,
                Reason::CheckFailed,
                Reason::InvalidReference,
                Reason::NodeUnsuitable,
                Reason::Canceled
            ]
        );
        assert_eq!(
            of(Retry::Later),
            [
                Reason::RuntimeDown,
                Reason::Unresponsive,
                Reason::SecretMissing,
                Reason::CredentialsUnreadable,
                Reason::NodePolicyNotEnforced,
                Reason::NodeFull,
                Reason::NodeNotReady
            ]
        );
    }

    #[test]
    fn the_reference_names_each_reason_beside_what_it_means_for_further_tries() {
        let page = include_str!("../../../docs/reference.md");
        let row = |reason: Reason| match reason.retry() {
            Retry::Permanent => "| never; the node failed |",
            Retry::Backoff => "| after a growing pause",
            Retry::Later => "| as soon as its cause is gone",
        };
        for reason in Reason::ALL {
            let line = page.lines().find(|line| line.starts_with(row(reason))).unwrap();
            assert!(
                line.contains(&format!("`{}`", reason.as_str())),
                "{reason} is not in: {line}"
            );
        }
    }
}
