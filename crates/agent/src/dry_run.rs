//! What a pull would do: bytes, what is there, whether there is room. Pulls nothing.

use std::path::Path;

use larder_model::{Check, Reason, Retry};
use larder_planner::node::{Ended, Measured, Promise, Trouble, judge, pull_message};

use crate::checks;
use crate::pull::{Failure, PullAttempt, Puller};

impl Puller {
    pub(crate) async fn dry_run(&self, attempt: &PullAttempt) -> Ended {
        match self.find_out(attempt).await {
            Ok(report) => report,
            // What waits for credentials or for the runtime is asked again, as a pull would be.
            Err(failure) if failure.reason.retry() == Retry::Later => failure.into(),
            Err(Failure { reason, words, .. }) => {
                let message = pull_message(&attempt.entry.key, reason, &words);
                Ended::Report {
                    verdict: Err(Trouble::new(reason, message)),
                    bytes: None,
                    digest: None,
                }
            }
        }
    }

    async fn find_out(&self, attempt: &PullAttempt) -> Result<Ended, Failure> {
        let entry = &attempt.entry;
        let image = entry
            .image
            .as_ref()
            .map_err(|why| Failure::new(Reason::InvalidReference, why.clone()))?;
        let runtime = self.runtime_handle.get(|| format!("look up {image}")).await?;
        let logins = self.logins(attempt, image).await?.credentials;
        let probe = self.probe_registry(image, &*runtime, logins).await?;
        let (total, missing) = (probe.total, probe.missing);
        let fs = runtime.image_fs().await?;
        let measured = Measured {
            cpu: if entry.checks.contains(&Check::Cpu) {
                checks::cpu(Path::new("/proc")).await
            } else {
                None
            },
            memory: checks::memory(Path::new("/proc")).await,
            image_fs: Some((fs.capacity, fs.free)),
            image_fs_used: Some(fs.used),
            missing: Some(missing),
        };
        let mut items = entry.checks.clone();
        if !items.contains(&Check::Disk) {
            items.push(Check::Disk);
        }
        let promise = Promise {
            bytes: self.promises.lock().await.values().copied().sum(),
            gc_threshold: self.gc_threshold,
        };
        let verdict = match judge(&items, &measured, promise) {
            Ok(()) if probe.there => Ok(format!(
                "The image is there already; nothing to pull ({} free).",
                fs.free
            )),
            Ok(()) => Ok(format!(
                "A pull would fetch {missing} of {total}; it fits ({} free).",
                fs.free
            )),
            Err(why) => {
                let reason = Reason::CheckFailed;
                Err(Trouble::new(
                    reason,
                    format!(
                        "A pull would fetch {missing} of {total} and fail: {why}. {}",
                        reason.advice()
                    ),
                ))
            }
        };
        Ok(Ended::Report {
            verdict,
            bytes: Some(((total - missing).0, total.0)),
            digest: probe.digest.map(|digest| digest.to_string()),
        })
    }
}
