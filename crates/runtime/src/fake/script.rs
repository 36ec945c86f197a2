//! What the fake does when it is asked to pull an image.

use std::{collections::VecDeque, time::Duration};

use larder_model::{ByteSize, Digest, Reason};

use crate::Credential;

/// Behaviour of one image.
#[derive(Debug, Clone)]
pub struct Script {
    /// How long a pull takes, successful or not.
    pub delay: Duration,
    /// Size of the image, which is also what progress grows to.
    pub size: ByteSize,
    /// How the next pulls fail, in this order; after the last, pulls succeed.
    pub failures: VecDeque<Reason>,
    /// Every pull fails like this, after `failures`.
    pub always: Option<Reason>,
    /// What the reference points to; without it, a digest made of the name.
    pub digest: Option<Digest>,
    /// Who may pull; without it, everybody.
    pub login: Option<Credential>,
    /// Pulls say that they succeeded, and the image is not there.
    pub lies: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            size: ByteSize(1 << 20),
            failures: VecDeque::new(),
            always: None,
            digest: None,
            login: None,
            lies: false,
        }
    }
}

impl Script {
    /// Pulls succeed after this time.
    pub fn takes(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// The next pulls fail with these reasons, later ones succeed.
    pub fn fails(reasons: impl IntoIterator<Item = Reason>) -> Self {
        Self {
            failures: reasons.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Every pull fails with this reason.
    pub fn always_fails(reason: Reason) -> Self {
        Self {
            always: Some(reason),
            ..Self::default()
        }
    }

    pub(super) fn next_outcome(&mut self, login: Option<&Credential>) -> Result<(), Reason> {
        if let Some(reason) = self.failures.pop_front() {
            return Err(reason);
        }
        if let Some(reason) = self.always {
            return Err(reason);
        }
        if self.login.is_some() && self.login.as_ref() != login {
            return Err(Reason::AuthDenied);
        }
        Ok(())
    }
}
