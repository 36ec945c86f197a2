//! Fuzz targets for what comes from registries and from files of a node: any bytes are read or refused, and what was read
//! keeps its promises.
//!
//! Each target has examples in `fuzz/corpus`. A test run checks all of them and some thousand changed ones, always the
//! same. `make fuzz` sets `LARDER_FUZZ_SECONDS`, and each target is fed with changed examples for that long. An input that
//! fails is written to the corpus, so that the next test run has it too.

use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use larder_model::{Digest, ImageRef};
use rstest::rstest;
use tokio::time::Instant;

use crate::Platform;
use crate::client::check_content_range;
use crate::docker_config::DockerConfig;
use crate::hosts::check_hosts_file;
use crate::keyring::Keyring;
use crate::manifest::{Content, Descriptor, Document, MAX_LAYERS, OCI_MANIFEST, PlatformImage, best_for};
use crate::provider::ProviderConfig;

/// Changed examples in a test run.
const IN_A_TEST: usize = 3_000;

/// Pieces that the formats give a meaning to.
const WORDS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\n",
    "-1",
    "0",
    "18446744073709551615",
    "1e999",
    "null",
    "sha256:",
    "\\u0000",
    "*",
    "bytes ",
    "/",
    "\u{1f980}",
    "&a ",
    "*a",
    "https://",
    "platform",
    "mediaType",
];

fn document(bytes: &[u8]) -> Document {
    let descriptor = Descriptor {
        media_type: OCI_MANIFEST.to_owned(),
        digest: Digest::sha256(&"a".repeat(64)).unwrap(),
        size: bytes.len() as u64,
        platform: None,
    };
    Document {
        descriptor,
        bytes: Bytes::copy_from_slice(bytes),
    }
}

fn manifest_or_index(bytes: &[u8]) {
    let document = document(bytes);
    match document.content() {
        Ok(Content::Manifest(manifest)) => {
            assert!(manifest.layers.len() <= MAX_LAYERS);
            let image = PlatformImage {
                documents: vec![document],
                manifest,
                config: None,
            };
            let largest = image.blobs().map(|blob| blob.size).max();
            assert!(largest.unwrap_or_default() <= image.download_size().bytes());
        }
        Ok(Content::Index(builds)) => {
            let machine = Platform::new("linux", "amd64", None);
            let best = best_for(&machine, &builds);
            assert!(best.is_none_or(|best| builds.contains(best)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn docker_config(bytes: &[u8]) {
    let image = ImageRef::parse("a.example/team/app:v1").unwrap();
    for config in [
        DockerConfig::from_config_json(bytes),
        DockerConfig::from_legacy_cfg(bytes),
    ] {
        let Ok(config) = config else { continue };
        let mut keyring = Keyring::default();
        keyring.extend(config.entries);
        let found = keyring.lookup(&image);
        assert!(found.is_empty() || !keyring.is_empty());
    }
}

fn provider_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(config) = ProviderConfig::parse(text) {
        for plugin in config.plugins {
            assert!(
                !plugin.name.is_empty() && !plugin.name.contains('/'),
                "{:?}",
                plugin.name
            );
        }
    }
}

fn as_text(check: impl Fn(&str)) -> impl Fn(&[u8]) {
    move |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            check(text);
        }
    }
}

#[rstest]
#[case::manifest("manifest", &manifest_or_index)]
#[case::index("index", &manifest_or_index)]
#[case::hosts_toml("hosts_toml", &as_text(check_hosts_file))]
#[case::docker_config("docker_config", &docker_config)]
#[case::provider_config("provider_config", &provider_config)]
#[case::content_range("content_range", &as_text(check_content_range))]
fn fuzz(#[case] name: &str, #[case] check: &dyn Fn(&[u8])) {
    let corpus = Corpus::open(name);
    for example in &corpus.examples {
        corpus.try_one(check, example);
    }
    let (end, mut random) = match seconds() {
        None => (None, Random(1)),
        Some(seconds) => (Some(Instant::now() + seconds), Random::new()),
    };
    let mut tried = 0;
    while end.map_or(tried < IN_A_TEST, |end| Instant::now() < end) {
        corpus.try_one(check, &random.change(&corpus.examples));
        tried += 1;
    }
    println!("{name}: {tried} inputs");
}

#[expect(clippy::disallowed_methods, reason = "`make fuzz` tells a test how long it may take")]
fn seconds() -> Option<Duration> {
    let seconds = std::env::var("LARDER_FUZZ_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().unwrap()))
}

struct Corpus {
    folder: PathBuf,
    examples: Vec<Vec<u8>>,
}

impl Corpus {
    fn open(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(name);
        let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
        files.sort_by(|a, b| {
            a.file_name()
                .map(OsStr::to_owned)
                .cmp(&b.file_name().map(OsStr::to_owned))
        });
        let examples: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!examples.is_empty());
        Self { folder, examples }
    }

    fn try_one(&self, check: &dyn Fn(&[u8]), input: &[u8]) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
            let number = input
                .iter()
                .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
            let file = self.folder.join(format!("found-{number:08x}"));
            std::fs::write(&file, input).unwrap();
            println!("the input that fails is in {}", file.display());
            resume_unwind(panic);
        }
    }
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    #[expect(
        clippy::disallowed_methods,
        reason = "each run of `make fuzz` should try other inputs"
    )]
    fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self(u64::from(now.subsec_nanos()) << 20 | now.as_secs() | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap() % end.max(1)
    }

    /// An example with a few changes.
    fn change(&mut self, examples: &[Vec<u8>]) -> Vec<u8> {
        let mut input = examples[self.below(examples.len())].clone();
        for _ in 0..=self.below(6) {
            let (at, to) = (self.below(input.len() + 1), self.below(input.len() + 1));
            let (from, until) = (at.min(to), at.max(to));
            match self.below(7) {
                0 => input.truncate(at),
                1 => drop(input.drain(from..until)),
                2 => drop(input.splice(at..at, WORDS[self.below(WORDS.len())].bytes())),
                3 => drop(input.splice(from..until, WORDS[self.below(WORDS.len())].bytes())),
                4 => {
                    let other = &examples[self.below(examples.len())];
                    let part = other[self.below(other.len() + 1)..].to_vec();
                    input.splice(from..until, part);
                }
                5 => {
                    let again = input[from..until].to_vec();
                    input.splice(at..at, again);
                }
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
            // Examples are small; what grows without end shows nothing new.
            input.truncate(64 << 10);
        }
        input
    }
}
