//! A registry in this process: reads only, from memory, with a login for what is private, and slow enough to watch.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use larder_sample_images::{Blob, Image};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Bytes that are sent at a time, and how long to wait between them: about 3 MB/s for each connection.
const PIECE: usize = 64 * 1024;
const PAUSE: Duration = Duration::from_millis(20);

/// One image in the registry.
pub(crate) struct Offer {
    /// `library/nginx`
    pub(crate) repository: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) image: Image,
    /// `user:password` in base64 that is needed to read it.
    pub(crate) login: Option<&'static str>,
}

/// The running registry; stops when dropped.
pub(crate) struct DemoRegistry {
    address: SocketAddr,
    content: Arc<Content>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Content {
    /// Manifests by repository and tag or digest.
    manifests: BTreeMap<(String, String), Blob>,
    /// Blobs by repository and digest.
    blobs: BTreeMap<(String, String), Blob>,
    logins: BTreeMap<String, String>,
}

impl DemoRegistry {
    /// Serves these images on a free port of this machine.
    pub(crate) async fn start(offers: Vec<Offer>) -> io::Result<Self> {
        let mut content = Content::default();
        for offer in offers {
            let repository = || offer.repository.to_owned();
            let manifest = offer.image.manifest();
            for name in [offer.tag, manifest.digest()] {
                content
                    .manifests
                    .insert((repository(), name.to_owned()), manifest.clone());
            }
            for blob in offer.image.layers().iter().chain([offer.image.config()]) {
                content
                    .blobs
                    .insert((repository(), blob.digest().to_owned()), blob.clone());
            }
            content
                .logins
                .extend(offer.login.map(|login| (repository(), login.to_owned())));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let content = Arc::new(content);
        let router = Router::new().fallback(answer).with_state(Arc::clone(&content));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                crate::output::error(&format!("the registry ended: {error}"));
            }
        });
        Ok(Self { address, content, task })
    }

    /// The digest behind a tag.
    pub(crate) fn digest(&self, repository: &str, tag: &str) -> Option<&str> {
        self.content
            .manifests
            .get(&(repository.to_owned(), tag.to_owned()))
            .map(Blob::digest)
    }

    /// Writes the files by which a node takes this registry for the ones of these names.
    pub(crate) fn write_hosts(&self, folder: &Path, names: &[&str]) -> io::Result<()> {
        for name in names {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(
                folder.join("hosts.toml"),
                format!("server = \"http://{}\"\n", self.address),
            )?;
        }
        Ok(())
    }
}

impl Drop for DemoRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `GET` and `HEAD` of `/v2/`, `/v2/<repository>/manifests/<reference>` and `/v2/<repository>/blobs/<digest>`.
async fn answer(State(content): State<Arc<Content>>, request: Request) -> Response {
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let Some(path) = request.uri().path().strip_prefix("/v2/").filter(|_| reads) else {
        return refuse(StatusCode::NOT_FOUND, "UNSUPPORTED");
    };
    if path.is_empty() {
        return StatusCode::OK.into_response();
    }
    let mut parts = path.rsplitn(3, '/');
    let (Some(name), Some(kind), Some(repository)) = (parts.next(), parts.next(), parts.next()) else {
        return refuse(StatusCode::NOT_FOUND, "NAME_UNKNOWN");
    };
    if !content.is_open_for(repository, request.headers()) {
        let mut answer = refuse(StatusCode::UNAUTHORIZED, "UNAUTHORIZED");
        answer.headers_mut().insert(
            header::WWW_AUTHENTICATE,
            header::HeaderValue::from_static("Basic realm=\"larder\""),
        );
        return answer;
    }
    let key = (repository.to_owned(), name.to_owned());
    match kind {
        "manifests" => content
            .manifests
            .get(&key)
            .map_or_else(|| refuse(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"), whole),
        "blobs" => content
            .blobs
            .get(&key)
            .map_or_else(|| refuse(StatusCode::NOT_FOUND, "BLOB_UNKNOWN"), slowly),
        _ => refuse(StatusCode::NOT_FOUND, "UNSUPPORTED"),
    }
}

impl Content {
    fn is_open_for(&self, repository: &str, headers: &HeaderMap) -> bool {
        let shown = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        self.logins
            .get(repository)
            .is_none_or(|login| shown.strip_prefix("Basic ") == Some(login))
    }
}

fn refuse(status: StatusCode, code: &str) -> Response {
    let body =
        serde_json::json!({ "errors": [{ "code": code, "message": code.to_ascii_lowercase().replace('_', " ") }] });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn whole(manifest: &Blob) -> Response {
    let headers = [
        (header::CONTENT_TYPE.as_str(), manifest.media_type().to_owned()),
        ("docker-content-digest", manifest.digest().to_owned()),
    ];
    (headers, manifest.bytes().clone()).into_response()
}

fn slowly(blob: &Blob) -> Response {
    let pieces: Vec<Bytes> = blob.bytes().chunks(PIECE).map(Bytes::copy_from_slice).collect();
    let stream = futures::stream::unfold(pieces.into_iter(), async |mut pieces| {
        let piece = pieces.next()?;
        tokio::time::sleep(PAUSE).await;
        Some((Ok::<_, Infallible>(piece), pieces))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, blob.size().to_string()),
    ];
    (headers, Body::from_stream(stream)).into_response()
}
