//! Where blobs go: opened, appended to in order, and committed only with the right digest.

use bytes::Bytes;

use crate::RegistryError;
use crate::manifest::Descriptor;

/// A place that keeps blobs.
pub trait BlobStore: Sync {
    /// A blob that is being written.
    type Sink: BlobSink<Error = Self::Error>;
    /// Why the store cannot.
    type Error: Send;

    /// Opens a blob, behind the bytes that an earlier writer left. While another writer has it, this waits. `None`: the
    /// whole blob is there.
    fn open(&self, blob: &Descriptor) -> impl Future<Output = Result<Option<Self::Sink>, Self::Error>> + Send;
}

/// One blob on its way into a store. Dropping it keeps what was appended.
pub trait BlobSink: Send + Sized {
    /// Why the store cannot.
    type Error: Send;

    /// Bytes that the store had when the blob was opened.
    fn begins_at(&self) -> u64;

    /// Takes the next bytes.
    fn append(&mut self, bytes: Bytes) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Checks size and digest of all bytes. Wrong ones are thrown away.
    fn commit(self) -> impl Future<Output = Result<(), CommitError<Self::Error>>> + Send;

    /// Throws away what was appended: nobody should continue it.
    fn discard(self) -> impl Future<Output = ()> + Send;
}

/// Why a blob does not become part of the store.
#[derive(Debug)]
pub enum CommitError<E> {
    /// Its bytes do not have its digest. They are gone.
    WrongContent,
    /// The store cannot.
    Store(E),
}

/// Why a fetch ended.
#[derive(Debug)]
pub enum FetchError<E> {
    /// The registry, or the way to it, or wrong content from there.
    Registry(RegistryError),
    /// The store.
    Store(E),
}
