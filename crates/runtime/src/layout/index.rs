//! `index.json`: which names the folder has, and what each points to. Pure: no file is touched here.
//!
//! Entries that others wrote, and fields that we do not know, stay as they are.

use larder_model::{Digest, ImageRef, Reference};
use larder_registry::manifest::{Descriptor, OCI_INDEX};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{OwnReference, Purpose, RuntimeError};

/// Annotation by which `skopeo` and others find an image.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation from which `ctr image import` takes the name.
const IMAGE_NAME: &str = "io.containerd.image.name";
/// Annotation on a pinned image: whether the entry is a name that somebody pulled, or was made for the pin.
const PINNED: &str = "larder.local/pinned";
const PINNED_NAME: &str = "name";
const MADE_TO_PIN: &str = "pin";
/// Annotation on a second name: the image that it was made of.
const ALIAS_OF: &str = "larder.local/alias-of";

/// Annotation on an image that is shown in another form than it has in its registry: the descriptor it has there.
const SOURCE: &str = "larder.local/source";

/// What a name points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// What readers of the folder find.
    pub(super) shown: Descriptor,
    /// What the registry has; differs where readers would not understand that.
    pub(super) source: Descriptor,
}

/// The list of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u32,
    #[serde(default = "oci_index")]
    media_type: String,
    #[serde(default)]
    manifests: Vec<Entry>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// One name, or something that somebody else put there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

fn oci_index() -> String {
    OCI_INDEX.to_owned()
}

impl Default for Index {
    fn default() -> Self {
        Self {
            schema_version: 2,
            media_type: oci_index(),
            manifests: Vec::new(),
            rest: Map::new(),
        }
    }
}

impl Index {
    pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    pub(super) fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.manifests
    }

    /// Names a pulled image. True: the name, or a second name of it, pointed to something else before.
    pub(super) fn name(&mut self, image: &ImageRef, target: &Target) -> bool {
        let mut replaced = false;
        let mut pinned = false;
        self.manifests.retain(|entry| {
            let same = entry.image().as_ref() == Some(image);
            pinned |= same && entry.is_pinned();
            replaced |= same && entry.digest() != target.source.digest;
            !same
        });
        // Second names follow the image they were made of.
        for alias in self
            .manifests
            .iter_mut()
            .filter(|entry| entry.alias_of().as_ref() == Some(image))
        {
            replaced |= alias.digest() != target.source.digest;
            alias.point_to(target);
        }
        let mut entry = Entry::named(image, target);
        if pinned {
            entry.set(PINNED, PINNED_NAME);
        }
        self.manifests.push(entry);
        replaced
    }

    /// Removes an image under all its names.
    pub(super) fn remove(&mut self, image: &ImageRef) {
        if let Some(digest) = self.find(image).map(Entry::digest) {
            self.manifests
                .retain(|entry| entry.image().is_none() || entry.digest() != digest);
        }
    }

    /// False: there is no such image.
    pub(super) fn pin(&mut self, image: &ImageRef) -> bool {
        let Some(target) = self.find(image).map(Entry::target) else {
            return false;
        };
        let named = self
            .manifests
            .iter_mut()
            .find(|entry| entry.image().as_ref() == Some(image));
        if let Some(entry) = named {
            if !entry.is_pinned() {
                entry.set(PINNED, PINNED_NAME);
            }
        } else {
            // A digest that is known through a tag only.
            let mut entry = Entry::named(image, &target);
            entry.set(PINNED, MADE_TO_PIN);
            self.manifests.push(entry);
        }
        true
    }

    pub(super) fn unpin(&mut self, image: &ImageRef) {
        self.manifests
            .retain(|entry| entry.image().as_ref() != Some(image) || entry.get(PINNED) != Some(MADE_TO_PIN));
        for entry in self
            .manifests
            .iter_mut()
            .filter(|entry| entry.image().as_ref() == Some(image))
        {
            entry.annotations.remove(PINNED);
        }
    }

    pub(super) fn alias(&mut self, doing: String, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        let Some(target) = self.find(image).map(Entry::target) else {
            return Err(RuntimeError::Missing { doing });
        };
        let present = self
            .manifests
            .iter()
            .position(|entry| entry.image().as_ref() == Some(name));
        if let Some(present) = present {
            let entry = &self.manifests[present];
            if entry.alias_of().is_none() {
                // Somebody's own name that already points there does what it should.
                return if entry.digest() == target.source.digest {
                    Ok(())
                } else {
                    Err(RuntimeError::ForeignReference { doing })
                };
            }
            self.manifests.remove(present);
        }
        let mut entry = Entry::named(name, &target);
        entry.set(ALIAS_OF, &image.canonical());
        self.manifests.push(entry);
        Ok(())
    }

    pub(super) fn own_references(&self) -> Vec<OwnReference> {
        let mut own = Vec::new();
        for entry in &self.manifests {
            let Some(name) = entry.image() else { continue };
            let digest = entry.digest();
            if entry.is_pinned() {
                own.push(OwnReference {
                    purpose: Purpose::Pin,
                    image: name.clone(),
                    digest: digest.clone(),
                });
            }
            if let Some(image) = entry.alias_of() {
                own.push(OwnReference {
                    purpose: Purpose::Alias(name),
                    image,
                    digest,
                });
            }
        }
        own
    }

    /// The entry behind a name, or of a digest any entry of that repository that points to it.
    fn find(&self, image: &ImageRef) -> Option<&Entry> {
        let by_digest = |entry: &&Entry, digest: &Digest| {
            entry.digest() == *digest && entry.image().is_some_and(|name| name.name() == image.name())
        };
        self.manifests.iter().find(|entry| match image.reference() {
            Reference::Tag(_) => entry.image().as_ref() == Some(image),
            Reference::Digest(digest) => by_digest(entry, digest),
        })
    }
}

impl Entry {
    fn named(image: &ImageRef, target: &Target) -> Self {
        let mut entry = Self {
            descriptor: target.shown.clone(),
            annotations: Map::new(),
            rest: Map::new(),
        };
        entry.point_to(target);
        entry.set(REF_NAME, &image.familiar());
        entry.set(IMAGE_NAME, &image.canonical());
        entry
    }

    /// What the entry points to.
    pub(super) fn target(&self) -> Target {
        let source = self.get(SOURCE).and_then(|text| serde_json::from_str(text).ok());
        Target {
            shown: self.descriptor.clone(),
            source: source.unwrap_or_else(|| self.descriptor.clone()),
        }
    }

    /// The digest by which the registry knows it.
    pub(super) fn digest(&self) -> Digest {
        self.target().source.digest
    }

    fn point_to(&mut self, target: &Target) {
        self.descriptor = target.shown.clone();
        self.annotations.remove(SOURCE);
        if target.source != target.shown
            && let Ok(text) = serde_json::to_string(&target.source)
        {
            self.set(SOURCE, &text);
        }
    }

    /// The name, where it has one that is an image's.
    pub(super) fn image(&self) -> Option<ImageRef> {
        let name = self.get(IMAGE_NAME).or_else(|| self.get(REF_NAME))?;
        ImageRef::parse(name).ok()
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.get(PINNED).is_some()
    }

    fn alias_of(&self) -> Option<ImageRef> {
        ImageRef::parse(self.get(ALIAS_OF)?).ok()
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.annotations.get(key)?.as_str()
    }

    fn set(&mut self, key: &str, value: &str) {
        self.annotations.insert(key.to_owned(), Value::from(value));
    }
}

#[cfg(test)]
mod tests;
