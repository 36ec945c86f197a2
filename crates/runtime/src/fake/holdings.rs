//! What the fake holds: images under their names, running pulls, pins and aliases. No waiting, no locks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    time::Duration,
};

use larder_model::{ByteSize, Digest, ImageRef, Reference};
use tokio::{sync::mpsc, time::Instant};

use super::{script::Script, trace::Trace};
use crate::{
    Capabilities, ImageEvent, ImageFs, LocalImage, OwnReference, Progress, PulledImage, Purpose, RuntimeVersion,
    sha256::sha256_of,
};

pub(super) struct Holdings {
    pub(super) scripts: HashMap<ImageRef, Script>,
    pub(super) default_script: Script,
    /// Every name by tag or digest that was pulled, put or aliased, with the manifest behind it.
    pub(super) images: BTreeMap<ImageRef, Held>,
    pub(super) pins: BTreeMap<ImageRef, Digest>,
    /// Our second names: name to the image it was made of.
    pub(super) aliases: BTreeMap<ImageRef, ImageRef>,
    /// None: the fake does not tell which blobs it holds.
    pub(super) blobs: Option<BTreeSet<Digest>>,
    /// The images that were named when unfinished layers were last to be dropped.
    pub(super) unfinished: Option<BTreeSet<ImageRef>>,
    pub(super) running: BTreeMap<u64, Running>,
    pub(super) most_running: usize,
    pub(super) listeners: Vec<mpsc::Sender<ImageEvent>>,
    pub(super) trace: Trace,
    pub(super) capabilities: Capabilities,
    pub(super) image_fs: ImageFs,
    pub(super) version: RuntimeVersion,
    next_number: u64,
}

#[derive(Clone)]
pub(super) struct Held {
    digest: Digest,
    size: ByteSize,
}

pub(super) struct Running {
    pub(super) image: ImageRef,
    pub(super) since: Instant,
    pub(super) delay: Duration,
    pub(super) size: ByteSize,
}

impl Default for Holdings {
    fn default() -> Self {
        Self {
            scripts: HashMap::new(),
            default_script: Script::default(),
            images: BTreeMap::new(),
            pins: BTreeMap::new(),
            aliases: BTreeMap::new(),
            blobs: None,
            unfinished: None,
            running: BTreeMap::new(),
            most_running: 0,
            listeners: Vec::new(),
            trace: Trace::default(),
            capabilities: Capabilities::ALL,
            image_fs: ImageFs {
                path: PathBuf::from("/var/lib/fake"),
                capacity: ByteSize(100 << 30),
                used: ByteSize(10 << 30),
                free: ByteSize(90 << 30),
                used_by_images: Some(ByteSize(0)),
            },
            version: RuntimeVersion {
                name: "fake".to_owned(),
                version: "1.0.0".to_owned(),
            },
            next_number: 0,
        }
    }
}

impl Holdings {
    pub(super) fn script_mut(&mut self, image: &ImageRef) -> &mut Script {
        match self.scripts.get_mut(image) {
            Some(script) => script,
            None => &mut self.default_script,
        }
    }

    pub(super) fn start(&mut self, pull: Running) -> u64 {
        self.next_number += 1;
        self.running.insert(self.next_number, pull);
        self.most_running = self.most_running.max(self.running.len());
        self.next_number
    }

    pub(super) fn progress(&self, image: &ImageRef, now: Instant) -> Option<Progress> {
        let pull = self.running.values().find(|pull| pull.image == *image)?;
        let elapsed = now.saturating_duration_since(pull.since).min(pull.delay);
        let done = match pull.delay.as_millis() {
            0 => u128::from(pull.size.0),
            whole => u128::from(pull.size.0) * elapsed.as_millis() / whole,
        };
        Some(Progress {
            done: ByteSize(u64::try_from(done).unwrap_or(pull.size.0)),
            total: pull.size,
        })
    }

    pub(super) fn store(&mut self, image: &ImageRef) -> PulledImage {
        let script = self.script_mut(image);
        let size = script.size;
        let digest = match (image.reference(), &script.digest) {
            (Reference::Digest(digest), _) | (Reference::Tag(_), Some(digest)) => digest.clone(),
            (Reference::Tag(_), None) => sha256_of(image.canonical().as_bytes()),
        };
        let held = Held { digest, size };
        let pulled = PulledImage {
            id: id_of(&held),
            digest: Some(held.digest.clone()),
            size,
            download: Some(size),
            fetched: Some(size),
            path: crate::FetchPath::Runtime,
        };
        // A pull by tag makes the image known by its digest too, as CRI runtimes do.
        if let Ok(by_digest) = ImageRef::from_parts(image.name(), &held.digest.to_string()) {
            self.images.insert(by_digest, held.clone());
        }
        // A name that was our alias and is pulled for itself is no alias any more.
        self.aliases.remove(image);
        self.images.insert(image.clone(), held);
        pulled
    }

    pub(super) fn list(&self) -> Vec<LocalImage> {
        let mut by_digest: BTreeMap<&Digest, LocalImage> = BTreeMap::new();
        for (name, held) in &self.images {
            let image = by_digest.entry(&held.digest).or_insert_with(|| LocalImage {
                id: id_of(held),
                tags: Vec::new(),
                digests: Vec::new(),
                size: held.size,
                pinned: self.pins.values().any(|pinned| *pinned == held.digest),
            });
            match name.reference() {
                Reference::Tag(_) => image.tags.push(name.clone()),
                Reference::Digest(_) => image.digests.push(name.clone()),
            }
        }
        by_digest.into_values().collect()
    }

    pub(super) fn status(&self, image: &ImageRef) -> Option<LocalImage> {
        self.list().into_iter().find(|held| held.answers_to(image))
    }

    /// Removes the image under all its names, and returns them.
    pub(super) fn remove(&mut self, image: &ImageRef) -> Vec<ImageRef> {
        let Some(held) = self.images.get(image) else {
            return Vec::new();
        };
        let digest = held.digest.clone();
        let names: Vec<ImageRef> = self
            .images
            .iter()
            .filter(|(_, held)| held.digest == digest)
            .map(|(name, _)| name.clone())
            .collect();
        for name in &names {
            self.images.remove(name);
            self.aliases.remove(name);
        }
        self.pins.retain(|_, pinned| *pinned != digest);
        names
    }

    pub(super) fn pin(&mut self, image: &ImageRef) -> Option<()> {
        let digest = self.images.get(image)?.digest.clone();
        self.pins.insert(image.clone(), digest);
        Some(())
    }

    pub(super) fn alias(&mut self, image: &ImageRef, name: &ImageRef) -> Option<()> {
        let held = self.images.get(image)?.clone();
        self.images.insert(name.clone(), held);
        self.aliases.insert(name.clone(), image.clone());
        Some(())
    }

    pub(super) fn own_references(&self) -> Vec<OwnReference> {
        let pins = self.pins.iter().map(|(image, digest)| OwnReference {
            purpose: Purpose::Pin,
            image: image.clone(),
            digest: digest.clone(),
        });
        let aliases = self.aliases.iter().filter_map(|(name, image)| {
            Some(OwnReference {
                purpose: Purpose::Alias(name.clone()),
                image: image.clone(),
                digest: self.images.get(name)?.digest.clone(),
            })
        });
        pins.chain(aliases).collect()
    }
}

fn id_of(held: &Held) -> String {
    sha256_of(format!("config of {}", held.digest).as_bytes()).to_string()
}
