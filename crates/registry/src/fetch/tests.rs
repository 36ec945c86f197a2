//! Fetches from a registry in this process, with the faults that registries and lines have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use larder_model::Reason;
use rstest::rstest;
use tokio::time::Instant;

use super::*;
use crate::client::digest_of;
use crate::client::tests::fake::FakeRegistry;
use crate::hosts::Hosts;
use crate::{RegistryClient, RegistryError, Settings};

const MIB: usize = 1 << 20;

#[derive(Default, Clone)]
struct Memory(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    whole: BTreeMap<String, Vec<u8>>,
    partial: BTreeMap<String, Vec<u8>>,
}

struct MemorySink {
    memory: Memory,
    digest: String,
    begins_at: u64,
}

impl BlobStore for Memory {
    type Sink = MemorySink;
    type Error = String;

    async fn open(&self, blob: &Descriptor) -> Result<Option<MemorySink>, String> {
        let digest = blob.digest.to_string();
        let mut content = self.0.lock().unwrap();
        if content.whole.contains_key(&digest) {
            return Ok(None);
        }
        let begins_at = content.partial.entry(digest.clone()).or_default().len() as u64;
        drop(content);
        Ok(Some(MemorySink {
            memory: self.clone(),
            digest,
            begins_at,
        }))
    }
}

impl BlobSink for MemorySink {
    type Error = String;

    fn begins_at(&self) -> u64 {
        self.begins_at
    }

    async fn append(&mut self, bytes: Bytes) -> Result<(), String> {
        let mut content = self.memory.0.lock().unwrap();
        content
            .partial
            .entry(self.digest.clone())
            .or_default()
            .extend_from_slice(&bytes);
        Ok(())
    }

    async fn commit(self) -> Result<(), CommitError<String>> {
        let mut content = self.memory.0.lock().unwrap();
        let bytes = content.partial.remove(&self.digest).unwrap_or_default();
        let found = digest_of(None, &bytes).unwrap();
        if found.to_string() != self.digest {
            return Err(CommitError::WrongContent);
        }
        content.whole.insert(self.digest, bytes);
        Ok(())
    }

    async fn discard(self) {
        self.memory.0.lock().unwrap().partial.remove(&self.digest);
    }
}

impl Memory {
    fn whole(&self, blob: &Descriptor) -> Option<Vec<u8>> {
        self.0.lock().unwrap().whole.get(&blob.digest.to_string()).cloned()
    }

    fn leave(&self, blob: &Descriptor, bytes: &[u8]) {
        let mut content = self.0.lock().unwrap();
        content.partial.insert(blob.digest.to_string(), bytes.to_vec());
    }
}

fn content(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(byte).take(len).collect()
}

fn client() -> RegistryClient {
    RegistryClient::new(Settings {
        stall_after: Duration::from_millis(400),
        ..Settings::default()
    })
}

/// Fetches with eight connections from the start.
async fn fetch(
    client: &RegistryClient,
    registry: &FakeRegistry,
    blobs: &[Descriptor],
    memory: &Memory,
) -> (Result<Fetched, FetchError<String>>, u64) {
    let repository = client.repository(&registry.image("app:v1"), vec![]).unwrap();
    fetch_from(&repository, blobs, memory).await
}

async fn fetch_from(
    repository: &Repository,
    blobs: &[Descriptor],
    memory: &Memory,
) -> (Result<Fetched, FetchError<String>>, u64) {
    let mut fetcher = Fetcher::new(FetchSettings::default());
    fetcher.starts_with_all = true;
    let counter = LineCounter::default();
    let fetch = Fetch {
        repository,
        blobs: blobs.to_vec(),
        counter: counter.clone(),
        stops_on_fast_lines: false,
    };
    let outcome = tokio::time::timeout(Duration::from_mins(1), fetcher.fetch(fetch, memory)).await;
    (outcome.expect("a fetch ends"), counter.bytes())
}

fn registry_error(outcome: Result<Fetched, FetchError<String>>) -> RegistryError {
    match outcome {
        Err(FetchError::Registry(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn blobs_arrive_whole_in_many_ranges() {
    let registry = FakeRegistry::start().await;
    let all: Vec<_> = (0..3).map(|seed| content(seed, 5 * MIB + usize::from(seed))).collect();
    let mut blobs: Vec<_> = all.iter().map(|bytes| registry.add_blob(bytes.clone())).collect();
    blobs.push(registry.add_blob("small"));
    let memory = Memory::default();
    let (fetched, bytes) = fetch(&client(), &registry, &blobs, &memory).await;
    let fetched = fetched.unwrap();
    assert!(fetched.is_complete);
    assert_eq!(fetched.hosts, [registry.address.clone()].into());
    for (blob, bytes) in blobs.iter().zip(&all) {
        assert!(memory.whole(blob).as_ref() == Some(bytes));
    }
    let total: u64 = blobs.iter().map(|blob| blob.size).sum();
    assert_eq!(bytes, total, "each byte once");
    let ranges = registry.log().iter().filter(|line| line.contains("bytes=")).count();
    assert!(12 <= ranges, "{ranges}");
}

#[tokio::test]
async fn what_is_there_is_not_asked_for() {
    let registry = FakeRegistry::start().await;
    let (there, begun) = (content(1, 2 * MIB), content(2, 3 * MIB));
    let (there, rest) = (registry.add_blob(there.clone()), registry.add_blob(begun.clone()));
    let memory = Memory::default();
    fetch(&client(), &registry, std::slice::from_ref(&there), &memory)
        .await
        .0
        .unwrap();
    memory.leave(&rest, &begun[..2_500_000]);
    let (fetched, bytes) = fetch(&client(), &registry, &[there, rest.clone()], &memory).await;
    fetched.unwrap();
    assert_eq!(bytes, rest.size - 2_500_000);
    assert!(memory.whole(&rest) == Some(begun));
}

#[tokio::test]
async fn dropped_connections_go_on_at_the_byte() {
    let registry = FakeRegistry::start().await;
    let bytes = content(1, 6 * MIB);
    let blob = registry.add_blob(bytes.clone());
    registry.shelf().cut_after = Some(300_001);
    registry.shelf().cuts = Some(10);
    let memory = Memory::default();
    let (fetched, line) = fetch(&client(), &registry, std::slice::from_ref(&blob), &memory).await;
    fetched.unwrap();
    assert!(memory.whole(&blob) == Some(bytes));
    assert_eq!(line, blob.size, "no byte came twice");
}

#[tokio::test]
async fn wrong_bytes_of_an_earlier_writer_are_fetched_again() {
    let registry = FakeRegistry::start().await;
    let bytes = content(1, 3 * MIB);
    let blob = registry.add_blob(bytes.clone());
    let memory = Memory::default();
    memory.leave(&blob, &vec![0; MIB]);
    fetch(&client(), &registry, std::slice::from_ref(&blob), &memory)
        .await
        .0
        .unwrap();
    assert!(memory.whole(&blob) == Some(bytes));
}

#[rstest]
#[case::ignored(None)]
#[case::not_satisfiable(Some(416))]
#[case::bad_request(Some(400))]
#[case::not_implemented(Some(501))]
#[tokio::test]
async fn a_registry_without_ranges_is_read_in_one_piece(#[case] refusal: Option<u16>) {
    let registry = FakeRegistry::start().await;
    let all: Vec<_> = (0..2).map(|seed| content(seed, 4 * MIB)).collect();
    let blobs: Vec<_> = all.iter().map(|bytes| registry.add_blob(bytes.clone())).collect();
    registry.shelf().ignores_ranges = refusal.is_none();
    registry.shelf().refuses_ranges = refusal;
    let memory = Memory::default();
    memory.leave(&blobs[1], &all[1][..1000]);
    fetch(&client(), &registry, &blobs, &memory).await.0.unwrap();
    for (blob, bytes) in blobs.iter().zip(&all) {
        assert!(memory.whole(blob).as_ref() == Some(bytes));
    }
}

#[tokio::test]
async fn wrong_bytes_in_one_range_never_get_into_the_store() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(1, 4 * MIB));
    registry.shelf().wrong_byte = Some(3 * MIB + 17);
    let memory = Memory::default();
    let (fetched, _) = fetch(&client(), &registry, std::slice::from_ref(&blob), &memory).await;
    let error = registry_error(fetched);
    assert_eq!(error.reason, Reason::InvalidImage);
    assert!(error.message.contains("does not have its digest"), "{error}");
    assert_eq!(memory.whole(&blob), None);
}

#[tokio::test]
async fn after_wrong_bytes_nothing_half_finished_is_left_to_be_continued() {
    let registry = FakeRegistry::start().await;
    let (wrong, slow) = (
        registry.add_blob(content(1, 100_000)),
        registry.add_blob(content(2, 8 * MIB)),
    );
    let digest = wrong.digest.to_string();
    registry.shelf().blobs.insert(digest, content(3, 100_000).into());
    // A body that goes on is one that is in the store in part when the other blob turns out to be wrong.
    registry.shelf().stall_after = Some(200_000);
    let memory = Memory::default();
    let client = RegistryClient::new(Settings::default());
    let (fetched, _) = fetch(&client, &registry, &[wrong, slow], &memory).await;
    assert_eq!(registry_error(fetched).reason, Reason::InvalidImage);
    assert_eq!(memory.0.lock().unwrap().partial.len(), 0);
}

/// A registry with a mirror in front of it.
fn behind_mirror(registry: &FakeRegistry, mirror: &str) -> (tempfile::TempDir, RegistryClient) {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join(&registry.address);
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("hosts.toml"), format!("[host.\"http://{mirror}\"]\n")).unwrap();
    let client = RegistryClient::new(Settings {
        hosts: Hosts::in_dir(dir.path()),
        ..Settings::default()
    });
    (dir, client)
}

#[rstest]
#[case::fails(503, 8)]
#[case::lacks_the_blob(404, 8)]
#[tokio::test]
async fn a_mirror_that_failed_is_not_asked_for_every_range(#[case] status: u16, #[case] at_most: usize) {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start_at("127.0.0.2").await);
    let bytes = content(1, 12 * MIB);
    let blob = registry.add_blob(bytes.clone());
    mirror.shelf().refusals = std::iter::repeat_n((status, vec![]), 1000).collect();
    let (_dir, client) = behind_mirror(&registry, &mirror.address);
    let memory = Memory::default();
    let (fetched, _) = fetch(&client, &registry, std::slice::from_ref(&blob), &memory).await;
    assert_eq!(fetched.unwrap().hosts, [registry.address.clone()].into());
    assert!(memory.whole(&blob) == Some(bytes));
    // Each of the first connections may find it out by itself.
    let (asked, ranges) = (mirror.log().len(), registry.log().len());
    assert!(asked <= at_most && 30 < ranges, "{asked} of {ranges}");
}

#[tokio::test]
async fn a_mirror_that_failed_is_asked_again_when_the_registry_fails_too() {
    let (registry, mirror) = (FakeRegistry::start().await, FakeRegistry::start_at("127.0.0.2").await);
    let bytes = content(1, 3 * MIB);
    let blob = mirror.add_blob(bytes.clone());
    // The mirror fails for a while; the registry has no such blob.
    mirror.shelf().refusals = std::iter::repeat_n((500, vec![]), 3).collect();
    let (_dir, client) = behind_mirror(&registry, &mirror.address);
    let memory = Memory::default();
    let repository = client.repository(&registry.image("app:v1"), vec![]).unwrap();
    repository.resolve().await.unwrap_err();
    let (fetched, _) = fetch_from(&repository, std::slice::from_ref(&blob), &memory).await;
    let error = registry_error(fetched);
    assert_eq!(error.reason, Reason::NotFound, "the registry's own error: {error}");
    mirror.shelf().refusals.clear();
    let (fetched, _) = fetch_from(&repository, std::slice::from_ref(&blob), &memory).await;
    fetched.unwrap();
    assert!(memory.whole(&blob) == Some(bytes));
}

#[rstest]
#[case::seconds(429, vec![("retry-after", "1".to_owned())])]
#[case::unavailable(503, vec![("retry-after", "1".to_owned())])]
#[case::date(429, vec![
    ("retry-after", "Wed, 21 Oct 2015 07:28:01 GMT".to_owned()),
    ("date", "Wed, 21 Oct 2015 07:28:00 GMT".to_owned()),
])]
#[tokio::test]
async fn a_short_wait_that_the_registry_asks_for_happens_in_place(
    #[case] status: u16,
    #[case] headers: Vec<(&'static str, String)>,
) {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    let bytes = content(1, 2 * MIB);
    let blob = registry.add_blob(bytes.clone());
    registry.shelf().refusals = [(status, headers)].into();
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let repository = repository.waiting_until(Instant::now() + Duration::from_secs(50));
    repository.resolve().await.unwrap();
    let memory = Memory::default();
    let (fetched, _) = fetch_from(&repository, std::slice::from_ref(&blob), &memory).await;
    fetched.unwrap();
    assert!(memory.whole(&blob) == Some(bytes));
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_an_error_at_once() {
    let registry = FakeRegistry::start().await;
    registry.shelf().refusals = [(429, vec![("retry-after", "4000".to_owned())])].into();
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let repository = repository.waiting_until(Instant::now() + Duration::from_mins(5));
    let error = repository.resolve().await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(4000)));
}

#[tokio::test]
async fn a_pause_of_the_blob_store_is_not_one_of_the_registry() {
    let (registry, blob_store) = (FakeRegistry::start().await, FakeRegistry::start_at("127.0.0.2").await);
    registry.add_image("v1", "amd64", b"layer");
    let blob = blob_store.add_blob(content(1, 100_000));
    registry.shelf().redirects_to = Some(blob_store.origin());
    blob_store.shelf().refusals = [(429, vec![("retry-after", "40".to_owned())])].into();
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let (fetched, _) = fetch_from(&repository, std::slice::from_ref(&blob), &Memory::default()).await;
    assert!(registry_error(fetched).retry_after.is_some());
    repository.resolve().await.unwrap();
    let asked = blob_store.log().len();
    let (fetched, _) = fetch_from(&repository, std::slice::from_ref(&blob), &Memory::default()).await;
    assert!(registry_error(fetched).message.contains("asked to retry after"));
    assert_eq!(blob_store.log().len(), asked, "the blob store is left alone");
}

#[tokio::test]
async fn a_range_of_a_blob_with_another_length_is_refused() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(1, 4 * MIB));
    registry.shelf().claims_more = 10;
    let memory = Memory::default();
    let (fetched, _) = fetch(&client(), &registry, std::slice::from_ref(&blob), &memory).await;
    let error = registry_error(fetched);
    assert_eq!(error.reason, Reason::InvalidImage, "{error}");
    assert_eq!(memory.whole(&blob), None);
}

#[rstest]
#[case::longer(1)]
#[case::shorter(-1)]
#[tokio::test]
async fn a_whole_blob_of_another_length_is_refused(#[case] difference: i64) {
    let registry = FakeRegistry::start().await;
    let mut blob = registry.add_blob(content(1, 100_000));
    blob.size = blob.size.strict_add_signed(-difference);
    registry.shelf().ignores_ranges = true;
    let memory = Memory::default();
    let (fetched, _) = fetch(&client(), &registry, std::slice::from_ref(&blob), &memory).await;
    let error = registry_error(fetched);
    assert_eq!(error.reason, Reason::InvalidImage, "{error}");
    assert_eq!(memory.whole(&blob), None);
}

#[tokio::test]
async fn an_endless_body_is_read_only_as_far_as_it_was_asked_for() {
    let registry = FakeRegistry::start().await;
    let bytes = content(1, 3 * MIB);
    let blob = registry.add_blob(bytes.clone());
    registry.shelf().is_endless = true;
    let memory = Memory::default();
    let (fetched, line) = fetch(&client(), &registry, std::slice::from_ref(&blob), &memory).await;
    fetched.unwrap();
    assert!(memory.whole(&blob) == Some(bytes));
    assert!(line < blob.size * 2, "{line}");
}

#[tokio::test]
async fn a_body_that_stands_still_ends_with_a_reason() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(1, 100_000));
    registry.shelf().stall_after = Some(0);
    let (fetched, _) = fetch(&client(), &registry, &[blob], &Memory::default()).await;
    assert_eq!(registry_error(fetched).reason, Reason::Stalled);
}

#[tokio::test]
async fn a_circle_of_redirects_ends_with_a_reason() {
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob(content(1, 100_000));
    let origin = registry.origin();
    registry.shelf().redirects_to = Some(origin);
    let (fetched, _) = fetch(&client(), &registry, &[blob], &Memory::default()).await;
    let error = registry_error(fetched);
    assert_eq!(error.reason, Reason::Unreachable, "{error}");
}

#[tokio::test]
async fn a_signed_address_that_ends_during_a_blob_is_asked_for_again() {
    let (registry, blob_store) = (FakeRegistry::start().await, FakeRegistry::start_at("127.0.0.2").await);
    let bytes = content(1, 4 * MIB);
    let blob = blob_store.add_blob(bytes.clone());
    let origin = blob_store.origin();
    registry.shelf().redirects_to = Some(origin);
    blob_store.shelf().cut_after = Some(700_000);
    blob_store.shelf().cuts = Some(2);
    blob_store.shelf().refusals = [(403, vec![]), (401, vec![])].into();
    let memory = Memory::default();
    fetch(&client(), &registry, std::slice::from_ref(&blob), &memory)
        .await
        .0
        .unwrap();
    assert!(memory.whole(&blob) == Some(bytes));
    assert!(blob_store.secrets().is_empty(), "no login goes there");
}

#[rstest]
#[case::too_many_requests(429, Reason::RateLimited)]
#[case::unavailable(503, Reason::Unreachable)]
#[tokio::test]
async fn a_pause_counts_for_the_whole_registry(#[case] status: u16, #[case] reason: Reason) {
    let registry = FakeRegistry::start().await;
    registry.add_image("v1", "amd64", b"layer");
    let blob = registry.add_blob(content(1, 4 * MIB));
    registry.shelf().refusals = [(status, vec![("retry-after", "40".to_owned())])].into();
    let client = client();
    let (fetched, _) = fetch(&client, &registry, std::slice::from_ref(&blob), &Memory::default()).await;
    let error = registry_error(fetched);
    assert!([reason, Reason::RateLimited].contains(&error.reason), "{error}");
    assert!(error.retry_after.is_some());
    let asked = registry.log().len();

    let other = client.repository(&registry.image("other:v1"), vec![]).unwrap();
    let error = other.resolve().await.unwrap_err();
    assert_eq!(error.reason, Reason::RateLimited);
    assert!(error.message.contains("the registry asked to retry after "), "{error}");
    assert_eq!(registry.log().len(), asked, "the registry is left alone");
}

#[tokio::test]
async fn a_full_store_ends_the_fetch_with_its_own_error() {
    struct Full;
    impl BlobStore for Full {
        type Sink = MemorySink;
        type Error = String;
        async fn open(&self, _: &Descriptor) -> Result<Option<MemorySink>, String> {
            Err("no space".to_owned())
        }
    }
    let registry = FakeRegistry::start().await;
    let blob = registry.add_blob("content");
    let repository = client().repository(&registry.image("app:v1"), vec![]).unwrap();
    let fetch = Fetch {
        repository: &repository,
        blobs: vec![blob],
        counter: LineCounter::default(),
        stops_on_fast_lines: false,
    };
    let outcome = Fetcher::new(FetchSettings::default()).fetch(fetch, &Full).await;
    assert!(matches!(outcome, Err(FetchError::Store(why)) if why == "no space"));
}
