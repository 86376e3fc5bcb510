//! Answers with a content type.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use super::body::ApiBody;

/// The content type of JSON.
pub(super) const JSON: &str = "application/json";

/// A JSON answer.
pub(super) fn json(code: u16, body: impl Into<Bytes>) -> Response<ApiBody> {
    typed(code, JSON, body)
}

/// An answer of any content type.
pub(super) fn typed(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<ApiBody> {
    respond(code, content_type, ApiBody::full(body))
}

/// What the API server's mux says of paths that nothing serves.
pub(super) fn no_page() -> Response<ApiBody> {
    typed(404, "text/plain; charset=utf-8", "404 page not found\n")
}

pub(super) fn respond(code: u16, content_type: &'static str, body: ApiBody) -> Response<ApiBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
