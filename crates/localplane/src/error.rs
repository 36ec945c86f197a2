//! Refusals, as the `Status` objects that Kubernetes sends.
//!
//! Every constructor fixes code, reason and the wording that clients match on. Nothing here knows about HTTP routing.

use std::fmt;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

/// The most wrong fields that an answer names. Each is several times as long as what is wrong.
pub(crate) const MAX_CAUSES: usize = 1_000;

/// One field that is wrong, as it stands in `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable kind, such as `FieldValueRequired`.
    pub reason: &'static str,
    /// Sentence about this field.
    pub message: String,
    /// Path of the field, such as `spec.images[0]`.
    pub field: String,
}

impl Cause {
    /// The value of a field is not acceptable.
    pub fn invalid(field: impl Into<String>, value: &str, detail: impl fmt::Display) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {detail}"),
            field: field.into(),
        }
    }

    /// The type of a value is not the one the schema asks for.
    pub fn wrong_type(field: impl Into<String>, value: &str, detail: impl fmt::Display) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {value}: {detail}"),
            field: field.into(),
        }
    }

    /// A field must be there and is not.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = match detail {
            "" => "Required value".to_owned(),
            _ => format!("Required value: {detail}"),
        };
        Self {
            reason: "FieldValueRequired",
            message,
            field: field.into(),
        }
    }

    /// A field may not be there or may not change.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
            field: field.into(),
        }
    }

    /// A value is not one of the allowed ones.
    pub fn unsupported(field: impl Into<String>, value: &str, allowed: &[String]) -> Self {
        Self {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {}", allowed.join(", ")),
            field: field.into(),
        }
    }

    /// A value stands twice in a list that is a set or a map.
    pub fn duplicate(field: impl Into<String>, value: &str) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {value}"),
            field: field.into(),
        }
    }

    fn sentence(&self) -> String {
        if self.field.is_empty() {
            self.message.clone()
        } else {
            format!("{}: {}", self.field, self.message)
        }
    }
}

/// Group, plural and kind: the words by which a refusal names what it is about.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// API group, empty for core.
    pub group: String,
    /// Plural resource name.
    pub plural: String,
    /// Kind.
    pub kind: String,
}

impl Subject {
    fn qualified(&self, word: &str) -> String {
        if self.group.is_empty() {
            word.to_owned()
        } else {
            format!("{word}.{}", self.group)
        }
    }

    fn details(&self, name: &str, kind: &str) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", &self.group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details
    }
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct ApiError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    metadata: Map<String, Value>,
    retry_after: Option<u32>,
}

impl ApiError {
    fn plain(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            metadata: Map::new(),
            retry_after: None,
        }
    }

    /// 400: the request itself makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: no or unknown token.
    pub fn unauthorized() -> Self {
        Self::plain(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: understood and not allowed.
    pub fn forbidden(subject: &Subject, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", subject.qualified(&subject.plural));
        let mut error = Self::plain(StatusCode::FORBIDDEN, "Forbidden", message);
        error.details = subject.details(name, &subject.plural);
        error
    }

    /// 404: no object of that name.
    pub fn not_found(subject: &Subject, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", subject.qualified(&subject.plural));
        let mut error = Self::plain(StatusCode::NOT_FOUND, "NotFound", message);
        error.details = subject.details(name, &subject.plural);
        error
    }

    /// 404: no such resource or path.
    pub fn no_such_resource() -> Self {
        Self::plain(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 405: the resource exists, the verb does not.
    pub fn method_not_allowed() -> Self {
        Self::plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 406: none of the wanted answer formats can be served.
    pub fn not_acceptable(served: &str) -> Self {
        Self::plain(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!("only the following media types are accepted: {served}"),
        )
    }

    /// 409: an object of that name exists.
    pub fn already_exists(subject: &Subject, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", subject.qualified(&subject.plural));
        let mut error = Self::plain(StatusCode::CONFLICT, "AlreadyExists", message);
        error.details = subject.details(name, &subject.plural);
        error
    }

    /// 409: the object is not the one the writer looked at.
    pub fn conflict(subject: &Subject, name: &str, why: impl fmt::Display) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            subject.qualified(&subject.plural)
        );
        let mut error = Self::plain(StatusCode::CONFLICT, "Conflict", message);
        error.details = subject.details(name, &subject.plural);
        error
    }

    /// 409: the writer read an older version.
    pub fn stale(subject: &Subject, name: &str) -> Self {
        Self::conflict(
            subject,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410 for a watch or list that starts before what is remembered.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(StatusCode::GONE, "Expired", message)
    }

    /// 410 for a page of a list whose revision is gone; `token` continues from the newest revision.
    pub fn expired_page(token: String) -> Self {
        let mut error = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        error.metadata.insert("continue".into(), token.into());
        error
    }

    /// 413: the body is over the limit.
    pub fn too_large(limit: usize) -> Self {
        Self::plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 413: the body is not large, but has too many parts.
    pub fn too_many_values(structures: usize, values: usize) -> Self {
        Self::plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: {structures} objects and lists with {values} keys and values take too much \
                 memory; use several objects with fewer of them"
            ),
        )
    }

    /// 413: a JSON patch has too many operations.
    pub fn too_many_operations(limit: usize, given: usize) -> Self {
        Self::plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: The allowed maximum operations in a JSON patch is {limit}, got {given}"),
        )
    }

    /// 415: the body is in a format this endpoint does not read.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::plain(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}"),
        )
    }

    /// 422: fields are wrong.
    pub fn invalid(subject: &Subject, name: &str, causes: &[Cause]) -> Self {
        let causes = &causes[..causes.len().min(MAX_CAUSES)];
        let sentences: Vec<String> = causes.iter().map(Cause::sentence).collect();
        let listed = match sentences.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {listed}", subject.qualified(&subject.kind));
        let mut error = Self::plain(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.details = subject.details(name, &subject.kind);
        error.details.insert("causes".into(), causes_json(causes));
        error
    }

    /// 422 without a field: a patch that cannot be applied. Says no more than a cluster does, so that clients tell it
    /// from a refused field by the same sign everywhere: there are no causes.
    pub fn unprocessable() -> Self {
        Self::plain(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    }

    /// 429: ask again later.
    pub fn too_many_requests(seconds: u32) -> Self {
        let mut error = Self::plain(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        error.set_retry_after(seconds);
        error
    }

    /// 500: a fault of the server.
    pub fn internal(why: impl fmt::Display) -> Self {
        let mut error = Self::plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {why}"),
        );
        error
            .details
            .insert("causes".into(), json!([{"message": why.to_string()}]));
        error
    }

    /// 503: the server is going away.
    pub fn shutting_down() -> Self {
        let mut error = Self::plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "the server is shutting down",
        );
        error.set_retry_after(1);
        error
    }

    /// 504: a revision that has not happened yet. kube-apiserver asks clients to try again in a second where its cache may
    /// be behind its store. Nothing is behind here, and client-go would try ten times before it reports the error.
    pub fn future_revision(wanted: u64, current: u64) -> Self {
        let mut error = Self::plain(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {wanted}, current: {current}"),
        );
        error.details.insert(
            "causes".into(),
            json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]),
        );
        error
    }

    /// Adds one more reason to the details.
    pub(crate) fn with_cause(mut self, cause: &Cause) -> Self {
        self.details
            .insert("causes".into(), causes_json(std::slice::from_ref(cause)));
        self
    }

    fn set_retry_after(&mut self, seconds: u32) {
        self.retry_after = Some(seconds);
        self.details.insert("retryAfterSeconds".into(), seconds.into());
    }

    /// HTTP status code.
    pub fn code(&self) -> StatusCode {
        self.code
    }

    /// Machine-readable reason.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code.as_u16(),
        });
        if !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

fn causes_json(causes: &[Cause]) -> Value {
    causes
        .iter()
        .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
        .collect()
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.status().to_string()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
