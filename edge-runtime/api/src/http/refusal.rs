//! Errors as the API has them: a `Status` as JSON.

use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::json;

use super::body::Content;

/// Seconds after which a pod tries again without a link, and where a limit is reached.
const LATER: u32 = 30;
const SOON: u32 = 1;

/// A request that is not answered by the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    reason: &'static str,
    message: String,
    retry_s: Option<u32>,
    /// The connection ends with it: its place is for others.
    closes: bool,
}

impl Refusal {
    fn new(status: StatusCode, reason: &'static str, message: &str) -> Self {
        Self { status, reason, message: message.to_owned(), retry_s: None, closes: false }
    }

    pub(super) fn unknown_token() -> Self {
        let refusal = Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        Self { closes: true, ..refusal }
    }

    pub(super) fn impersonates() -> Self {
        let message = "impersonation is not passed on: a pod has its own rights only";
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(super) fn no_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the path is none that this node passes on to the API")
    }

    pub(super) fn method() -> Self {
        let message = "the method is none that this node passes on to the API";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(super) fn bad(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(super) fn large_body() -> Self {
        let message = "the body is over the limit of 3145728 bytes";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(super) fn slow_body() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "the body does not come")
    }

    pub(super) fn upgrade() -> Self {
        let message = "exec, attach and port-forward of pods are not passed on to the API";
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message)
    }

    /// A client falls back to list and watch on any error but 429 (client-go tools/cache/reflector.go, `watchList`). A list
    /// can be kept, events cannot.
    pub(super) fn initial_events() -> Self {
        let message = "sendInitialEvents: Forbidden: this node keeps lists for times without a link: list, then watch";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(super) fn too_many(message: &str) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        Self { retry_s: Some(SOON), ..refusal }
    }

    pub(super) fn too_many_connections() -> Self {
        Self { closes: true, ..Self::too_many("this pod has too many connections to the API of its node") }
    }

    /// The request was not executed.
    pub(super) fn unavailable(message: &str) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message);
        Self { retry_s: Some(LATER), ..refusal }
    }

    /// No daemon has named its pods yet.
    pub(super) fn not_ready() -> Self {
        Self { retry_s: Some(SOON), ..Self::unavailable("this node is starting") }
    }

    /// The request may have been executed: without `Retry-After`, so that clients do not repeat it by themselves.
    pub(super) fn no_answer() -> Self {
        let message = "the link ended before the answer: it is not known whether the request was executed";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    pub(super) fn bad_answer() -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "InternalError", "the answer of the API cannot be read")
    }

    pub(super) const fn is_limit(&self) -> bool {
        self.status.as_u16() == 429
    }

    pub(super) fn answer(&self) -> Response<Content> {
        let Self { status, reason, message, retry_s, closes } = self;
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": status.as_u16(),
        });
        if let (Some(seconds), Some(body)) = (retry_s, body.as_object_mut()) {
            body.insert("details".to_owned(), json!({ "retryAfterSeconds": seconds }));
        }
        let mut answer = Response::new(Content::Whole(Some(Bytes::from(body.to_string()))));
        *answer.status_mut() = *status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if *closes {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = retry_s {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*seconds));
        }
        answer
    }

    #[cfg(test)]
    pub(super) const fn code(&self) -> u16 {
        self.status.as_u16()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_a_status() {
        let answer = Refusal::unavailable("no link").answer();
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers().get(RETRY_AFTER).map(HeaderValue::as_bytes), Some(&b"30"[..]));
        let Content::Whole(Some(body)) = answer.into_body() else { panic!("no body") };
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((&body["kind"], &body["code"]), (&json!("Status"), &json!(503)));
        assert_eq!(body["details"]["retryAfterSeconds"], 30);
        assert!(!Refusal::no_answer().answer().headers().contains_key(RETRY_AFTER));
        assert!(Refusal::unknown_token().answer().headers().contains_key(CONNECTION));
    }
}
