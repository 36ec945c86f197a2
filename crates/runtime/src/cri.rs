//! Any runtime with a CRI v1 socket: what the kubelet itself can do, and no more.
//!
//! CRI tells no bytes of a running pull, has no pins and no second names, and sends no events about images. The image
//! name goes out in the form people write (`nginx:1`, `host/x@sha256:…`): a runtime resolves short names by its own
//! configuration, and pods on the node are resolved by the same one.
//!
//! A pull carries one login, for one host. Where a mirror has a login of its own, the image is therefore pulled with that
//! login first, and with the registry's own if that is not enough. What CRI cannot do: give a login to the mirror and one
//! to the registry within one pull, or use a mirror's login from containerd's `config.toml` beside a login of ours.

mod convert;

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use larder_model::{ByteSize, ImageRef, Reason, Reference};
use larder_registry::Platform;
use larder_runtime_proto::runtime::v1 as proto;
use tonic::{Code, Status};

use self::convert::{auth_config, local_image, platform, sandbox_config};
use crate::{
    Capabilities, FetchPath, ImageEvents, ImageFs, ImageRuntime, LeftToRuntime, LocalImage, OwnReference, Progress,
    PullRequest, PulledImage, RuntimeEndpoint, RuntimeError, RuntimeVersion, image_fs,
    link::{ANSWER_LIMIT, Link},
};

/// Why CRI alone cannot do more than pull.
const CRI_ONLY: &str = "this container runtime offers CRI only, which has no such call";

/// What to do about a socket that speaks gRPC but not CRI, such as the containerd that comes with Docker.
const NO_CRI: &str = "there is a gRPC server without CRI v1; if it is containerd, take `cri` out of `disabled_plugins` \
                      in its config.toml and restart it";

/// A runtime behind a CRI v1 socket.
pub struct CriRuntime {
    link: Link,
    host_root: PathBuf,
    path: FetchPath,
}

impl CriRuntime {
    /// Connects with the first call. Must be called inside a tokio runtime.
    ///
    /// `host_root` is where this process sees the node's root filesystem: `/`, or where a container has it mounted.
    pub fn new(endpoint: &RuntimeEndpoint, host_root: impl Into<PathBuf>) -> Result<Self, RuntimeError> {
        Self::with_limit(endpoint, host_root, ANSWER_LIMIT)
    }

    /// The same, with another limit for answers.
    pub(crate) fn with_limit(
        endpoint: &RuntimeEndpoint,
        host_root: impl Into<PathBuf>,
        limit: Duration,
    ) -> Result<Self, RuntimeError> {
        Ok(Self {
            link: Link::new(endpoint, limit)?,
            host_root: host_root.into(),
            path: FetchPath::Runtime,
        })
    }

    /// Says of every pull why the runtime fetches by itself.
    pub(crate) fn leaving(self, why: LeftToRuntime) -> Self {
        Self {
            path: FetchPath::LeftToRuntime(why),
            ..self
        }
    }

    /// Name of the snapshotter that images are unpacked with. containerd shows it in a path alone.
    pub(crate) async fn snapshotter(&self) -> Result<Option<String>, RuntimeError> {
        let mut images = self.link.images();
        let call = images.image_fs_info(proto::ImageFsInfoRequest {});
        let answer = self.link.ask("ask for the snapshotter", call).await?;
        let first = answer.image_filesystems.into_iter().next();
        let path = first
            .and_then(|usage| usage.fs_id)
            .map(|id| id.mountpoint)
            .unwrap_or_default();
        let folder = path.rsplit('/').next().unwrap_or_default();
        Ok(folder.strip_prefix("io.containerd.snapshotter.v1.").map(str::to_owned))
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// The list in pieces, where the runtime offers that.
    async fn stream_images(&self) -> Result<Vec<proto::Image>, Status> {
        let request = proto::StreamImagesRequest::default();
        let mut pieces = self.link.images().stream_images(request).await?.into_inner();
        let mut images = Vec::new();
        while let Some(piece) = pieces.message().await? {
            images.extend(piece.images);
        }
        Ok(images)
    }

    /// What the runtime says of one image; with `verbose` all that it knows.
    async fn look_up(&self, image: &ImageRef, verbose: bool) -> Result<proto::ImageStatusResponse, RuntimeError> {
        let mut images = self.link.images();
        let request = proto::ImageStatusRequest {
            image: Some(spec(image)),
            verbose,
        };
        self.link
            .ask(&format!("look up {image}"), images.image_status(request))
            .await
    }

    /// Pulls with the login of each mirror that has one, then with the registry's.
    async fn pull_with_logins(&self, doing: &str, request: &PullRequest) -> Result<(), RuntimeError> {
        let servers = &request.login_servers;
        for mirror in &servers.mirrors {
            let auth = auth_config(&mirror.credential, &mirror.server);
            match self.pull_once(doing, request, Some(auth)).await {
                // The mirror does not have the image or refuses the login, and the registry wants a login of its own.
                // Some registries deny by "not found".
                Err(error) if matches!(error.reason(), Reason::AuthDenied | Reason::NotFound) => {}
                other => return other,
            }
        }
        let auth = request.auth.as_ref().map(|auth| auth_config(auth, &servers.registry));
        self.pull_once(doing, request, auth).await
    }

    async fn pull_once(
        &self,
        doing: &str,
        request: &PullRequest,
        auth: Option<proto::AuthConfig>,
    ) -> Result<(), RuntimeError> {
        let call = proto::PullImageRequest {
            image: Some(spec(&request.image)),
            auth,
            sandbox_config: Some(sandbox_config(&request.sandbox)),
        };
        // No limit here: how long a pull may take is the caller's decision, who drops this future.
        let answer = self.link.images().pull_image(call).await;
        answer.map(drop).map_err(|status| self.link.refused(doing, &status))
    }

    async fn list_images(&self) -> Result<Vec<proto::Image>, Status> {
        match self.stream_images().await {
            Err(status) if status.code() == Code::Unimplemented => {
                let answer = self
                    .link
                    .images()
                    .list_images(proto::ListImagesRequest::default())
                    .await?;
                Ok(answer.into_inner().images)
            }
            answer => answer,
        }
    }

    fn unsupported<T>(doing: String) -> Result<T, RuntimeError> {
        Err(RuntimeError::Unsupported {
            doing,
            why: CRI_ONLY.to_owned(),
        })
    }
}

#[async_trait]
impl ImageRuntime for CriRuntime {
    async fn capabilities(&self) -> Result<Capabilities, RuntimeError> {
        Ok(Capabilities::none(CRI_ONLY))
    }

    async fn version(&self) -> Result<RuntimeVersion, RuntimeError> {
        let mut runtime = self.link.runtime();
        let doing = "ask for the version";
        let exchange = async {
            match runtime.version(proto::VersionRequest::default()).await {
                Ok(answer) => Ok(Some(answer.into_inner())),
                Err(status) if status.code() == Code::Unimplemented => Ok(None),
                Err(status) => Err(status),
            }
        };
        match self.link.bounded(doing, exchange).await? {
            Some(answer) => Ok(RuntimeVersion {
                name: answer.runtime_name,
                version: answer.runtime_version,
            }),
            None => Err(RuntimeError::Unsupported {
                doing: doing.to_owned(),
                why: NO_CRI.to_owned(),
            }),
        }
    }

    async fn list(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        let images = self.link.bounded("list images", self.list_images()).await?;
        Ok(images.into_iter().map(local_image).collect())
    }

    async fn status(&self, image: &ImageRef) -> Result<Option<LocalImage>, RuntimeError> {
        let answer = self.look_up(image, false).await?;
        let found = answer.image.map(local_image);
        Ok(found.filter(|found| match image.reference() {
            // The runtime's own reading of a short name is the one that counts for pods.
            Reference::Tag(_) => true,
            Reference::Digest(_) => found.answers_to(image),
        }))
    }

    /// Runtimes tell it beside the status, to whoever wants to know everything.
    async fn platform(&self, image: &ImageRef) -> Result<Option<Platform>, RuntimeError> {
        let answer = self.look_up(image, true).await?;
        Ok(answer.info.get("info").and_then(|info| platform(info)))
    }

    async fn pull(&self, request: &PullRequest) -> Result<PulledImage, RuntimeError> {
        let doing = format!("pull {}", request.image);
        self.pull_with_logins(&doing, request).await?;
        let there = self
            .status(&request.image)
            .await?
            .ok_or(RuntimeError::NotShown { doing })?;
        Ok(PulledImage {
            download: None,
            fetched: None,
            path: self.path.clone(),
            digest: there.digest_in(&request.image),
            id: there.id,
            size: there.size,
        })
    }

    async fn remove(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        // By its id, as the kubelet does: cri-dockerd takes a name for an image that is not there.
        let Some(found) = self.status(image).await? else {
            return Ok(());
        };
        let mut images = self.link.images();
        let request = proto::RemoveImageRequest {
            image: Some(proto::ImageSpec {
                image: found.id,
                ..proto::ImageSpec::default()
            }),
        };
        self.link
            .ask(&format!("remove {image}"), images.remove_image(request))
            .await?;
        Ok(())
    }

    async fn image_fs(&self) -> Result<ImageFs, RuntimeError> {
        let doing = "ask for the image filesystem";
        let mut images = self.link.images();
        let answer = self
            .link
            .ask(doing, images.image_fs_info(proto::ImageFsInfoRequest {}))
            .await?;
        // CRI allows several; every runtime reports the one that pulls fill first.
        let usage = answer.image_filesystems.into_iter().next();
        let usage = usage.ok_or_else(|| RuntimeError::NotShown {
            doing: doing.to_owned(),
        })?;
        let path = usage.fs_id.map(|id| PathBuf::from(id.mountpoint)).unwrap_or_default();
        let used = usage.used_bytes.map(|bytes| ByteSize(bytes.value));
        image_fs::measure(&self.host_root, path, used).await
    }

    async fn progress(&self, _: &ImageRef) -> Result<Option<Progress>, RuntimeError> {
        Ok(None)
    }

    async fn pin(&self, image: &ImageRef) -> Result<(), RuntimeError> {
        Self::unsupported(format!("pin {image}"))
    }

    async fn unpin(&self, _: &ImageRef) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn alias(&self, image: &ImageRef, name: &ImageRef) -> Result<(), RuntimeError> {
        Self::unsupported(format!("give {image} the name {name}"))
    }

    async fn own_references(&self) -> Result<Vec<OwnReference>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn events(&self) -> Result<ImageEvents, RuntimeError> {
        Self::unsupported("listen to image events".to_owned())
    }
}

fn spec(image: &ImageRef) -> proto::ImageSpec {
    proto::ImageSpec {
        image: image.familiar(),
        ..proto::ImageSpec::default()
    }
}

#[cfg(test)]
mod tests;
