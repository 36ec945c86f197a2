//! A runtime in memory that does what a script says.
//!
//! For tests, and for thousands of hollow nodes in one process: a fake costs a few hundred bytes until it holds images,
//! runs no task of its own and waits on tokio's clock, so that paused time works. It keeps the promises of
//! [`ImageRuntime`] that callers rely on: dropping a pull cancels it, an absent runtime fails and comes back, foreign
//! names stay.

mod holdings;
mod script;
mod trace;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use larder_model::{Digest, ImageRef};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use self::holdings::{Holdings, Running};
pub use self::{
    script::Script,
    trace::{Call, PullCall},
};
use crate::{
    Capabilities, ImageEvent, ImageEvents, ImageFs, ImageRuntime, LocalImage, MARKER_ANNOTATION, OwnReference,
    Progress, PullRequest, PulledImage, RuntimeError, RuntimeText, RuntimeVersion, Support,
};

/// Where an absent fake pretends to have listened.
const ENDPOINT: &str = "fake";

/// A scripted runtime. Clones share one set of images.
#[derive(Clone)]
pub struct FakeRuntime {
    holdings: Arc<Mutex<Holdings>>,
    up: Arc<watch::Sender<bool>>,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeRuntime {
    /// An empty runtime in which every pull succeeds at once.
    pub fn new() -> Self {
        Self {
            holdings: Arc::new(Mutex::new(Holdings::default())),
            up: Arc::new(watch::Sender::new(true)),
        }
    }

    /// What pulls of this image do from now on.
    pub fn script(&self, image: &ImageRef, script: Script) {
        self.lock().scripts.insert(image.clone(), script);
    }

    /// What pulls of every image without a script of its own do from now on.
    pub fn script_all(&self, script: Script) {
        self.lock().default_script = script;
    }

    /// Puts an image there, as if somebody else had pulled it.
    pub fn put(&self, image: &ImageRef) {
        self.lock().store(image);
    }

    /// Takes an image away behind the agent's back, with all its names, and tells those who listen.
    pub fn evict(&self, image: &ImageRef) {
        let (names, listeners) = {
            let mut holdings = self.lock();
            (holdings.remove(image), holdings.listeners.clone())
        };
        for name in names {
            for listener in &listeners {
                // A listener that is gone or too slow loses the event, as with a real runtime.
                listener.try_send(ImageEvent::Deleted(name.clone())).ok();
            }
        }
    }

    /// Makes the runtime go away: running pulls break, calls fail, event streams end.
    pub fn go_down(&self) {
        self.up.send_replace(false);
        self.lock().listeners.clear();
    }

    /// Makes it come back, with the images it had.
    pub fn come_up(&self) {
        self.up.send_replace(true);
    }

    /// What it says it can do. What it says it cannot, it refuses.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        self.lock().capabilities = capabilities;
    }

    /// The filesystem it reports.
    pub fn set_image_fs(&self, image_fs: ImageFs) {
        self.lock().image_fs = image_fs;
    }

    /// The blobs that it says it holds. Before the first call it does not tell, like a runtime that has no such call.
    pub fn set_blobs(&self, blobs: impl IntoIterator<Item = Digest>) {
        self.lock().blobs = Some(blobs.into_iter().collect());
    }

    /// Name and version it reports.
    pub fn set_version(&self, version: RuntimeVersion) {
        self.lock().version = version;
    }

    /// The latest calls that changed something or tried to, oldest first. Only the last few thousand are kept.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().trace.calls()
    }

    /// The images that were named when unfinished layers were last to be dropped. `None`: they never were.
    pub fn kept_unfinished(&self) -> Option<BTreeSet<ImageRef>> {
        self.lock().unfinished.clone()
    }

    /// The pulls among [`calls`](Self::calls).
    pub fn pulls(&self) -> Vec<PullCall> {
        let pulls = self.calls().into_iter().filter_map(|call| match call {
            Call::Pull(pull) => Some(pull),
            _ => None,
        });
        pulls.collect()
    }

    /// How many pulls run at this moment.
    pub fn running(&self) -> usize {
        self.lock().running.len()
    }

    /// The largest number of pulls that ever ran at once.
    pub fn most_running(&self) -> usize {
        self.lock().most_running
    }

    fn lock(&self) -> MutexGuard<'_, Holdings> {
        // A test that panicked while it held the lock has failed already; the data are still whole.
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_up(&self, doing: &str) -> Result<(), RuntimeError> {
        if *self.up.borrow() { Ok(()) } else { Err(down(doing)) }
    }

    fn check(&self, doing: &str, support: impl Fn(&Capabilities) -> &Support) -> Result<(), RuntimeError> {
        self.check_up(doing)?;
        match support(&self.lock().capabilities) {
            Support::Yes => Ok(()),
            Support::No(why) => Err(RuntimeError::Unsupported {
                doing: doing.to_owned(),
                why: why.clone(),
            }),
        }
    }
}

#[async_trait]
impl ImageRuntime for FakeRuntime {
    async fn capabilities(&self) -> Result<Capabilities, RuntimeError> {
        self.check_up("ask for capabilities")?;
        Ok(self.lock().capabilities.clone())
    }

    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        self.check_up("ask for the version")?;
        Ok(self.lock().version.clone())
    }

    async fn list(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        self.check_up("list images")?;
        Ok(self.lock().list())
    }

    async fn status(&self, image: &ImageRef) -> Result<Option<LocalImage>, RuntimeError> {
        self.check_up("look up an image")?;
        Ok(self.lock().status(image))
    }

    async fn pull(&self, request: &PullRequest) -> Result<PulledImage, RuntimeError> {
        let doing = format!("pull {}", request.image);
        let mut up = self.up.subscribe();
        let (delay, outcome, lies, pull) = {
            let mut holdings = self.lock();
            holdings.trace.record(Call::Pull(pull_call(request)));
            self.check_up(&doing)?;
            let script = holdings.script_mut(&request.image);
            let outcome = script.next_outcome(request.auth.as_ref());
            let (delay, size, lies) = (script.delay, script.size, script.lies);
            let number = holdings.start(Running {
                image: request.image.clone(),
                since: Instant::now(),
                delay,
                size,
            });
            (delay, outcome, lies, PullGuard { fake: self, number })
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = up.wait_for(|up| !up) => {
                pull.finish();
                return Err(down(&doing));
            }
        }
        pull.finish();
        match outcome {
            Ok(()) => {
                let pulled = self.lock().store(&request.image);
                if lies {
                    self.lock().remove(&request.image);
                }
                Ok(pulled)
            }
            Err(reason) => Err(RuntimeError::Refused {
                source: RuntimeText::new(format!("scripted failure {reason}")),
                reason,
                doing,
            }),
        }
    }

    async fn remove(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        self.check_up("remove an image")?;
        self.lock().trace.record(Call::Remove(image.clone()));
        self.evict(image);
        Ok(())
    }

    async fn drop_unfinished(&self, wanted: &BTreeSet<ImageRef>) -> Result<(), RuntimeError> {
        self.check_up("drop unfinished layers")?;
        self.lock().unfinished = Some(wanted.clone());
        Ok(())
    }

    async fn image_fs(&self) -> Result<ImageFs, RuntimeError> {
        self.check_up("ask for the image filesystem")?;
        Ok(self.lock().image_fs.clone())
    }

    async fn progress(&self, image: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        self.check("ask for progress", |capabilities| &capabilities.progress)?;
        Ok(self.lock().progress(image, Instant::now()))
    }

    async fn held_blobs(&self, blobs: &[Digest]) -> Result<Option<BTreeSet<Digest>>, RuntimeError> {
        self.check_up("look up blobs")?;
        let holdings = self.lock();
        let held = holdings.blobs.as_ref();
        Ok(held.map(|held| blobs.iter().filter(|blob| held.contains(*blob)).cloned().collect()))
    }

    async fn pin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        let doing = format!("pin {image}");
        self.check(&doing, |capabilities| &capabilities.pin)?;
        let mut holdings = self.lock();
        holdings.trace.record(Call::Pin(image.clone()));
        holdings.pin(image).ok_or(RuntimeError::Missing { doing })
    }

    async fn unpin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        self.check("unpin an image", |capabilities| &capabilities.pin)?;
        let mut holdings = self.lock();
        holdings.trace.record(Call::Unpin(image.clone()));
        holdings.pins.remove(image);
        Ok(())
    }

    async fn alias(&self, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        let doing = format!("give {image} the name {name}");
        self.check(&doing, |capabilities| &capabilities.alias)?;
        let mut holdings = self.lock();
        holdings.trace.record(Call::Alias(image.clone(), name.clone()));
        if holdings.images.contains_key(name) && !holdings.aliases.contains_key(name) {
            return Err(RuntimeError::ForeignReference { doing });
        }
        holdings.alias(image, name).ok_or(RuntimeError::Missing { doing })
    }

    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError> {
        self.check_up("list own references")?;
        Ok(self.lock().own_references())
    }

    async fn events(&self) -> Result<ImageEvents, RuntimeError> {
        self.check("listen to events", |capabilities| &capabilities.events)?;
        // Far more than a test lets pile up; a listener slower than that loses events, as the trait allows.
        let (sender, receiver) = mpsc::channel(64);
        self.lock().listeners.push(sender);
        let next = |mut receiver: mpsc::Receiver<ImageEvent>| async move {
            let event = receiver.recv().await?;
            Some((event, receiver))
        };
        Ok(stream::unfold(receiver, next).boxed())
    }
}

/// Takes the pull out of the running ones, and notes a cancellation when the future was dropped before its end.
struct PullGuard<'a> {
    fake: &'a FakeRuntime,
    number: u64,
}

impl PullGuard<'_> {
    fn finish(self) {
        self.fake.lock().running.remove(&self.number);
    }
}

impl Drop for PullGuard<'_> {
    fn drop(&mut self) {
        let mut holdings = self.fake.lock();
        if let Some(cancelled) = holdings.running.remove(&self.number) {
            holdings.trace.record(Call::Cancelled(cancelled.image));
        }
    }
}

fn down(doing: &str) -> RuntimeError {
    RuntimeError::Down {
        doing: doing.to_owned(),
        endpoint: ENDPOINT.to_owned(),
        source: RuntimeText::new("the fake runtime was told to be away"),
    }
}

fn pull_call(request: &PullRequest) -> PullCall {
    let mut annotations = request.sandbox.annotations.clone();
    annotations.insert(MARKER_ANNOTATION.0.to_owned(), MARKER_ANNOTATION.1.to_owned());
    PullCall {
        image: request.image.clone(),
        username: request.auth.as_ref().map(|auth| auth.username.clone()),
        labels: request.sandbox.labels.clone(),
        annotations,
        at: Instant::now(),
    }
}

#[cfg(test)]
mod tests;
