//! Answers in protobuf.

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::body::{ApiBody, BodyError};
use super::response::JSON;
use crate::codec::parse;
use crate::codec::protobuf::{self, MEDIA_TYPE};

/// Content type of a watch.
pub(super) const WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// An answer of JSON in protobuf. A list with more values than a body may have stays as it is, and so does one that is read
/// while it is sent, since in protobuf its length comes first: clients decode by the content type of the answer.
pub(super) fn encoded(response: Response<ApiBody>) -> Response<ApiBody> {
    let (mut parts, body) = response.into_parts();
    let (body, kind) = match body.into_full() {
        Ok(json) => {
            let object = parse::parse(&json).ok().map(|(object, _)| object);
            match object.and_then(|object| protobuf::encode(&object)) {
                Some(encoded) => (ApiBody::full(encoded), MEDIA_TYPE),
                None => (ApiBody::full(json), JSON),
            }
        }
        Err(list) => (list, JSON),
    };
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Response::from_parts(parts, body)
}

/// A watch in protobuf, of one whose parts are lines of JSON.
pub(super) fn framed(
    lines: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static {
    lines.map(|lines| frames(&lines?))
}

/// Events as lines of JSON, which always come whole.
fn frames(lines: &[u8]) -> Result<Bytes, BodyError> {
    let mut out = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let event = serde_json::from_slice::<Value>(line).ok();
        let framed = event.and_then(|event| protobuf::frame(&event));
        out.extend(framed.ok_or_else(|| BodyError("an event has no form in protobuf".to_owned()))?);
    }
    Ok(out.into())
}
