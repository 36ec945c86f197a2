//! Putting built images into a registry, by its HTTP API.

use http::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Method, Response, StatusCode};

use super::Registry;
use crate::image::{Blob, Image, Index};
use crate::{Error, Result};

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The reference with the tag: `127.0.0.1:20123/repo:tag`.
    pub reference: String,
    /// The digest that the tag stands for, `sha256:…`.
    pub digest: String,
    /// The reference with the digest: `127.0.0.1:20123/repo@sha256:…`.
    pub by_digest: String,
}

impl Registry {
    /// Puts an image for one platform under this name.
    pub async fn push(&self, image: &Image, repository: &str, tag: &str) -> Result<Pushed> {
        self.push_content(image, repository).await?;
        self.push_manifest(image.manifest(), repository, tag).await?;
        Ok(self.pushed(image.manifest(), repository, tag))
    }

    /// Puts an image for several platforms under this name.
    pub async fn push_index(&self, index: &Index, repository: &str, tag: &str) -> Result<Pushed> {
        for image in index.images() {
            self.push_content(image, repository).await?;
            self.push_manifest(image.manifest(), repository, image.manifest().digest())
                .await?;
        }
        self.push_manifest(index.manifest(), repository, tag).await?;
        Ok(self.pushed(index.manifest(), repository, tag))
    }

    /// Removes a blob, so that a pull of the image finds it missing.
    pub async fn delete_blob(&self, repository: &str, digest: &str) -> Result<()> {
        let doing = format!("deleting blob {digest} of {repository}");
        let request = self.request(Method::DELETE, &format!("{repository}/blobs/{digest}"));
        let answer = request.send().await.map_err(Error::http(&doing))?;
        expect(&doing, answer, StatusCode::ACCEPTED).await.map(drop)
    }

    fn pushed(&self, manifest: &Blob, repository: &str, tag: &str) -> Pushed {
        let name = format!("{}/{repository}", self.host());
        Pushed {
            reference: format!("{name}:{tag}"),
            digest: manifest.digest().to_owned(),
            by_digest: format!("{name}@{}", manifest.digest()),
        }
    }

    async fn push_content(&self, image: &Image, repository: &str) -> Result<()> {
        for blob in image.layers().iter().chain([image.config()]) {
            self.push_blob(blob, repository).await?;
        }
        Ok(())
    }

    async fn push_blob(&self, blob: &Blob, repository: &str) -> Result<()> {
        let doing = format!("pushing blob {} to {repository}", blob.digest());
        let there = self.request(Method::HEAD, &format!("{repository}/blobs/{}", blob.digest()));
        if there.send().await.map_err(Error::http(&doing))?.status() == StatusCode::OK {
            return Ok(());
        }
        let start = self.request(Method::POST, &format!("{repository}/blobs/uploads/"));
        let answer = expect(
            &doing,
            start.send().await.map_err(Error::http(&doing))?,
            StatusCode::ACCEPTED,
        )
        .await?;
        let location = answer
            .headers()
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let joint = if location.contains('?') { '&' } else { '?' };
        let put = self.authorized(self.http.put(format!("{location}{joint}digest={}", blob.digest())));
        let put = put
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(blob.bytes().clone());
        let answer = put.send().await.map_err(Error::http(&doing))?;
        expect(&doing, answer, StatusCode::CREATED).await.map(drop)
    }

    async fn push_manifest(&self, manifest: &Blob, repository: &str, reference: &str) -> Result<()> {
        let doing = format!("pushing manifest {repository}:{reference}");
        let put = self
            .request(Method::PUT, &format!("{repository}/manifests/{reference}"))
            .header(CONTENT_TYPE, manifest.media_type())
            .body(manifest.bytes().clone());
        let answer = put.send().await.map_err(Error::http(&doing))?;
        expect(&doing, answer, StatusCode::CREATED).await.map(drop)
    }
}

async fn expect(doing: &str, answer: Response, wanted: StatusCode) -> Result<Response> {
    let status = answer.status();
    if status == wanted {
        return Ok(answer);
    }
    let text = answer.text().await.unwrap_or_default();
    Err(Error::Refused {
        doing: doing.into(),
        answer: format!("{status}: {text}"),
    })
}
