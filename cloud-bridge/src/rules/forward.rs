//! Requests for nodes that are connected to another bridge of the cluster: forwarded unchanged, including the caller's
//! token, which the other bridge checks itself. A bridge gets no extra trust. The other side proves that it is a bridge
//! by a server certificate of the authority that all bridges of a cluster share; only bridges get those. One hop at
//! most.

use std::time::Duration;

use bytes::Bytes;
use edge_protocol::message::MAX_BODY;
use http::request::Parts;
use http::uri::{Authority as Place, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::timeout;

use super::answer::{Answer, later, text};
use super::translate::{FORWARDED, is_of_connection};
use crate::https_client::{HttpsClient, https_client};
use crate::pki::authority::Authority;

/// Timeout for the other bridge, which gives its node 30 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// Client for the other bridges.
pub(super) struct Forwarder(HttpsClient);

impl Forwarder {
    pub(super) fn new(authority: &Authority) -> anyhow::Result<Self> {
        Ok(Self(https_client(authority.trusted())?))
    }

    /// The answer of the bridge at this address (`HOST:PORT`).
    pub(super) async fn pass_on(&self, place: &str, parts: &Parts, body: Bytes) -> Answer {
        let Some(request) = request(place, parts, body) else {
            return later("the node is not connected to this bridge, and where it is leads nowhere");
        };
        let broken = || text(StatusCode::BAD_GATEWAY, "the other bridge broke off: it may have been done");
        let answered = async {
            let answer = match self.0.request(request).await {
                Ok(answer) => answer,
                Err(error) if error.is_connect() => return later("the bridge that has the node is not reached"),
                Err(_) => return broken(),
            };
            let (head, body) = answer.into_parts();
            match Limited::new(body, MAX_BODY).collect().await {
                Ok(body) => response(head, body.to_bytes()),
                Err(_) => broken(),
            }
        };
        let late =
            || text(StatusCode::GATEWAY_TIMEOUT, "the other bridge does not answer in time: it may have been done");
        timeout(PATIENCE, answered).await.unwrap_or_else(|_| late())
    }
}

/// Returns the request for another address.
fn request(place: &str, parts: &Parts, body: Bytes) -> Option<Request<Full<Bytes>>> {
    let mut uri = http::uri::Parts::default();
    (uri.scheme, uri.authority) = (Some(Scheme::HTTPS), Some(place.parse::<Place>().ok()?));
    uri.path_and_query = parts.uri.path_and_query().cloned().or_else(|| Some(PathAndQuery::from_static("/")));
    let mut request = Request::new(Full::new(body));
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.method_mut() = parts.method.clone();
    let passed = parts.headers.iter().filter(|(name, _)| !is_of_connection(name) && **name != http::header::HOST);
    for (name, value) in passed {
        request.headers_mut().append(name.clone(), value.clone());
    }
    request.headers_mut().insert(FORWARDED, HeaderValue::from_static("1"));
    Some(request)
}

fn response(head: http::response::Parts, body: Bytes) -> Answer {
    let mut response = Response::from_parts(head, Full::new(body));
    let ours: Vec<HeaderName> = response.headers().keys().filter(|name| is_of_connection(name)).cloned().collect();
    for name in ours {
        response.headers_mut().remove(name);
    }
    // The HTTP version of this connection differs from the other one's.
    *response.version_mut() = http::Version::default();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_request_is_unchanged_and_marked_as_forwarded() {
        let asked = Request::put("/n/ns/a?b=c").header("authorization", "Bearer t").header("connection", "close");
        let (parts, ()) = asked.header("host", "here").header("x-own", "1").body(()).unwrap().into_parts();
        let made = request("10.0.0.2:9443", &parts, Bytes::from_static(b"x")).unwrap();
        assert_eq!(
            (made.uri().to_string(), made.method().as_str()),
            ("https://10.0.0.2:9443/n/ns/a?b=c".into(), "PUT")
        );
        let header = |name: &str| made.headers().get(name).map(|value| value.to_str().unwrap());
        let all = ["authorization", "x-own", "x-sampan-forwarded", "connection", "host"].map(header);
        assert_eq!(all, [Some("Bearer t"), Some("1"), Some("1"), None, None]);
        for bad in ["", "a b", "h/x:1", "u@h:1\n"] {
            assert!(request(bad, &parts, Bytes::new()).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_is_said_of_the_other_connection_is_not_told() {
        let answer = Response::builder().status(418).header("transfer-encoding", "chunked").header("x-tea", "green");
        let (head, ()) = answer.header("content-length", "9").body(()).unwrap().into_parts();
        let made = response(head, Bytes::from_static(b"tea"));
        assert_eq!((made.status().as_u16(), made.headers().len()), (418, 1));
    }
}
