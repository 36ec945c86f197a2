//! Answering a registry's challenge with a credential.
//!
//! A registry may name a token service on another host: Docker Hub and GitLab do. A login goes there only over TLS. In
//! plain text it goes only to the host of a registry that is itself spoken to in plain text, on whatever port: such a
//! login is in plain text on the way to that host with or without a token service.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_model::Reason;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{RequestBuilder, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::challenge::Challenge;
use super::pauses::retry_after;
use super::repository::body;
use super::transport::Clients;
use super::{RegistryError, Settings};
use crate::Credential;
use crate::hosts::Endpoint;

/// A token is a kilobyte or two; some services pack a user's whole rights into it.
const MAX_TOKEN_ANSWER: usize = 256 * 1024;

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Everything needed to answer challenges of one endpoint.
pub(super) struct Gate<'a> {
    pub(super) clients: &'a Clients,
    pub(super) endpoint: &'a Endpoint,
    pub(super) settings: &'a Settings,
    /// What to ask a token service for when the registry does not say.
    pub(super) default_scope: String,
}

impl Gate<'_> {
    /// The `Authorization` header that answers the challenge, or the reason why there is none.
    pub(super) async fn answer(
        &self,
        challenge: &Challenge,
        credential: Option<&Credential>,
    ) -> Result<HeaderValue, RegistryError> {
        match (challenge, credential) {
            (Challenge::Basic, None) => Err(RegistryError::new(
                Reason::AuthDenied,
                "the registry asks for a user name and a password",
            )),
            (Challenge::Basic, Some(credential)) => basic(credential),
            (Challenge::Bearer { realm, service, scope }, credential) => {
                let scope = scope.as_deref().unwrap_or(&self.default_scope);
                self.token(realm, service.as_deref(), scope, credential).await
            }
        }
    }

    fn may_ask(&self, service: &Url, credential: Option<&Credential>) -> bool {
        let base = &self.endpoint.base;
        let plain_will_do = base.scheme() == "http" && (credential.is_none() || service.host() == base.host());
        service.scheme() == "https" || service.scheme() == "http" && plain_will_do
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &str,
        credential: Option<&Credential>,
    ) -> Result<HeaderValue, RegistryError> {
        let mut url = Url::parse(realm).map_err(|error| {
            RegistryError::new(
                Reason::Unreachable,
                "the registry names a token service that is no address",
            )
            .caused_by(error)
        })?;
        if !self.may_ask(&url, credential) {
            return Err(RegistryError::new(
                Reason::Tls,
                "the registry names a token service without https; no credentials were sent to it",
            ));
        }
        let doing = format!("asking the token service at {}", url.host_str().unwrap_or_default());
        let parameters = service
            .map(|service| ("service", service))
            .into_iter()
            .chain([("scope", scope)]);
        let refresh = credential.and_then(|credential| credential.identity_token.as_ref());
        let request = if let Some(refresh) = refresh {
            // The form encoding of a body and of a query are the same.
            let mut form = url.clone();
            form.query_pairs_mut()
                .clear()
                .extend_pairs(parameters)
                .append_pair("grant_type", "refresh_token")
                .append_pair("client_id", "larder")
                .append_pair("refresh_token", refresh.expose_secret());
            let body = form.query().unwrap_or_default().to_owned();
            self.clients
                .login
                .post(url)
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(body)
        } else {
            url.query_pairs_mut().extend_pairs(parameters);
            match credential {
                Some(credential) => self.clients.login.get(url).header(AUTHORIZATION, basic(credential)?),
                None => self.clients.content.get(url),
            }
        };
        let token = self.fetch(&doing, request).await?;
        sensitive(&format!("Bearer {}", token.expose_secret()))
    }

    async fn fetch(&self, doing: &str, request: RequestBuilder) -> Result<SecretString, RegistryError> {
        let answer = async {
            let response = request
                .send()
                .await
                .map_err(|error| RegistryError::from_send(doing, error))?;
            let status = response.status();
            if !status.is_success() {
                let mut error = RegistryError::from_status(doing, status, "", retry_after(&response));
                // Some say 400 to a refresh token that they do not know.
                if status == StatusCode::BAD_REQUEST {
                    error.reason = Reason::AuthDenied;
                }
                return Err(error);
            }
            body(doing, response, MAX_TOKEN_ANSWER, Reason::Unreachable).await
        };
        let bytes = tokio::time::timeout(self.settings.request_timeout, answer)
            .await
            .map_err(|_| RegistryError::new(Reason::Timeout, format!("{doing} took too long")))??;
        // The parser's own words might quote the token.
        let answer: Option<TokenAnswer> = serde_json::from_slice(&bytes).ok();
        answer
            .and_then(|answer| answer.token.or(answer.access_token))
            .filter(|token| !token.is_empty())
            .map(SecretString::from)
            .ok_or_else(|| RegistryError::new(Reason::Unreachable, format!("{doing} brought no token")))
    }
}

fn basic(credential: &Credential) -> Result<HeaderValue, RegistryError> {
    let pair = format!("{}:{}", credential.username, credential.password.expose_secret());
    sensitive(&format!("Basic {}", STANDARD.encode(pair)))
}

fn sensitive(text: &str) -> Result<HeaderValue, RegistryError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        RegistryError::new(
            Reason::Unreachable,
            "the token service sent a token that cannot be used",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}
