//! A CRI server of our own on a unix socket, for what real runtimes do not show on demand.

use std::{
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
};

use futures::{Stream, StreamExt as _, stream};
use larder_runtime_proto::runtime::v1::{
    self as proto,
    image_service_server::{ImageService, ImageServiceServer},
    runtime_service_server::{RuntimeService, RuntimeServiceServer},
};
use tokio::{net::UnixListener, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::RuntimeEndpoint;

/// How the server behaves.
#[derive(Clone)]
pub(crate) struct Behaviour {
    pub(crate) name: &'static str,
    pub(crate) images: Vec<proto::Image>,
    pub(crate) streams: bool,
    pub(crate) hangs: bool,
    pub(crate) without_cri: bool,
    pub(crate) pulls: Arc<Mutex<Vec<proto::PullImageRequest>>>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            name: "cri-o",
            images: Vec::new(),
            streams: false,
            hangs: false,
            without_cri: false,
            pulls: Arc::default(),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl RuntimeService for Behaviour {
    async fn version(&self, _: Request<proto::VersionRequest>) -> Answer<proto::VersionResponse> {
        if self.without_cri {
            return Err(Status::unimplemented("unknown service runtime.v1.RuntimeService"));
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(proto::VersionResponse {
            runtime_name: self.name.to_owned(),
            runtime_version: "1.36.0".to_owned(),
            ..proto::VersionResponse::default()
        }))
    }

    async fn status(&self, _: Request<proto::StatusRequest>) -> Answer<proto::StatusResponse> {
        Ok(Response::new(proto::StatusResponse::default()))
    }
}

#[tonic::async_trait]
impl ImageService for Behaviour {
    async fn list_images(&self, _: Request<proto::ListImagesRequest>) -> Answer<proto::ListImagesResponse> {
        Ok(Response::new(proto::ListImagesResponse {
            images: self.images.clone(),
        }))
    }

    type StreamImagesStream = Pin<Box<dyn Stream<Item = Result<proto::StreamImagesResponse, Status>> + Send>>;

    async fn stream_images(
        &self,
        _: Request<proto::StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        if !self.streams {
            return Err(Status::unimplemented("unknown method StreamImages"));
        }
        let pieces: Vec<_> = self.images.chunks(2).map(<[_]>::to_vec).collect();
        let pieces = pieces
            .into_iter()
            .map(|images| Ok(proto::StreamImagesResponse { images }));
        Ok(Response::new(stream::iter(pieces).boxed()))
    }

    async fn image_status(&self, request: Request<proto::ImageStatusRequest>) -> Answer<proto::ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let found = self.images.iter().find(|image| {
            image
                .repo_tags
                .iter()
                .chain(&image.repo_digests)
                .any(|known| known.ends_with(&name))
        });
        Ok(Response::new(proto::ImageStatusResponse {
            image: found.cloned(),
            ..proto::ImageStatusResponse::default()
        }))
    }

    async fn pull_image(&self, request: Request<proto::PullImageRequest>) -> Answer<proto::PullImageResponse> {
        self.pulls.lock().unwrap().push(request.into_inner());
        Ok(Response::new(proto::PullImageResponse::default()))
    }

    async fn remove_image(&self, _: Request<proto::RemoveImageRequest>) -> Answer<proto::RemoveImageResponse> {
        Ok(Response::new(proto::RemoveImageResponse::default()))
    }

    async fn image_fs_info(&self, _: Request<proto::ImageFsInfoRequest>) -> Answer<proto::ImageFsInfoResponse> {
        Ok(Response::new(proto::ImageFsInfoResponse::default()))
    }
}

/// The server, until it is dropped.
pub(crate) struct TestServer {
    socket: PathBuf,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl TestServer {
    pub(crate) fn start(socket: &Path, behaviour: Behaviour) -> Self {
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        let server = Server::builder()
            .add_service(RuntimeServiceServer::new(behaviour.clone()))
            .add_service(ImageServiceServer::new(behaviour))
            .serve_with_incoming(UnixListenerStream::new(listener));
        Self {
            socket: socket.to_owned(),
            task: tokio::spawn(server),
        }
    }

    pub(crate) fn endpoint(&self) -> RuntimeEndpoint {
        RuntimeEndpoint::at(&self.socket)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
        std::fs::remove_file(&self.socket).ok();
    }
}
