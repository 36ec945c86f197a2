//! containerd's services, with the namespace that CRI keeps its images in and a limit on every call.

use larder_runtime_proto::containerd::{
    services::{
        content::v1::{
            Info, InfoRequest, ListContentRequest, ListStatusesRequest, ReadContentRequest, Status as Ingest,
            content_client::ContentClient,
        },
        events::v1::events_client::EventsClient,
        images::v1::{
            CreateImageRequest, DeleteImageRequest, GetImageRequest, Image, ListImagesRequest, UpdateImageRequest,
            images_client::ImagesClient,
        },
    },
    types::Descriptor,
};
use prost_types::FieldMask;
use tonic::{Code, Request, Status, metadata::MetadataValue, transport::Channel};

use crate::{
    RuntimeError,
    link::{Link, MAX_MESSAGE},
};

/// Where containerd's CRI keeps everything; it is not configurable there.
const NAMESPACE: &str = "k8s.io";

/// Largest manifest we read. Registries refuse larger ones.
const MAX_MANIFEST: usize = 4 << 20;

#[derive(Clone)]
pub(super) struct Services {
    pub(super) link: Link,
}

impl Services {
    pub(super) fn new(link: Link) -> Self {
        Self { link }
    }

    pub(super) fn events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.link.channel())
    }

    /// What a reference points to.
    pub(super) async fn image_target(&self, name: &str) -> Result<Option<Descriptor>, RuntimeError> {
        Ok(self.image(name).await?.and_then(|image| image.target))
    }

    pub(super) async fn image(&self, name: &str) -> Result<Option<Image>, RuntimeError> {
        let request = GetImageRequest { name: name.to_owned() };
        let exchange = async {
            let answer = self.images().get(scoped(request)).await;
            Ok(absent_is_none(answer)?.and_then(|answer| answer.into_inner().image))
        };
        self.link
            .bounded(&format!("look up the reference {name}"), exchange)
            .await
    }

    pub(super) async fn images_where(&self, filters: Vec<String>) -> Result<Vec<Image>, RuntimeError> {
        let mut client = self.images();
        let call = client.list(scoped(ListImagesRequest { filters }));
        Ok(self.link.ask("list references", call).await?.images)
    }

    /// False: somebody else made that reference meanwhile.
    pub(super) async fn create_image(&self, image: Image) -> Result<bool, RuntimeError> {
        let doing = format!("create the reference {}", image.name);
        let exchange = async {
            match self
                .images()
                .create(scoped(CreateImageRequest { image: Some(image) }))
                .await
            {
                Ok(_) => Ok(true),
                Err(status) if status.code() == Code::AlreadyExists => Ok(false),
                Err(status) => Err(status),
            }
        };
        self.link.bounded(&doing, exchange).await
    }

    /// Sets target and labels of a reference. False: it is gone.
    pub(super) async fn update_image(&self, image: Image) -> Result<bool, RuntimeError> {
        let doing = format!("move the reference {}", image.name);
        let request = UpdateImageRequest {
            image: Some(image),
            update_mask: Some(FieldMask {
                paths: vec!["target".to_owned(), "labels".to_owned()],
            }),
        };
        let exchange = async { Ok(absent_is_none(self.images().update(scoped(request)).await)?.is_some()) };
        self.link.bounded(&doing, exchange).await
    }

    /// Deletes one reference. One that is gone already is success.
    pub(super) async fn delete_image(&self, name: &str) -> Result<(), RuntimeError> {
        let request = DeleteImageRequest {
            name: name.to_owned(),
            sync: false,
        };
        let exchange = async { absent_is_none(self.images().delete(scoped(request)).await).map(drop) };
        self.link
            .bounded(&format!("delete the reference {name}"), exchange)
            .await
    }

    /// One blob of the content store, without its bytes.
    pub(super) async fn blob(&self, digest: &str) -> Result<Option<Info>, RuntimeError> {
        let request = InfoRequest {
            digest: digest.to_owned(),
        };
        let exchange = async {
            let answer = self.content().info(scoped(request)).await;
            Ok(absent_is_none(answer)?.and_then(|answer| answer.into_inner().info))
        };
        self.link.bounded(&format!("look up the blob {digest}"), exchange).await
    }

    pub(super) async fn blobs_where(&self, filters: Vec<String>) -> Result<Vec<Info>, RuntimeError> {
        let exchange = async {
            let mut pieces = self
                .content()
                .list(scoped(ListContentRequest { filters }))
                .await?
                .into_inner();
            let mut blobs = Vec::new();
            while let Some(piece) = pieces.message().await? {
                blobs.extend(piece.info);
            }
            Ok(blobs)
        };
        self.link.bounded("list blobs", exchange).await
    }

    /// The bytes of a manifest or index. `None`: it is not there.
    pub(super) async fn manifest(&self, digest: &str) -> Result<Option<Vec<u8>>, RuntimeError> {
        let request = ReadContentRequest {
            digest: digest.to_owned(),
            ..ReadContentRequest::default()
        };
        let exchange = async {
            let Some(answer) = absent_is_none(self.content().read(scoped(request)).await)? else {
                return Ok(None);
            };
            let mut pieces = answer.into_inner();
            let mut bytes = Vec::new();
            // A server may report a missing blob only here, after its headers.
            while let Some(piece) = absent_is_none(pieces.message().await)?.flatten() {
                bytes.extend_from_slice(&piece.data);
                if MAX_MANIFEST < bytes.len() {
                    return Err(Status::out_of_range("the manifest is larger than 4 MiB"));
                }
            }
            Ok((!bytes.is_empty()).then_some(bytes))
        };
        self.link
            .bounded(&format!("read the manifest {digest}"), exchange)
            .await
    }

    /// Blobs that are being written at this moment.
    pub(super) async fn ingests(&self) -> Result<Vec<Ingest>, RuntimeError> {
        let mut client = self.content();
        let call = client.list_statuses(scoped(ListStatusesRequest::default()));
        Ok(self.link.ask("list running downloads", call).await?.statuses)
    }

    fn images(&self) -> ImagesClient<Channel> {
        ImagesClient::new(self.link.channel()).max_decoding_message_size(MAX_MESSAGE)
    }

    pub(super) fn content(&self) -> ContentClient<Channel> {
        ContentClient::new(self.link.channel()).max_decoding_message_size(MAX_MESSAGE)
    }
}

/// The message, addressed to CRI's namespace.
pub(super) fn scoped<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}

pub(super) fn absent_is_none<T>(answer: Result<T, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
