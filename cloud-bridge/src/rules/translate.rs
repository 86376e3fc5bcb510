//! Converts requests to calls on nodes, and their results to answers. Pure.

use bytes::Bytes;
use edge_protocol::message::{Call, CallFailure, CallResult};
use edge_protocol::topic::is_topic;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::Full;

use super::forward::FORWARDED;
use super::{Answer, text};
use crate::bridge::rules::Target;

/// Maximum length of the headers for a server on a node, in bytes.
const HEADERS: usize = 16 << 10;
/// Value of `Retry-After` for a node that is not connected, in seconds.
const RETRY_AFTER: u16 = 5;

/// Destination of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: String,
    pub(super) namespace: String,
    /// Path of the rule and the rest, with the leading slash.
    pub(super) path: String,
    pub(super) query: Option<String>,
}

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

pub(super) fn later(why: &str) -> Answer {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why.to_owned());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
    response
}

/// Splits the path into segments, without unescaping.
pub(super) fn place(uri: &Uri) -> Result<Place, Refusal> {
    let mut levels = uri.path().strip_prefix('/').ok_or(Refusal::BadPath)?.splitn(3, '/');
    match (levels.next(), levels.next(), levels.next()) {
        (Some(node), Some(namespace), Some(path)) if !node.is_empty() && !namespace.is_empty() && !path.is_empty() => {
            Ok(Place {
                node: node.to_owned(),
                namespace: namespace.to_owned(),
                path: format!("/{path}"),
                query: uri.query().map(str::to_owned),
            })
        }
        _ => Err(Refusal::BadPath),
    }
}

/// Returns the call that the node must make.
pub(super) fn call(
    namespace: &str,
    target: &Target,
    parts: &Parts,
    rest: &str,
    query: Option<&str>,
    body: &Bytes,
) -> Result<Call, Refusal> {
    match target {
        Target::Topic(topic) => {
            if parts.method != Method::POST {
                return Err(Refusal::BadMethod);
            }
            let topic = format!("{topic}{rest}");
            if !is_topic(&topic) {
                return Err(Refusal::BadTopic);
            }
            Ok(Call::Publish { namespace: namespace.to_owned(), topic, payload: body.to_vec() })
        }
        Target::Service { port, path } => {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            let path = match format!("{path}{rest}{query}") {
                path if path.starts_with('/') => path,
                path => format!("/{path}"),
            };
            let headers = passed_on(&parts.headers);
            if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > HEADERS {
                return Err(Refusal::LongHeaders);
            }
            let (port, method, body) = (*port, parts.method.to_string(), body.to_vec());
            let namespace = namespace.to_owned();
            Ok(Call::Http { namespace, port, method, path, headers, body })
        }
        // A rule whose source is a node does not have a path.
        Target::Url(_) => Err(Refusal::NoRule),
    }
}

/// Headers for the target of the rule, without those of the connection and of the client's authentication.
fn passed_on(headers: &HeaderMap) -> Vec<(String, String)> {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<String> =
        listed.flat_map(|value| value.split(',')).map(|name| name.trim().to_lowercase()).collect();
    let ours = |name: &HeaderName| {
        is_of_connection(name)
            || *name == header::AUTHORIZATION
            || *name == header::HOST
            || *name == FORWARDED
            || name.as_str().starts_with("impersonate-")
            || listed.iter().any(|listed| listed == name.as_str())
    };
    let passed = headers.iter().filter(|(name, _)| !ours(name));
    passed.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect()
}

/// Whether it is a header of the connection (RFC 9110, section 7.6.1); the length is set again.
pub(super) fn is_of_connection(name: &HeaderName) -> bool {
    const ALL: [HeaderName; 7] = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    ALL.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Returns the answer for the client.
pub(super) fn response(result: CallResult) -> Answer {
    match result {
        CallResult::Published {} => text(StatusCode::OK, "message delivered"),
        CallResult::Http { status, headers, body } => {
            let Some(code) = StatusCode::from_u16(status).ok().filter(|code| code.as_u16() >= 200) else {
                return text(StatusCode::BAD_GATEWAY, format!("the server on the node answers with status {status}"));
            };
            let mut response = Response::new(Full::new(Bytes::from(body)));
            *response.status_mut() = code;
            let headers = headers.into_iter().filter_map(|(name, value)| {
                let name: HeaderName = name.parse().ok()?;
                Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
            });
            for (name, value) in headers.filter(|(name, _)| !is_of_connection(name)) {
                response.headers_mut().append(name, value);
            }
            response
        }
        CallResult::Failed { failure, why } => match failure {
            CallFailure::Unavailable => later(&why),
            CallFailure::Timeout => text(StatusCode::GATEWAY_TIMEOUT, why),
            CallFailure::Refused => text(StatusCode::BAD_REQUEST, why),
            CallFailure::Forbidden => text(StatusCode::FORBIDDEN, why),
            CallFailure::Unreachable | CallFailure::Broken | CallFailure::Unknown => text(StatusCode::BAD_GATEWAY, why),
        },
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn paths_name_node_namespace_and_the_rest() {
        let at = |uri: &str| place(&uri.parse().unwrap());
        let found = at("/n/ns/a/b?c=d").unwrap();
        assert_eq!(
            (&*found.node, &*found.namespace, &*found.path, found.query.as_deref()),
            ("n", "ns", "/a/b", Some("c=d"))
        );
        for bad in ["/", "/n", "/n/ns", "/n/ns/", "//ns/a", "/n//a"] {
            assert_eq!(at(bad), Err(Refusal::BadPath), "{bad}");
        }
    }

    #[test]
    fn what_is_behind_a_path_goes_behind_the_topic() {
        let target = Target::Topic("led/set".into());
        let made = |method: &str, rest: &str| {
            call("ns", &target, &parts(method, &[]), rest, Some("q"), &Bytes::from_static(b"x"))
        };
        assert_eq!(
            made("POST", "/a"),
            Ok(Call::Publish { namespace: "ns".into(), topic: "led/set/a".into(), payload: b"x".to_vec() })
        );
        assert_eq!(made("GET", ""), Err(Refusal::BadMethod));
        assert_eq!(made("POST", "/+"), Err(Refusal::BadTopic));
    }

    #[test]
    fn a_server_is_told_what_is_meant_for_it() {
        let target = Target::Service { port: 80, path: "/api".into() };
        let headers = [
            ("content-type", "a/b"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "x"),
            ("host", "h"),
            ("connection", "X-Own, close"),
            ("x-own", "1"),
            ("cookie", "c"),
        ];
        let made = call("ns", &target, &parts("PUT", &headers), "/x", Some("y=1"), &Bytes::new());
        let passed = vec![("content-type".to_owned(), "a/b".to_owned()), ("cookie".to_owned(), "c".to_owned())];
        let wanted = Call::Http {
            namespace: "ns".into(),
            port: 80,
            method: "PUT".into(),
            path: "/api/x?y=1".into(),
            headers: passed,
            body: vec![],
        };
        assert_eq!(made, Ok(wanted));
        let long = "x".repeat(HEADERS);
        assert_eq!(
            call("ns", &target, &parts("GET", &[("a", &long)]), "", None, &Bytes::new()),
            Err(Refusal::LongHeaders)
        );
    }

    #[test]
    fn answers_say_what_came_of_it() {
        let code = |result: CallResult| response(result).status().as_u16();
        let failed = |failure| CallResult::Failed { failure, why: "w".into() };
        assert_eq!(code(CallResult::Published {}), 200);
        assert_eq!(response(failed(CallFailure::Unavailable)).headers()[header::RETRY_AFTER], "5");
        let codes = [CallFailure::Unavailable, CallFailure::Unreachable, CallFailure::Broken, CallFailure::Timeout];
        assert_eq!(codes.map(|failure| code(failed(failure))), [503, 502, 502, 504]);
        assert_eq!(code(failed(CallFailure::Forbidden)), 403);
        let headers =
            vec![("x-a".to_owned(), "b".to_owned()), ("x\n".to_owned(), "c".to_owned()), ("te".into(), "x".into())];
        let answer = response(CallResult::Http { status: 418, headers, body: b"tea".to_vec() });
        assert_eq!((answer.status().as_u16(), answer.headers().len()), (418, 1));
        assert_eq!(code(CallResult::Http { status: 101, headers: vec![], body: vec![] }), 502);
    }
}
