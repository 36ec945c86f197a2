//! A registry in this process, on a real socket, with faults that a test asks for.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use axum::serve::Listener;
use bytes::Bytes;
use futures::StreamExt;
use larder_model::{Digest, ImageRef};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::tls_listener::TlsListener;
use crate::client::blob::digest_of;
use crate::manifest::{Descriptor, OCI_INDEX, OCI_MANIFEST};

/// A header that only a `hosts.toml` sets.
pub(crate) const TEAM: &str = "x-team";

#[derive(Default, Clone, Copy, PartialEq)]
pub(crate) enum Auth {
    #[default]
    Open,
    /// `ann` with `s3cret`
    Basic,
    /// A token, for the same; refresh token `refresh`.
    Token,
    /// A token that anybody gets.
    AnonymousToken,
}

/// What the registry holds and how it misbehaves.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) auth: Auth,
    pub(crate) manifests: HashMap<String, (String, Bytes)>,
    pub(crate) blobs: HashMap<String, Bytes>,
    /// Answers given instead of the next ones to requests for content.
    pub(crate) refusals: VecDeque<(u16, Vec<(&'static str, String)>)>,
    /// A blob's body breaks off after so many bytes, every time.
    pub(crate) cut_after: Option<usize>,
    /// A blob's body stops after so many bytes and stays open.
    pub(crate) stall_after: Option<usize>,
    pub(crate) ignores_ranges: bool,
    /// Requests for ranges are answered with this status.
    pub(crate) refuses_ranges: Option<u16>,
    /// Ranges that hold this byte come with another value there.
    pub(crate) wrong_byte: Option<usize>,
    /// Ranges say that the blob has so many bytes more than it has.
    pub(crate) claims_more: usize,
    /// Bodies never end.
    pub(crate) is_endless: bool,
    /// So many bodies break off, and no more. `None`: every one.
    pub(crate) cuts: Option<usize>,
    /// Bytes of blobs that were handed to connections.
    pub(crate) sent: u64,
    /// Blobs are at this origin.
    pub(crate) redirects_to: Option<String>,
    /// Manifests are there too.
    pub(crate) redirects_manifests: bool,
    /// The token service answers with this status and points to this address.
    pub(crate) token_redirect: Option<(u16, String)>,
    pub(crate) realm: Option<String>,
    /// Number in the token that is valid now.
    pub(crate) token: u32,
    /// `METHOD path range? authorization-scheme`
    pub(crate) log: Vec<String>,
    /// Every `Authorization` and [`TEAM`] header and every body that is not empty.
    secrets: Vec<String>,
}

pub(crate) struct FakeRegistry {
    pub(crate) address: String,
    scheme: &'static str,
    shelf: Arc<Mutex<Shelf>>,
    server: JoinHandle<()>,
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeRegistry {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1").await
    }

    /// At another address of the loopback network, which makes it another host.
    pub(crate) async fn start_at(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self::serve(listener, address, "http")
    }

    /// Behind TLS, with a certificate of its own that no client knows.
    pub(crate) async fn start_tls(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self::serve(TlsListener::new(listener, ip), address, "https")
    }

    fn serve<L>(listener: L, address: String, scheme: &'static str) -> Self
    where
        L: Listener<Addr = SocketAddr>,
    {
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let state = (Arc::clone(&shelf), format!("{scheme}://{address}"));
        let router = Router::new().fallback(answer).with_state(state);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            scheme,
            shelf,
            server,
        }
    }

    /// `scheme://host:port`
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Everything it was sent that may hold a secret.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.shelf().secrets.clone()
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap()
    }

    pub(crate) fn image(&self, rest: &str) -> ImageRef {
        ImageRef::parse(&format!("{}/{rest}", self.address)).unwrap()
    }

    pub(crate) fn add_blob(&self, bytes: impl Into<Bytes>) -> Descriptor {
        let bytes = bytes.into();
        let digest = digest_of(None, &bytes).unwrap();
        let size = bytes.len() as u64;
        self.shelf().blobs.insert(digest.to_string(), bytes);
        Descriptor {
            media_type: "application/octet-stream".into(),
            digest,
            size,
            platform: None,
        }
    }

    pub(crate) fn add_document(&self, tag: &str, media_type: &str, json: &serde_json::Value) -> Descriptor {
        let bytes = Bytes::from(json.to_string());
        let digest = digest_of(None, &bytes).unwrap();
        let size = bytes.len() as u64;
        for key in [tag.to_owned(), digest.to_string()] {
            self.shelf()
                .manifests
                .insert(key, (media_type.to_owned(), bytes.clone()));
        }
        Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            platform: None,
        }
    }

    /// An image of one layer, built for linux on this architecture.
    pub(crate) fn add_image(&self, tag: &str, architecture: &str, layer: &[u8]) -> Descriptor {
        let config = serde_json::json!({"os": "linux", "architecture": architecture}).to_string();
        let (config, layer) = (self.add_blob(config), self.add_blob(layer.to_vec()));
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer],
        });
        self.add_document(tag, OCI_MANIFEST, &manifest)
    }

    pub(crate) fn add_index(&self, tag: &str, architectures: &[&str]) -> Descriptor {
        let builds: Vec<_> = architectures
            .iter()
            .map(|architecture| {
                let built = self.add_image(&format!("{tag}-{architecture}"), architecture, architecture.as_bytes());
                serde_json::json!({
                    "mediaType": OCI_MANIFEST, "digest": built.digest, "size": built.size,
                    "platform": {"os": "linux", "architecture": architecture},
                })
            })
            .collect();
        self.add_document(
            tag,
            OCI_INDEX,
            &serde_json::json!({"schemaVersion": 2, "manifests": builds}),
        )
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.shelf().log.clone()
    }
}

type Shared = (Arc<Mutex<Shelf>>, String);

async fn answer(State((shelf, origin)): State<Shared>, request: Request) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let sent = axum::body::to_bytes(body, 64 * 1024).await.unwrap_or_default();
    let mut shelf = shelf.lock().unwrap();
    let text = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let (authorization, range) = (text(header::AUTHORIZATION.as_str()), text(header::RANGE.as_str()));
    let scheme = authorization.split(' ').next().unwrap_or_default();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    shelf.log.push(
        format!("{} {target} {range} {scheme}", parts.method)
            .replace("  ", " ")
            .trim()
            .to_owned(),
    );
    let form = String::from_utf8_lossy(&sent).into_owned();
    let told = [authorization.to_owned(), text(TEAM).to_owned(), form]
        .into_iter()
        .filter(|text| !text.is_empty());
    shelf.secrets.extend(told);
    Ok(if parts.uri.path() == "/token" {
        match shelf.token_redirect.clone() {
            Some((status, place)) => refuse(status, &[("location", place)]),
            None => shelf.token_answer(authorization, &sent),
        }
    } else if parts.uri.path() == "/moved-token" {
        shelf.token_answer(authorization, &sent)
    } else if let Some(challenge) = shelf.challenge(authorization, &origin) {
        refuse(401, &[(header::WWW_AUTHENTICATE.as_str(), challenge)])
    } else if let Some((status, headers)) = shelf.refusals.pop_front() {
        refuse(status, &headers)
    } else {
        shelf.content(&parts.method, parts.uri.path(), &parts.headers)
    })
}

fn refuse(status: u16, headers: &[(&'static str, String)]) -> Response {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response
        .body(Body::from(r#"{"errors":[{"code":"REFUSED","message":"not\nnow"}]}"#))
        .unwrap()
}

impl Shelf {
    fn challenge(&self, authorization: &str, origin: &str) -> Option<String> {
        let realm = self.realm.clone().unwrap_or_else(|| format!("{origin}/token?x=y"));
        match self.auth {
            Auth::Open => None,
            // ann:s3cret
            Auth::Basic => (authorization != "Basic YW5uOnMzY3JldA==").then(|| "Basic realm=\"fake\"".to_owned()),
            Auth::Token | Auth::AnonymousToken => (authorization != format!("Bearer token-{}", self.token))
                .then(|| format!("Bearer realm=\"{realm}\",service=\"fake\"")),
        }
    }

    fn token_answer(&self, authorization: &str, form: &[u8]) -> Response {
        let form = String::from_utf8_lossy(form);
        let known = self.auth == Auth::AnonymousToken && authorization.is_empty()
            || authorization == "Basic YW5uOnMzY3JldA=="
            || form.contains("grant_type=refresh_token") && form.contains("refresh_token=refresh");
        if !known {
            return refuse(401, &[]);
        }
        Response::new(Body::from(format!(
            r#"{{"token":"token-{}","expires_in":60}}"#,
            self.token
        )))
    }

    fn content(&mut self, method: &Method, path: &str, headers: &HeaderMap) -> Response {
        let (kind, name) = path.rsplit_once('/').map_or(("", ""), |(head, name)| (head, name));
        let kind = kind.rsplit_once('/').map_or("", |(_, kind)| kind);
        if let Some(elsewhere) = &self.redirects_to
            && (kind == "blobs" || self.redirects_manifests)
        {
            return refuse(307, &[("location", format!("{elsewhere}{path}?signature=s3cret"))]);
        }
        match kind {
            "manifests" => self.manifest(method, name),
            "blobs" => self.blob(name, headers),
            _ => refuse(404, &[]),
        }
    }

    fn manifest(&self, method: &Method, name: &str) -> Response {
        let Some((media_type, bytes)) = self.manifests.get(name) else {
            return refuse(404, &[]);
        };
        let digest: Digest = digest_of(None, bytes).unwrap();
        let body = if *method == Method::HEAD {
            Body::empty()
        } else {
            Body::from(bytes.clone())
        };
        Response::builder()
            .header(header::CONTENT_TYPE, media_type)
            .header(header::CONTENT_LENGTH, bytes.len())
            .header("Docker-Content-Digest", digest.to_string())
            .body(body)
            .unwrap()
    }

    fn blob(&mut self, name: &str, headers: &HeaderMap) -> Response {
        let Some(bytes) = self.blobs.get(name).cloned() else {
            return refuse(404, &[]);
        };
        let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        let asked = range.and_then(|range| {
            let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
            let end: Option<usize> = end.parse().ok();
            Some((
                start.parse().ok()?,
                end.map_or(bytes.len(), |end| (end + 1).min(bytes.len())),
            ))
        });
        if let (Some(status), Some(_)) = (self.refuses_ranges, asked) {
            return refuse(status, &[]);
        }
        let (status, (start, end)) = match asked {
            Some(range) if !self.ignores_ranges => (StatusCode::PARTIAL_CONTENT, range),
            _ => (StatusCode::OK, (0, bytes.len())),
        };
        let mut rest = bytes.slice(start..end);
        if let Some(wrong) = self
            .wrong_byte
            .filter(|wrong| asked.is_some() && (start..end).contains(wrong))
        {
            let mut changed = rest.to_vec();
            changed[wrong - start] ^= 1;
            rest = changed.into();
        }
        let total = bytes.len() + self.claims_more;
        let response = Response::builder()
            .status(status)
            .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{total}", end - 1));
        let cut_after = self.cut_after.filter(|_| self.cuts != Some(0));
        let limit = cut_after.or(self.stall_after).filter(|limit| *limit < rest.len());
        if limit.is_some() {
            self.cuts = self.cuts.map(|cuts| cuts.saturating_sub(1));
        }
        self.sent += limit.unwrap_or(rest.len()) as u64;
        let body = match limit {
            None if self.is_endless => {
                let first = futures::stream::iter([Ok::<_, io::Error>(rest)]);
                let more = futures::stream::repeat_with(|| Ok(Bytes::from_static(&[7; 4096])));
                Body::from_stream(first.chain(more))
            }
            None => Body::from(rest),
            Some(limit) => {
                let first = futures::stream::iter([Ok(rest.slice(..limit))]);
                // Being asked twice makes the server send the first part before it gives up.
                let cut = futures::stream::once(async {
                    tokio::task::yield_now().await;
                    Err(io::Error::other("cut"))
                });
                if self.cut_after.is_some() {
                    Body::from_stream(first.chain(cut))
                } else {
                    Body::from_stream(first.chain(futures::stream::pending()))
                }
            }
        };
        response.body(body).unwrap()
    }
}
