//! One try to pull one image: credentials, checks, the runtime's pull with an eye on its bytes, a look whether the image
//! is really there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_api::NodeImageSpec;
use larder_api::contract::OrderId;
use larder_model::{ByteSize, Check, ImageRef, NodeName, Reason};
use larder_planner::node::{Ended, Entry, Image, Measured, PATIENCE_MAX, Promise, judge, room_for};
use larder_registry::{Credential, RegistryClient, RegistryError};
use larder_runtime::{FetchPath, ImageRuntime, Progress, PullRequest, RuntimeError, Sandbox};
use tokio::sync::{Mutex, mpsc};
use tokio::time::sleep;

use crate::checks;
use crate::credentials::{Credentials, Logins};
use crate::metrics::{FetchLabels, Metrics};
use crate::pin;
use crate::platform_check;
use crate::runtime_handle::RuntimeHandle;

/// Moments of the first looks at a pull's bytes; later ones follow every second.
const FIRST_LOOKS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
];
const LATER_LOOKS: Duration = Duration::from_secs(1);

/// How far a running pull is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullProgress {
    pub(crate) run: u64,
    /// Bytes, where they are known.
    pub(crate) bytes: Option<Progress>,
    /// How long the registry asked to wait, while the wait lasts.
    pub(crate) wait: Option<Duration>,
}

/// What every try works with.
#[derive(Clone)]
pub(crate) struct Puller {
    pub(crate) node: NodeName,
    pub(crate) runtime_handle: RuntimeHandle,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) registry: RegistryClient,
    pub(crate) metrics: Metrics,
    pub(crate) gc_threshold: u8,
    pub(crate) accept_foreign_images: bool,
    pub(crate) binfmt_dir: PathBuf,
    /// Bytes promised to running pulls, by their number.
    pub(crate) promises: Arc<Mutex<BTreeMap<u64, ByteSize>>>,
    /// Where bytes are told. A report that does not fit is lost; the next one says more.
    pub(crate) progress: mpsc::Sender<PullProgress>,
}

/// One try.
pub(crate) struct PullAttempt {
    pub(crate) run: u64,
    pub(crate) entry: Entry,
    pub(crate) order: OrderId,
    pub(crate) spec: Arc<NodeImageSpec>,
    /// How long a registry that asks for time may be waited for within the try.
    pub(crate) patience: Duration,
}

/// Why a try failed.
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) words: String,
    /// How long the registry asks to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(reason: Reason, words: impl Into<String>) -> Self {
        Self {
            reason,
            words: words.into(),
            retry_after: None,
        }
    }

    /// The registry asks to be left alone for so long.
    fn patient(self, retry_after: Option<Duration>) -> Self {
        let words = match retry_after {
            Some(wait) if PATIENCE_MAX < wait => {
                let most = PATIENCE_MAX.as_secs();
                format!("{} (the registry asks to wait longer than {most} s)", self.words)
            }
            Some(wait) => format!("{} (the registry asks to wait {} s)", self.words, wait.as_secs()),
            None => self.words,
        };
        Self {
            words,
            retry_after,
            ..self
        }
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        Self::new(error.reason(), error.runtime_text()).patient(error.retry_after())
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        Self::new(error.reason, error.message).patient(error.retry_after)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed {
            reason: failure.reason,
            words: failure.words,
            retry_after: failure.retry_after,
        }
    }
}

impl Puller {
    /// Tries once. Dropping the future gives the pull up, in the runtime too.
    pub(crate) async fn attempt(&self, attempt: &PullAttempt) -> Ended {
        let end = self.pull(attempt).await;
        self.promises.lock().await.remove(&attempt.run);
        match end {
            Ok(image) => Ended::Pulled(image),
            Err(failure) => failure.into(),
        }
    }

    async fn pull(&self, attempt: &PullAttempt) -> Result<Image, Failure> {
        let entry = &attempt.entry;
        let image = entry
            .image
            .as_ref()
            .map_err(|why| Failure::new(Reason::InvalidReference, why.clone()))?;
        let runtime = self.runtime_handle.get(|| format!("pull {image}")).await?;
        let logins = self.logins(attempt, image).await?;
        if !entry.checks.is_empty() {
            self.check(attempt, image, &*runtime, logins.credentials.clone())
                .await?;
        }
        let sandbox = Sandbox {
            labels: entry.sandbox.labels.clone(),
            annotations: entry.sandbox.annotations.clone(),
        };
        let login_servers = self.registry.login_servers(image);
        let request = |auth: Option<Credential>| PullRequest {
            auth,
            login_servers: login_servers.clone(),
            sandbox: sandbox.clone(),
            patience: attempt.patience,
            ..PullRequest::new(image.clone())
        };
        let mut requests: Vec<PullRequest> = logins
            .credentials
            .into_iter()
            .map(|login| request(Some(login)))
            .collect();
        if requests.is_empty() {
            requests.push(request(None));
        }
        let mut last = None;
        for request in &requests {
            match self.watched(attempt.run, &*runtime, request).await {
                Ok(pulled) => {
                    self.note_path(image, &pulled.path);
                    let there = pulled_and_there(&*runtime, image, pulled).await?;
                    if !self.accept_foreign_images {
                        platform_check::require_usable(&*runtime, image, &self.binfmt_dir).await?;
                    }
                    pin::name_at_once(&*runtime, entry).await;
                    return Ok(there);
                }
                // The next login may be the right one. Any other trouble is the same for all of them.
                Err(error) if error.reason() == Reason::AuthDenied => last = Some(error),
                Err(error) => {
                    let said = error.retry_after();
                    let failure = Failure::from(error);
                    if failure.reason != Reason::RateLimited || said.is_some() {
                        return Err(failure);
                    }
                    let wait = self.patience(image, request.auth.clone()).await;
                    return Err(failure.patient(wait));
                }
            }
        }
        let mut denied = last.map_or_else(
            || Failure::new(Reason::Internal, "there was nothing to try"),
            Failure::from,
        );
        if let Some(why) = logins.plugin_failure {
            denied.words = format!("{} ({why})", denied.words);
        }
        Err(denied)
    }

    /// Counts who fetched the layers, and logs from where.
    fn note_path(&self, image: &ImageRef, path: &FetchPath) {
        match path {
            FetchPath::Runtime => {}
            FetchPath::Fetcher(hosts) => {
                self.metrics.fetches.get_or_create(&FetchLabels::fetched()).inc();
                let hosts = hosts.iter().cloned().collect::<Vec<_>>().join(", ");
                tracing::info!(%image, hosts, "layers were fetched");
            }
            FetchPath::LeftToRuntime(why) => {
                self.metrics.fetches.get_or_create(&FetchLabels::left(*why)).inc();
            }
        }
    }

    /// What the image may be pulled with.
    pub(crate) async fn logins(&self, attempt: &PullAttempt, image: &ImageRef) -> Result<Logins, Failure> {
        self.credentials
            .for_entry(&self.node, &attempt.order, &attempt.spec, &attempt.entry, image)
            .await
    }

    /// Pulls, and tells how far it is.
    async fn watched(
        &self,
        run: u64,
        runtime: &dyn ImageRuntime,
        request: &PullRequest,
    ) -> Result<larder_runtime::PulledImage, RuntimeError> {
        let watcher = async {
            let mut looks = FIRST_LOOKS.into_iter();
            let mut waited = None;
            loop {
                sleep(looks.next().unwrap_or(LATER_LOOKS)).await;
                let bytes = runtime.progress(&request.image).await.ok().flatten();
                let wait = request.wait.asked();
                if bytes.is_some() || wait != waited {
                    let sent = self.progress.try_send(PullProgress { run, bytes, wait });
                    waited = if sent.is_ok() { wait } else { waited };
                }
            }
        };
        tokio::select! {
            biased;
            pulled = runtime.pull(request) => pulled,
            never = watcher => never,
        }
    }

    async fn check(
        &self,
        attempt: &PullAttempt,
        image: &ImageRef,
        runtime: &dyn ImageRuntime,
        logins: Vec<Credential>,
    ) -> Result<(), Failure> {
        let asked = |check: Check| attempt.entry.checks.contains(&check);
        let proc = Path::new("/proc");
        let mut measured = Measured::default();
        if asked(Check::Cpu) {
            measured.cpu = checks::cpu(proc).await;
        }
        if asked(Check::Memory) {
            measured.memory = checks::memory(proc).await;
        }
        if asked(Check::Disk) {
            let fs = runtime.image_fs().await?;
            measured.image_fs = Some((fs.capacity, fs.free));
            measured.image_fs_used = Some(fs.used);
            measured.missing = self
                .probe_registry(image, runtime, logins)
                .await
                .ok()
                .map(|probe| probe.missing);
        }
        // Held over judging and promising, so that two pulls are not promised the same room.
        let mut promises = self.promises.lock().await;
        let promise = Promise {
            bytes: promises.values().copied().sum(),
            gc_threshold: self.gc_threshold,
        };
        judge(&attempt.entry.checks, &measured, promise).map_err(|why| Failure::new(Reason::CheckFailed, why))?;
        if let Some(missing) = measured.missing {
            promises.insert(attempt.run, room_for(missing));
        }
        Ok(())
    }
}

/// Success is said only of an image that the runtime shows.
async fn pulled_and_there(
    runtime: &dyn ImageRuntime,
    image: &ImageRef,
    pulled: larder_runtime::PulledImage,
) -> Result<Image, Failure> {
    let there = runtime.status(image).await?;
    let shown = there.filter(|there| {
        pulled.digest.as_ref().is_none_or(|digest| {
            there
                .digests
                .iter()
                .any(|known| known.reference().digest() == Some(digest))
        })
    });
    let hosts = match pulled.path {
        FetchPath::Fetcher(hosts) => hosts,
        FetchPath::Runtime | FetchPath::LeftToRuntime(_) => BTreeSet::new(),
    };
    match shown {
        Some(there) => Ok(Image {
            id: there.id,
            digest: pulled.digest.map(|digest| digest.to_string()),
            bytes: pulled.download.map(|size| size.0),
            fetched: pulled.fetched.map(|size| size.0),
            hosts,
        }),
        None => Err(Failure::new(
            Reason::Internal,
            "the runtime says that it pulled the image, but does not have it; it may have been removed at once",
        )),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_while(90, "slowly (the registry asks to wait 90 s)")]
    #[case::an_hour(3_600, "slowly (the registry asks to wait 3600 s)")]
    #[case::for_ever(u64::MAX, "slowly (the registry asks to wait longer than 3600 s)")]
    fn what_a_registry_asks_for_is_said_as_far_as_it_is_heeded(#[case] seconds: u64, #[case] want: &str) {
        let failure = Failure::new(Reason::RateLimited, "slowly").patient(Some(Duration::from_secs(seconds)));
        assert_eq!(failure.words, want);
    }
}
