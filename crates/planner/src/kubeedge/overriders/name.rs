//! An image's name and a Secret's name in their components, while overriders change them.

use larder_model::{Digest, ImageRef, Tag};

use super::{Change, ImagePart, Operator, SecretPart};
use crate::secret::SecretRef;

/// The host that a reference without one means.
const DOCKER_HUB: &str = "docker.io";

/// `[registry/]repository[:tag][@digest]`, as written: nothing is normalised before the last change is made, so that a
/// new registry in front of `nginx:1` makes `registry/nginx:1`.
pub(super) struct ImageName {
    registry: String,
    repository: String,
    tag: String,
    digest: String,
}

/// `namespace/name`; both empty means none.
pub(super) struct SecretName {
    namespace: String,
    name: String,
}

impl ImageName {
    pub(super) fn of(written: &str) -> Self {
        let (rest, digest) = written.split_once('@').unwrap_or((written, ""));
        let is_host = |first: &str| first == "localhost" || first.contains(['.', ':']);
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if is_host(first) => (first, rest),
            _ => ("", rest),
        };
        let (repository, tag) = rest.split_once(':').unwrap_or((rest, ""));
        Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            digest: digest.to_owned(),
        }
    }

    pub(super) fn apply(&mut self, change: &Change<ImagePart>) -> Result<(), String> {
        match change.part {
            ImagePart::Registry => change.operator.apply(&mut self.registry),
            ImagePart::Repository => change.operator.apply(&mut self.repository),
            ImagePart::Tag => self.apply_to_tag(&change.operator)?,
        }
        Ok(())
    }

    /// `Tag` covers tag and digest. A digest gives way to another digest only.
    fn apply_to_tag(&mut self, operator: &Operator) -> Result<(), String> {
        let pinned = !self.digest.is_empty();
        match operator {
            Operator::Replace(value) if Digest::parse(value).is_ok() => {
                self.tag.clear();
                self.digest.clone_from(value);
            }
            // Of a tag and a digest the tag is decoration.
            Operator::Remove if pinned && !self.tag.is_empty() => self.tag.clear(),
            Operator::Add(_) | Operator::Remove | Operator::Replace(_) if pinned => {
                return Err(format!(
                    "it is pinned by the digest {}, which only another digest may replace; leave this image out of the \
                     overrider, or write it with a tag",
                    self.digest
                ));
            }
            Operator::Add(_) | Operator::Remove | Operator::Replace(_) => operator.apply(&mut self.tag),
        }
        Ok(())
    }

    pub(super) fn into_reference(self) -> Result<ImageRef, String> {
        if !self.tag.is_empty() {
            Tag::parse(&self.tag).map_err(|error| error.to_string())?;
        }
        let mut written = self.repository;
        if !self.registry.is_empty() {
            written = format!("{}/{written}", self.registry);
        }
        if !self.tag.is_empty() {
            written = format!("{written}:{}", self.tag);
        }
        if !self.digest.is_empty() {
            written = format!("{written}@{}", self.digest);
        }
        let reference = ImageRef::parse(&written).map_err(|error| error.to_string())?;
        let registry = if self.registry.is_empty() {
            DOCKER_HUB
        } else {
            &self.registry
        };
        if reference.registry() != registry && self.registry != "index.docker.io" {
            return Err(format!(
                "in {written:?} the registry is {:?}, not {registry:?}; write hosts with a dot or a port",
                reference.registry()
            ));
        }
        Ok(reference)
    }
}

impl SecretName {
    pub(super) fn of(secret: Option<&SecretRef>) -> Self {
        let (namespace, name) = secret.map_or((String::new(), String::new()), |secret| {
            (secret.namespace.clone(), secret.name.clone())
        });
        Self { namespace, name }
    }

    pub(super) fn apply(&mut self, change: &Change<SecretPart>) {
        match change.part {
            SecretPart::Namespace => change.operator.apply(&mut self.namespace),
            SecretPart::Name => change.operator.apply(&mut self.name),
        }
    }

    /// Without a name the image is pulled anonymously.
    pub(super) fn into_reference(self) -> Result<Option<SecretRef>, String> {
        if self.name.is_empty() {
            return Ok(None);
        }
        if self.namespace.is_empty() {
            return Err(format!(
                "the Secret {:?} has no namespace; replace the component Namespace too",
                self.name
            ));
        }
        SecretRef::of(&self.namespace, &self.name)
            .map(Some)
            .map_err(|error| error.to_string())
    }
}

impl Operator {
    fn apply(&self, text: &mut String) {
        match self {
            Operator::Add(value) => text.push_str(value),
            Operator::Remove => text.clear(),
            Operator::Replace(value) => text.clone_from(value),
        }
    }
}
