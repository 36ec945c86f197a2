//! What a pull would do: bytes, what is there, whether there is room. Pulls nothing.

use std::path::Path;

use larder_model::{ByteSize, Reason};
use larder_planner::node::{Ended, Measured, Promise, Trouble, judge, pull_message};
use larder_registry::Platform;
use tokio::time::timeout;

use crate::checks;
use crate::pull::{Failure, Puller, Try};

/// How long the registry may take.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

impl Puller {
    pub(crate) async fn dry_run(&self, attempt: &Try) -> Ended {
        match self.find_out(attempt).await {
            Ok(report) => report,
            Err(Failure { reason, words }) => {
                let message = pull_message(&attempt.entry.key, reason, &words);
                Ended::Report {
                    verdict: Err(Trouble::new(reason, message)),
                    bytes: None,
                    digest: None,
                }
            }
        }
    }

    async fn find_out(&self, attempt: &Try) -> Result<Ended, Failure> {
        let entry = &attempt.entry;
        let image = entry
            .image
            .as_ref()
            .map_err(|why| Failure::new(Reason::InvalidReference, why.clone()))?;
        let runtime = self.slot.get(|| format!("look up {image}"))?;
        let there = runtime.status(image).await?;
        let logins = self.logins(attempt, image).await?.credentials;
        let ask = async {
            let repository = self.registry.repository(image, logins)?;
            let found = repository.image_for(&Platform::of_this_machine()).await?;
            Ok::<_, larder_registry::RegistryError>(found)
        };
        let found = match timeout(LIMIT, ask).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(Failure::new(error.reason, error.message)),
            Err(_) => return Err(Failure::new(Reason::Unreachable, "the registry did not answer in time")),
        };
        let total = found.download_size();
        let digest = found.root().map(|root| root.digest.clone());
        let same = there.is_some_and(|there| {
            let known = there.digests.iter().filter_map(|name| name.reference().digest());
            known.into_iter().any(|known| Some(known) == digest.as_ref())
        });
        let missing = if same { ByteSize::ZERO } else { total };
        let fs = runtime.image_fs().await?;
        let measured = Measured {
            cpu: if entry.checks.iter().any(|check| check == "cpu") {
                checks::cpu(Path::new("/proc")).await
            } else {
                None
            },
            memory: checks::memory(Path::new("/proc")).await,
            image_fs: Some((fs.capacity, fs.free)),
            missing: Some(missing),
        };
        let mut items = entry.checks.clone();
        if !items.iter().any(|item| item == "disk") {
            items.push("disk".to_owned());
        }
        let promise = Promise {
            bytes: self.promises.lock().await.values().copied().sum(),
            gc_threshold: self.gc_threshold,
        };
        let verdict = match judge(&items, &measured, promise) {
            Ok(()) if same => Ok(format!(
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
            digest: digest.map(|digest| digest.to_string()),
        })
    }
}
