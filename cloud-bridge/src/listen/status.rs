//! Refusals, as Kubernetes `Status` objects, which all clients understand.

use apimachinery::status::failure;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::pki::PkiError;

/// Reason of a refusal.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, reason: "BadRequest", message: message.into() }
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self { code: StatusCode::UNAUTHORIZED, reason: "Unauthorized", message: message.into() }
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self { code: StatusCode::FORBIDDEN, reason: "Forbidden", message: message.into() }
    }

    pub(super) fn conflict(reason: &'static str, message: impl Into<String>) -> Self {
        Self { code: StatusCode::CONFLICT, reason, message: message.into() }
    }

    pub(super) fn too_many_requests(message: impl Into<String>) -> Self {
        Self { code: StatusCode::TOO_MANY_REQUESTS, reason: "TooManyRequests", message: message.into() }
    }

    /// The API did not answer: a retry may help.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: StatusCode::SERVICE_UNAVAILABLE, reason: "ServiceUnavailable", message: message.into() }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self { code: StatusCode::INTERNAL_SERVER_ERROR, reason: "InternalError", message: message.into() }
    }

    pub(super) fn not_found(path: &str) -> Self {
        let path: String = path.chars().take(80).collect();
        let message =
            format!("there is nothing at {path:?}: nodes join at /v1/join or /v1/enrol and connect at /v1/link");
        Self { code: StatusCode::NOT_FOUND, reason: "NotFound", message }
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the method is not allowed here".to_owned();
        Self { code: StatusCode::METHOD_NOT_ALLOWED, reason: "MethodNotAllowed", message }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        respond(self.code, &failure(self.code.as_u16(), self.reason, &self.message))
    }
}

impl From<PkiError> for Refusal {
    fn from(error: PkiError) -> Self {
        match error {
            PkiError::Request(_) => Self::bad_request(error.to_string()),
            _ => Self::internal(error.to_string()),
        }
    }
}

/// A JSON answer.
pub(super) fn respond(code: StatusCode, body: &serde_json::Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A connection serves one request here.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
