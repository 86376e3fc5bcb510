//! Answers of the bridge itself, among them the refusals.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use crate::kubelet::auth::Denied;

/// Value of `Retry-After` for a node that is not connected, in seconds.
const RETRY_AFTER: u16 = 5;

pub(super) type Answer = Response<Full<Bytes>>;

/// Reason of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Denied(StatusCode, String),
    BadPath,
    NoRule,
    /// Rules have not been read yet.
    NotYet,
    BadTopic,
    BadMethod,
    TooLong,
    LongHeaders,
}

impl Refusal {
    pub(super) fn response(&self) -> Answer {
        match self {
            Self::Denied(code, why) => text(*code, why.clone()),
            Self::BadPath => text(StatusCode::NOT_FOUND, "want /NODE/NAMESPACE/PATH"),
            Self::NoRule => text(StatusCode::NOT_FOUND, "no rule of this namespace has this path"),
            Self::NotYet => later("rules have not been read yet"),
            Self::BadTopic => text(StatusCode::BAD_REQUEST, "nothing can be published to such a topic"),
            Self::BadMethod => text(StatusCode::METHOD_NOT_ALLOWED, "messages are sent by POST"),
            Self::TooLong => text(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
            Self::LongHeaders => text(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers"),
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        let code = match denied {
            Denied::Unauthorized => StatusCode::UNAUTHORIZED,
            Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
            Denied::Api(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::Denied(code, denied.to_string())
    }
}

pub(super) fn later(why: &str) -> Answer {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
    response
}

pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
