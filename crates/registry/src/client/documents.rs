//! Manifests and indexes: from a reference down to the image for one platform.

use bytes::Bytes;
use larder_model::{Digest, Reason, Reference};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use serde::Deserialize;

use super::blob::{BlobWriter, digest_of};
use super::repository::{Door, Read, Repository, body};
use super::{Failures, RegistryError};
use crate::Platform;
use crate::manifest::{Content, Descriptor, Document, ManifestError, PlatformImage, best_for};

const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
                      */*;q=0.1";

/// What registries themselves accept as a manifest.
const MAX_DOCUMENT: usize = 4 * 1024 * 1024;

/// An index may point to an index; nobody nests deeper than once.
const MAX_DEPTH: usize = 4;

const DIGEST_HEADER: &str = "docker-content-digest";

#[derive(Deserialize)]
struct ImageConfig {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
}

/// Documents and configurations that need not be fetched again.
pub trait KnownContent: Sync {
    /// The bytes of this content, checked against its digest. `None`: they have to be fetched.
    fn get(&self, content: &Descriptor) -> impl Future<Output = Option<Bytes>> + Send;
}

struct NothingKnown;

impl KnownContent for NothingKnown {
    async fn get(&self, _: &Descriptor) -> Option<Bytes> {
        None
    }
}

impl Repository {
    /// What the reference points at right now, for the price of a HEAD request.
    pub async fn resolve(&self) -> Result<Descriptor, RegistryError> {
        let doing = format!("asking what {} is", self.image);
        let path = format!("manifests/{}", self.image.tag_text());
        let read = Read {
            doing: &doing,
            method: Method::HEAD,
            path: &path,
            accept: Some(ACCEPT),
            from_byte: 0,
            to_byte: None,
        };
        let mut failures = Failures::default();
        for door in self.doors(None, |endpoint| endpoint.resolves) {
            match self.resolve_behind(door, &read).await {
                Ok(descriptor) => return Ok(descriptor),
                Err(error) => {
                    self.note_failure(door, None, &error);
                    failures.add(door.endpoint.is_mirror, error);
                }
            }
        }
        Err(failures.into_error())
    }

    async fn resolve_behind(&self, door: &Door, read: &Read<'_>) -> Result<Descriptor, RegistryError> {
        let head = match self.send(door, read).await {
            Ok(response) => descriptor_from(response.headers()),
            // Some registries do not know HEAD here.
            Err(error) if error.reason == Reason::Internal => None,
            Err(error) => return Err(error),
        };
        match head {
            Some(descriptor) => Ok(descriptor),
            None => Ok(self.document_behind(door, self.image.reference()).await?.descriptor),
        }
    }

    /// The image for a machine of this kind, with the documents on the way to it.
    pub async fn image_for(&self, machine: &Platform) -> Result<PlatformImage, RegistryError> {
        let root = self.document(self.image.reference()).await?;
        self.image_below(root, machine, &NothingKnown).await
    }

    /// The same, without fetching what is known. A tag is looked up by a HEAD request, which registries do not count.
    pub async fn image_for_with<K: KnownContent>(
        &self,
        machine: &Platform,
        known: &K,
    ) -> Result<PlatformImage, RegistryError> {
        let root = self.resolve().await?;
        let root = self.known_document(root, known).await?;
        self.image_below(root, machine, known).await
    }

    async fn image_below<K: KnownContent>(
        &self,
        root: Document,
        machine: &Platform,
        known: &K,
    ) -> Result<PlatformImage, RegistryError> {
        let mut documents = vec![root];
        for _ in 0..MAX_DEPTH {
            let Some(last) = documents.last() else { break };
            match last.content().map_err(|error| self.unusable(error))? {
                Content::Manifest(manifest) => {
                    let mut image = PlatformImage {
                        documents,
                        manifest,
                        config: None,
                    };
                    if image.documents.len() == 1 {
                        image.config = Some(self.check_lone_image(&image, machine, known).await?);
                    }
                    return Ok(image);
                }
                Content::Index(builds) => {
                    let Some(build) = best_for(machine, &builds) else {
                        return Err(self.no_platform(machine, builds.iter().filter_map(|b| b.platform.as_ref())));
                    };
                    documents.push(self.known_document(build.clone(), known).await?);
                }
            }
        }
        Err(RegistryError::new(
            Reason::InvalidImage,
            format!("{} is an index nested too deeply", self.image),
        ))
    }

    async fn known_document<K: KnownContent>(
        &self,
        descriptor: Descriptor,
        known: &K,
    ) -> Result<Document, RegistryError> {
        match known.get(&descriptor).await {
            Some(bytes) => Ok(Document { descriptor, bytes }),
            None => self.document(&Reference::Digest(descriptor.digest)).await,
        }
    }

    /// A manifest or index, by tag from who may resolve, by digest from who may serve.
    pub async fn document(&self, reference: &Reference) -> Result<Document, RegistryError> {
        let by_tag = reference.digest().is_none();
        let mut failures = Failures::default();
        for door in self.doors(
            None,
            |endpoint| if by_tag { endpoint.resolves } else { endpoint.serves },
        ) {
            match self.document_behind(door, reference).await {
                Ok(document) => return Ok(document),
                Err(error) => {
                    self.note_failure(door, None, &error);
                    failures.add(door.endpoint.is_mirror, error);
                }
            }
        }
        Err(failures.into_error())
    }

    async fn document_behind(&self, door: &Door, reference: &Reference) -> Result<Document, RegistryError> {
        let doing = format!("fetching the manifest of {}", self.image);
        let path = format!("manifests/{reference}");
        let read = Read {
            doing: &doing,
            method: Method::GET,
            path: &path,
            accept: Some(ACCEPT),
            from_byte: 0,
            to_byte: None,
        };
        let response = self.send(door, &read).await?;
        let headers = response.headers().clone();
        let limit = self.transport.settings.request_timeout;
        let bytes = tokio::time::timeout(limit, body(&doing, response, MAX_DOCUMENT, Reason::InvalidImage))
            .await
            .map_err(|_| RegistryError::new(Reason::Timeout, format!("{doing} took too long")))??;
        let said = digest_from(&headers);
        let digest = checked_digest(&bytes, reference.digest().or(said.as_ref())).ok_or_else(|| {
            RegistryError::new(
                Reason::InvalidImage,
                format!("the manifest of {} does not have its digest", self.image),
            )
        })?;
        let media_type = text(&headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let descriptor = Descriptor {
            media_type,
            digest,
            size: bytes.len() as u64,
            platform: None,
        };
        Ok(Document { descriptor, bytes })
    }

    /// An image without an index says only in its configuration what it was built for.
    /// Returns the configuration.
    async fn check_lone_image<K: KnownContent>(
        &self,
        image: &PlatformImage,
        machine: &Platform,
        known: &K,
    ) -> Result<Bytes, RegistryError> {
        let descriptor = &image.manifest.config;
        if (MAX_DOCUMENT as u64) < descriptor.size {
            return Err(RegistryError::new(
                Reason::InvalidImage,
                format!("the configuration of {} is too large", self.image),
            ));
        }
        let bytes = if let Some(bytes) = known.get(descriptor).await {
            bytes
        } else {
            let mut config = BlobWriter::new(descriptor, Vec::new());
            self.blob(&mut config).await?;
            config.into_inner().into()
        };
        let config: Option<ImageConfig> = serde_json::from_slice(&bytes).ok();
        // What is no image configuration says nothing about platforms.
        let Some(config) = config.filter(|config| !config.os.is_empty() && !config.architecture.is_empty()) else {
            return Ok(bytes);
        };
        let built_for = Platform {
            os: config.os,
            architecture: config.architecture,
            variant: config.variant,
        };
        match built_for.distance_to(machine) {
            Some(_) => Ok(bytes),
            None => Err(self.no_platform(machine, std::iter::once(&built_for))),
        }
    }

    fn no_platform<'a>(&self, machine: &Platform, built_for: impl Iterator<Item = &'a Platform>) -> RegistryError {
        let mut names: Vec<String> = built_for
            .filter(|p| p.os != "unknown")
            .map(ToString::to_string)
            .collect();
        names.truncate(12);
        let message = format!(
            "{} is not built for {machine}, only for {}",
            self.image,
            names.join(", ")
        );
        RegistryError::new(Reason::NoPlatform, message)
    }

    fn unusable(&self, error: ManifestError) -> RegistryError {
        RegistryError::new(
            Reason::InvalidImage,
            format!("{} is not an image that can be used", self.image),
        )
        .caused_by(error)
    }
}

/// The digest of the bytes, if it is the expected one or none is expected.
fn checked_digest(bytes: &Bytes, expected: Option<&Digest>) -> Option<Digest> {
    let found = digest_of(expected.map(Digest::algorithm), bytes)?;
    expected.is_none_or(|expected| *expected == found).then_some(found)
}

fn descriptor_from(headers: &HeaderMap) -> Option<Descriptor> {
    Some(Descriptor {
        media_type: text(headers, CONTENT_TYPE.as_str())?,
        digest: digest_from(headers)?,
        size: text(headers, CONTENT_LENGTH.as_str())?.parse().ok()?,
        platform: None,
    })
}

fn digest_from(headers: &HeaderMap) -> Option<Digest> {
    text(headers, DIGEST_HEADER)?.parse().ok()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
