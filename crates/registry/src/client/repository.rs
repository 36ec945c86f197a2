//! One image's home: sends reads to its endpoints in turn, with the credentials that the registry accepts.

use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use larder_model::{Digest, ImageRef, Reason};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::RegistryError;
use super::access::Gate;
use super::challenge::Challenge;
use super::host_health::HostHealth;
use super::login_servers::mirror_logins;
use super::pauses::{PauseKey, retry_after};
use super::transport::{Clients, Transport};
use super::wait::RegistryWait;
use crate::Credential;
use crate::hosts::Endpoint;

/// First pause before a request is sent again; every further one is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Of an error page only the beginning is read and shown.
const MAX_ERROR_BODY: usize = 8 * 1024;
const MAX_SAID: usize = 300;

/// Shortest wait for a registry that asks for time, whatever it says.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// An image's repository, as one set of credentials sees it.
pub struct Repository {
    pub(super) transport: Arc<Transport>,
    pub(super) image: ImageRef,
    doors: Vec<Door>,
    /// Until when a registry that asks for time is waited for.
    waits_until: Option<Instant>,
    wait: RegistryWait,
}

/// An endpoint and what is known about getting in there.
pub(super) struct Door {
    pub(super) endpoint: Endpoint,
    /// The logins for this endpoint; `None` stands for going in anonymously.
    candidates: Vec<Option<Credential>>,
    access: Mutex<Access>,
    pub(super) health: HostHealth,
    /// Where it redirected the last request for a blob.
    blob_store: SyncMutex<Option<String>>,
}

#[derive(Clone, Default)]
struct Access {
    challenge: Option<Challenge>,
    header: Option<HeaderValue>,
    /// Index of the credential that is being tried or was accepted.
    candidate: usize,
}

/// A read, to be sent as often as needed.
pub(super) struct Read<'a> {
    pub(super) doing: &'a str,
    pub(super) method: Method,
    /// Below the repository: `manifests/latest`.
    pub(super) path: &'a str,
    pub(super) accept: Option<&'static str>,
    pub(super) from_byte: u64,
    /// The byte behind the last one that is wanted; `None` means to the end.
    pub(super) to_byte: Option<u64>,
}

impl Repository {
    pub(super) fn new(
        transport: Arc<Transport>,
        image: ImageRef,
        mut credentials: Vec<Credential>,
    ) -> Result<Self, RegistryError> {
        let endpoints = transport.settings.hosts.endpoints(image.registry()).map_err(|error| {
            let message = format!("the mirrors of {} cannot be used", image.registry());
            RegistryError::new(Reason::Internal, message).caused_by(error)
        })?;
        let door = |endpoint: Endpoint| {
            let logins = if endpoint.is_mirror {
                mirror_logins(&image, &endpoint, &transport.settings)
            } else {
                // One endpoint is no mirror.
                std::mem::take(&mut credentials)
            };
            let candidates = if logins.is_empty() {
                vec![None]
            } else {
                logins.into_iter().map(Some).collect()
            };
            Door {
                endpoint,
                candidates,
                access: Mutex::default(),
                health: HostHealth::default(),
                blob_store: SyncMutex::default(),
            }
        };
        let doors = endpoints.into_iter().map(door).collect();
        Ok(Self {
            transport,
            image,
            doors,
            waits_until: None,
            wait: RegistryWait::default(),
        })
    }

    /// Waits in place where the registry itself asks for time (`Retry-After`) and the wait ends by then. Without this, a
    /// request that has to wait fails. Mirrors are not waited for: there is another host to ask.
    #[must_use]
    pub fn waiting_until(self, waits_until: Instant) -> Self {
        Self {
            waits_until: Some(waits_until),
            ..self
        }
    }

    /// Shows there when it waits.
    #[must_use]
    pub fn showing_waits(self, wait: &RegistryWait) -> Self {
        Self {
            wait: wait.clone(),
            ..self
        }
    }

    /// The doors in the order of the configuration.
    pub(super) fn all_doors(&self, allowed: impl Fn(&Endpoint) -> bool) -> impl Iterator<Item = &Door> {
        self.doors.iter().filter(move |door| allowed(&door.endpoint))
    }

    /// The doors to try in order: mirrors first, then the registry, and those that failed before at the end.
    pub(super) fn doors(&self, blob: Option<&Digest>, allowed: impl Fn(&Endpoint) -> bool) -> Vec<&Door> {
        let mut doors: Vec<&Door> = self.all_doors(allowed).collect();
        doors.sort_by_key(|door| !door.health.is_good_for(blob));
        doors
    }

    /// Takes note of a door that failed.
    pub(super) fn note_failure(&self, door: &Door, blob: Option<&Digest>, error: &RegistryError) {
        door.health.failed(blob, error);
        let host = door.endpoint.base.host_str().unwrap_or_default();
        tracing::debug!(image = %self.image, host, reason = %error.reason, "registry host failed");
    }

    /// How long to wait before the same request is sent again, where the registry asks for time and there is enough.
    fn worth_waiting(&self, door: &Door, error: &RegistryError) -> Option<Duration> {
        let wait = error.retry_after?.max(MIN_WAIT);
        let until = self.waits_until.filter(|_| !door.endpoint.is_mirror)?;
        (Instant::now() + wait <= until).then_some(wait)
    }

    /// Sends a read until it is answered, a few times if the way is broken.
    pub(super) async fn send(&self, door: &Door, read: &Read<'_>) -> Result<Response, RegistryError> {
        // Whoever stands behind a mirror is the better second try.
        let tries = if door.endpoint.is_mirror {
            1
        } else {
            self.transport.settings.tries.max(1)
        };
        for failed in 1..tries {
            match self.send_with_access(door, read).await {
                Err(error) if error.is_passing() && self.may_connect_again(&error) => pause_after(failed).await,
                other => return other,
            }
        }
        self.send_with_access(door, read).await
    }

    fn may_connect_again(&self, error: &RegistryError) -> bool {
        self.transport.settings.retries_connecting || !error.is_unconnected
    }

    /// Sends a read, again after each wait that the registry asks for.
    pub(super) async fn send_with_access(&self, door: &Door, read: &Read<'_>) -> Result<Response, RegistryError> {
        loop {
            let sent = self.send_as_someone(door, read).await;
            let wait = sent.as_ref().err().and_then(|error| self.worth_waiting(door, error));
            let Some(wait) = wait else {
                if sent.is_ok() {
                    door.health.answered();
                }
                return sent;
            };
            let (image, seconds) = (&self.image, wait.as_secs());
            tracing::info!(%image, seconds, "the registry asked to retry later; waiting");
            self.wait.begin(wait);
            sleep(wait).await;
        }
    }

    /// Sends a read once, and answers the registry's challenge with one credential after the other.
    async fn send_as_someone(&self, door: &Door, read: &Read<'_>) -> Result<Response, RegistryError> {
        let clients = self.transport.clients(&door.endpoint)?;
        let gate = Gate {
            clients: &clients,
            endpoint: &door.endpoint,
            settings: &self.transport.settings,
            default_scope: format!("repository:{}:pull", self.image.repository()),
        };
        let mut access = door.access.lock().await.clone();
        let mut header_is_fresh = false;
        loop {
            let response = self.send_once(&clients, door, read, &access).await?;
            self.note_pause(door, &access, read, &response);
            if !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                *door.access.lock().await = access;
                return accepted(read.doing, response).await;
            }
            // The logins are for the endpoint. A host to which it redirects is another one, and could name a token
            // service of its own: its challenge is not answered.
            if response.url().origin() != door.endpoint.base.origin() {
                *door.access.lock().await = access;
                let mut refusal = refused(&at_redirect_target(read.doing, response.url()), response).await;
                refusal.is_elsewhere = true;
                return Err(refusal);
            }
            access.challenge = Challenge::from_headers(response.headers()).or(access.challenge);
            // A token from before may merely have ended; one just made was refused together with its credential.
            if header_is_fresh {
                access.candidate += 1;
            }
            let mut refusal = refused(read.doing, response).await;
            let Some(challenge) = access.challenge.clone() else {
                return Err(refusal);
            };
            access.header = None;
            while access.header.is_none() {
                let Some(candidate) = door.candidates.get(access.candidate) else {
                    return Err(refusal);
                };
                match gate.answer(&challenge, candidate.as_ref()).await {
                    Ok(header) => access.header = Some(header),
                    Err(error) if error.reason == Reason::AuthDenied => {
                        access.candidate += 1;
                        refusal = error;
                    }
                    Err(error) => return Err(error),
                }
            }
            header_is_fresh = true;
        }
    }

    async fn send_once(
        &self,
        clients: &Clients,
        door: &Door,
        read: &Read<'_>,
        access: &Access,
    ) -> Result<Response, RegistryError> {
        if let Some(left) = self.paused(door, access, read) {
            return Err(RegistryError::paused(read.doing, left));
        }
        let url = self.url(&door.endpoint, read.path)?;
        let mut headers = door.endpoint.headers.clone();
        if let Some(authorization) = access.header.clone() {
            headers.insert(AUTHORIZATION, authorization);
        }
        if door.endpoint.headers.is_empty() {
            return self.sent(read, &clients.content, url, headers).await;
        }
        let response = self.sent(read, &clients.one_host, url, headers).await?;
        match redirect_target(&response) {
            Some(elsewhere) => self.sent(read, &clients.content, elsewhere, HeaderMap::new()).await,
            None => Ok(response),
        }
    }

    async fn sent(
        &self,
        read: &Read<'_>,
        client: &Client,
        url: Url,
        headers: HeaderMap,
    ) -> Result<Response, RegistryError> {
        let mut request = client.request(read.method.clone(), url).headers(headers);
        if let Some(accept) = read.accept {
            request = request.header(ACCEPT, accept);
        }
        match read.to_byte {
            Some(end) => request = request.header(RANGE, format!("bytes={}-{}", read.from_byte, end.saturating_sub(1))),
            None if 0 < read.from_byte => request = request.header(RANGE, format!("bytes={}-", read.from_byte)),
            None => {}
        }
        let limit = self.transport.settings.request_timeout;
        match tokio::time::timeout(limit, request.send()).await {
            Ok(sent) => sent.map_err(|error| RegistryError::from_send(read.doing, error)),
            Err(_) => Err(RegistryError::new(
                Reason::Timeout,
                format!("{} took too long", read.doing),
            )),
        }
    }

    /// Takes note of where an answer came from, and of the pause that it asks for.
    fn note_pause(&self, door: &Door, access: &Access, read: &Read<'_>, response: &Response) {
        let origin = response.url().origin();
        let is_elsewhere = origin != door.endpoint.base.origin();
        let origin = origin.ascii_serialization();
        if read.is_of_a_blob() {
            *door.blob_store.lock().unwrap_or_else(PoisonError::into_inner) = is_elsewhere.then(|| origin.clone());
        }
        let asks = matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if let Some(wait) = retry_after(response).filter(|_| asks) {
            let login = if is_elsewhere {
                String::new()
            } else {
                door.login(access)
            };
            self.transport.pauses.add(PauseKey { origin, login }, wait);
        }
    }

    /// How long the host, or the one to which it redirects, still wants to be left alone.
    fn paused(&self, door: &Door, access: &Access, read: &Read<'_>) -> Option<Duration> {
        let own = PauseKey {
            origin: door.endpoint.base.origin().ascii_serialization(),
            login: door.login(access),
        };
        let blob_store = door.blob_store.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let elsewhere = blob_store.filter(|_| read.is_of_a_blob()).map(|origin| PauseKey {
            origin,
            login: String::new(),
        });
        let left = [Some(own), elsewhere].into_iter().flatten();
        left.filter_map(|key| self.transport.pauses.left(&key)).max()
    }

    fn url(&self, endpoint: &Endpoint, path: &str) -> Result<Url, RegistryError> {
        let mut url = endpoint
            .base
            .join(&format!("{}/{path}", self.image.repository()))
            .map_err(|error| {
                RegistryError::new(Reason::Internal, "the registry's address cannot be put together").caused_by(error)
            })?;
        if endpoint.is_mirror {
            // Tells a mirror of several registries which one is meant.
            url.query_pairs_mut().append_pair("ns", self.image.registry());
        }
        Ok(url)
    }
}

impl Door {
    /// User name of the login that is in use; empty where there is none.
    fn login(&self, access: &Access) -> String {
        let login = self.candidates.get(access.candidate).and_then(Option::as_ref);
        login.map(|login| login.username.clone()).unwrap_or_default()
    }
}

impl Read<'_> {
    fn is_of_a_blob(&self) -> bool {
        self.path.starts_with("blobs/")
    }
}

/// Waits before another try; longer after every failure in a row.
pub(crate) async fn pause_after(failed: u32) {
    tokio::time::sleep(FIRST_PAUSE * 4_u32.saturating_pow(failed.saturating_sub(1).min(3))).await;
}

/// Where a redirect leads that was not followed.
fn redirect_target(response: &Response) -> Option<Url> {
    let target = response
        .headers()
        .get(LOCATION)
        .filter(|_| response.status().is_redirection())?;
    response.url().join(target.to_str().ok()?).ok()
}

/// Names the host without the rest of its address, which may hold a signature.
fn at_redirect_target(doing: &str, url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{doing} at {host}{port}, to which the registry redirects and which gets no login,")
}

async fn accepted(doing: &str, response: Response) -> Result<Response, RegistryError> {
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(refused(doing, response).await)
    }
}

/// The registry's refusal in its own words, as far as they are the JSON that registries agree on.
async fn refused(doing: &str, response: Response) -> RegistryError {
    #[derive(Deserialize)]
    struct Page {
        errors: Vec<Line>,
    }
    #[derive(Deserialize)]
    struct Line {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let (status, retry_after) = (response.status(), retry_after(&response));
    let page = tokio::time::timeout(
        Duration::from_secs(5),
        body(doing, response, MAX_ERROR_BODY, Reason::Unreachable),
    )
    .await;
    let page: Option<Page> = page
        .ok()
        .and_then(Result::ok)
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let first = page.and_then(|page| page.errors.into_iter().next());
    let said = first
        .map(|line| format!("{} {}", line.code, line.message))
        .unwrap_or_default();
    let said: String = said.trim().chars().filter(|c| !c.is_control()).take(MAX_SAID).collect();
    RegistryError::from_status(doing, status, &said, retry_after)
}

/// A whole body; one that is larger than it may be fails with this reason.
pub(super) async fn body(
    doing: &str,
    mut response: Response,
    max: usize,
    too_large: Reason,
) -> Result<Bytes, RegistryError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| RegistryError::from_send(doing, error))?
    {
        if max < bytes.len() + chunk.len() {
            let message = format!("{doing} brought more than {max} bytes");
            return Err(RegistryError::new(too_large, message));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
