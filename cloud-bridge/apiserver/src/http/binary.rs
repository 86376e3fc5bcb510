//! Answers in protobuf, for clients that take nothing else. Objects are stored as JSON: who takes both gets that.

use bytes::Bytes;
use futures::StreamExt;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::JSON;
use super::body::{ApiBody, BodyError};
use crate::codec::parse;
use crate::codec::protobuf::{self, MEDIA_TYPE};

/// The `Accept` header as if it named JSON, if all that can be served of it is protobuf.
pub(super) fn wanted(accept: &str) -> Option<String> {
    let media = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    let mut found = None;
    for clause in accept.split(',') {
        match media(clause).as_str() {
            JSON | "*/*" | "application/*" => return None,
            // There is no such form of a Table.
            MEDIA_TYPE if !clause.contains("as=Table") => drop(found.get_or_insert(clause)),
            _ => {}
        }
    }
    found.map(|clause| clause.replacen(MEDIA_TYPE, JSON, 1))
}

/// The same answer in protobuf. One that is no object, as a log, stays as it is, and so does a list with more values than a
/// body may have: clients decode by the content type of the answer.
pub(super) fn encoded(response: Response<ApiBody>) -> Response<ApiBody> {
    if response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != JSON) {
        return response;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_for_who_takes_nothing_else() {
        for both in [
            "",
            "application/json",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/vnd.kubernetes.protobuf, */*",
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
            "text/plain",
        ] {
            assert_eq!(wanted(both), None, "{both}");
        }
        assert_eq!(wanted("application/vnd.kubernetes.protobuf").as_deref(), Some(JSON));
        let partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(wanted(&format!("{MEDIA_TYPE}{partial}")), Some(format!("{JSON}{partial}")));
    }
}
