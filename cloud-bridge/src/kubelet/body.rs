//! Answers of the kubelet API.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kubelet_api::backend::BackendError;
use kubelet_api::read::PLAIN;

/// Body of an answer, perhaps as it comes from the node.
pub(crate) type Body = UnsyncBoxBody<Bytes, BackendError>;

/// A text of the bridge itself.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(code, PLAIN, full(text.into()))
}

/// A body that is complete.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// An answer of this content type.
pub(crate) fn with_type(code: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
