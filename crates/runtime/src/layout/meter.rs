//! How far the pulls that run at this moment have come.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use larder_model::{ByteSize, Digest, ImageRef};
use larder_registry::Progress as BlobProgress;

use crate::Progress;

#[derive(Default)]
pub(super) struct Meters(Mutex<HashMap<ImageRef, Arc<Meter>>>);

/// One pull.
pub(super) struct Meter {
    total: ByteSize,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    whole: ByteSize,
    growing: HashMap<Digest, BlobProgress>,
}

impl Meters {
    /// Enters a pull; it leaves when the guard is dropped. Two pulls of one image fetch the same blobs, each once, so
    /// whichever entered last speaks for both.
    pub(super) fn begin(self: &Arc<Self>, image: &ImageRef, total: ByteSize) -> MeterGuard {
        let meter = Arc::new(Meter {
            total,
            parts: Mutex::default(),
        });
        lock(&self.0).insert(image.clone(), Arc::clone(&meter));
        MeterGuard {
            meters: Arc::clone(self),
            image: image.clone(),
            meter,
        }
    }

    pub(super) fn read(&self, image: &ImageRef) -> Option<Progress> {
        let meter = Arc::clone(lock(&self.0).get(image)?);
        let parts = lock(&meter.parts);
        let growing = parts.growing.values().map(|blob| ByteSize(blob.bytes())).sum();
        Some(Progress {
            done: (parts.whole + growing).min(meter.total),
            total: meter.total,
        })
    }
}

impl Meter {
    /// A blob that is being fetched.
    pub(super) fn grows(&self, digest: &Digest, progress: BlobProgress) {
        lock(&self.parts).growing.insert(digest.clone(), progress);
    }

    /// A blob that is there.
    pub(super) fn is_whole(&self, digest: &Digest, size: u64) {
        let mut parts = lock(&self.parts);
        parts.growing.remove(digest);
        parts.whole += ByteSize(size);
    }
}

pub(super) struct MeterGuard {
    meters: Arc<Meters>,
    image: ImageRef,
    meter: Arc<Meter>,
}

impl MeterGuard {
    /// The pull's meter, for what fetches its blobs.
    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }
}

impl Drop for MeterGuard {
    fn drop(&mut self) {
        let mut meters = lock(&self.meters.0);
        if meters
            .get(&self.image)
            .is_some_and(|current| Arc::ptr_eq(current, &self.meter))
        {
            meters.remove(&self.image);
        }
    }
}

/// Every change is a single step, so the data are whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
