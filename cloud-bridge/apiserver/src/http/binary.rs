//! Answers in protobuf.

use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::JSON;
use super::body::{ApiBody, BodyError};
use crate::codec::parse;
use crate::codec::protobuf::{self, MEDIA_TYPE};

/// An answer of JSON in protobuf. A list with more values than a body may have stays as it is: clients decode by the content
/// type of the answer.
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
        Err(stream) => {
            let framed = stream.map(|lines| frames(&lines?));
            (ApiBody::stream(framed), "application/vnd.kubernetes.protobuf;stream=watch")
        }
    };
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Response::from_parts(parts, body)
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
