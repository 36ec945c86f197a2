//! What a runtime can do beyond pulling, and why not where it cannot.

/// Answer of [`ImageRuntime::capabilities`](crate::ImageRuntime::capabilities).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Bytes done and total of a running pull.
    pub progress: Support,
    /// Keeping an image from the kubelet's clean-up.
    pub pin: Support,
    /// A second name for an image.
    pub alias: Support,
    /// Hearing of images that others delete.
    pub events: Support,
}

/// Whether something works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// It works.
    Yes,
    /// It does not, and this sentence says why.
    No(String),
}

impl Capabilities {
    /// Everything works.
    pub const ALL: Self = Self {
        progress: Support::Yes,
        pin: Support::Yes,
        alias: Support::Yes,
        events: Support::Yes,
    };

    /// Nothing beyond pulling works, for one reason.
    pub fn none(why: &str) -> Self {
        let no = || Support::No(why.to_owned());
        Self {
            progress: no(),
            pin: no(),
            alias: no(),
            events: no(),
        }
    }
}

impl Support {
    /// Whether it works.
    pub const fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }

    /// Why it does not work.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Self::Yes => None,
            Self::No(why) => Some(why),
        }
    }
}
