//! `pods/NAME/proxy/PATH` and `services/NAME/proxy/PATH`: HTTP to a port of a pod, through the API. It uses the path of
//! a port-forward: the node connects within the pod, so the bridge needs no route to it.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyDataStream, Full};
use kubelet_api::streaming::{OnUpgrade, proxy};

use super::body::{ApiBody, BodyError};
use super::links;
use crate::auth::Attributes;
use crate::registry::context::Context;
use crate::registry::subresource::pod::{self, Proxied};
use crate::registry::subresource::service;
use crate::resource::status::{ApiError, ApiResult};
use crate::state::Inner;
use apimachinery::flow::Flow;
use apimachinery::shares::Share;

/// Number of segments before the path for the pod: `api/v1/namespaces/NAMESPACE/pods/NAME/proxy`.
const SEGMENTS: usize = 7;

/// A page of more bytes is not looked at.
const PAGE: usize = 1 << 20;

/// Headers of one connection (RFC 9110, 7.6.1), in addition to those that `connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Returns the pod's answer (K8s apimachinery util/proxy/upgradeaware.go).
pub(crate) async fn answer(
    inner: &Arc<Inner>,
    ctx: &Context<'_>,
    parts: &Parts,
    body: Bytes,
    (flow, attributes): (&Flow, &Attributes),
) -> ApiResult<Response<ApiBody>> {
    if ctx.verb.is_empty() && parts.method != Method::OPTIONS {
        return Err(ApiError::method_not_allowed());
    }
    let of_service = ctx.resource.plural == "services";
    let Proxied { pod, port } = if of_service { service::proxied(ctx, flow) } else { pod::proxied(ctx, flow) }?;
    let (prefix, rest) = split(parts.uri.path());
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let upgrade = upgraded(&parts.headers);
    if rest.is_empty() && upgrade.is_none() && matches!(parts.method, Method::GET | Method::HEAD) {
        return moved(&format!("{prefix}/{query}"));
    }
    let host = host(parts);
    let wanted = if rest.is_empty() { "/" } else { rest };
    let mut request = Request::builder().method(parts.method.clone()).uri(format!("{wanted}{query}"));
    if let Some(headers) = request.headers_mut() {
        *headers = forwarded(&parts.headers, upgrade);
        // HTTP/2 has the host in the address, and HTTP/1.1 must have it in a header.
        headers.extend(HeaderValue::from_str(&host).ok().map(|host| (header::HOST, host)));
        let uri = HeaderValue::from_str(&format!("{prefix}{rest}"));
        headers.extend(uri.ok().map(|uri| (HeaderName::from_static("x-forwarded-uri"), uri)));
    }
    let request = request.body(Full::new(body)).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let backend = inner.backend.get().ok_or_else(|| ApiError::unavailable("no node is connected"))?;
    let client = upgrade.and_then(|_| parts.extensions.get::<OnUpgrade>().cloned());
    // The request ends with its answer, an upgraded connection does not.
    let place = client.as_ref().map(|_| inner.limits.enter(flow, attributes).ok_or_else(ApiError::busy)).transpose()?;
    let answer = proxy::request(Arc::clone(backend), pod, port, request, client, place).await;
    let answer = answer.map_err(|why| ApiError::unavailable(format!("error trying to reach service: {why}")))?;
    let mut read: Option<Share> = None;
    let room = |bytes: usize| {
        if let Some(read) = &mut read {
            return read.grow(bytes);
        }
        read = inner.limits.answers.take(flow, bytes);
        read.is_some()
    };
    Ok(shown(answer, prefix, host, room).await)
}

/// The pod's answer, for the client. `room` is asked for the bytes that are read before any of it is sent.
async fn shown<B>(
    answer: Response<B>,
    prefix: String,
    host: String,
    room: impl FnMut(usize) -> bool,
) -> Response<ApiBody>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display + Send + 'static,
{
    let (mut head, body) = answer.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Response::from_parts(head, ApiBody::full(Vec::new()));
    }
    strip(&mut head.headers);
    let location = head.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    if let Some(location) = location.and_then(|location| through(location, &host, &prefix))
        && let Ok(location) = HeaderValue::from_str(&location)
    {
        head.headers.insert(header::LOCATION, location);
    }
    let kept = HeaderValue::from_static("no-cache, private");
    head.headers.entry(header::CACHE_CONTROL).or_insert(kept);
    let body = BodyDataStream::new(body).map_err(|error| BodyError(error.to_string()));
    if !is_page(&head.headers) {
        return Response::from_parts(head, ApiBody::stream(body));
    }
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, page(Box::pin(body), room, |link| through(link, &host, &prefix)).await)
}

/// Whether what follows is a page that can be read.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind == "text/html" && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Rewrites the links of a page so that they lead through this proxy. A page that is too large, or that the memory
/// limit has no room for, passes unchanged, and so does one that breaks off.
async fn page<S>(mut body: S, mut room: impl FnMut(usize) -> bool, lead: impl Fn(&str) -> Option<String>) -> ApiBody
where
    S: Stream<Item = Result<Bytes, BodyError>> + Send + Unpin + 'static,
{
    let mut read = Vec::new();
    loop {
        match body.next().await {
            None => return ApiBody::full(links::rewritten(&read, lead)),
            Some(Ok(more)) if read.len() + more.len() <= PAGE && room(more.len()) => read.extend_from_slice(&more),
            Some(last) => {
                let before = stream::iter([Ok(Bytes::from(read)), last]);
                return ApiBody::stream(before.chain(body));
            }
        }
    }
}

/// Name of this server in the request: in HTTP/2 a part of the address.
pub(super) fn host(parts: &Parts) -> String {
    let named = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let address = parts.uri.authority().map(|authority| authority.as_str());
    named.or(address).unwrap_or_default().to_owned()
}

/// The path up to `proxy`, and what follows, both as the client wrote them.
fn split(path: &str) -> (String, &str) {
    let mut rest = path;
    let mut prefix = String::new();
    for _ in 0..SEGMENTS {
        let from = rest.trim_start_matches('/');
        let (segment, after) = from.split_at(from.find('/').unwrap_or(from.len()));
        prefix.push('/');
        prefix.push_str(segment);
        rest = after;
    }
    (prefix, rest)
}

fn moved(place: &str) -> ApiResult<Response<ApiBody>> {
    let place = HeaderValue::from_str(place).map_err(|error| ApiError::bad_request(error.to_string()))?;
    let mut response = Response::new(ApiBody::full(Vec::new()));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, place);
    Ok(response)
}

/// The protocol of the upgrade, if the client requests one.
fn upgraded(headers: &HeaderMap) -> Option<&HeaderValue> {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asks = named.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asks)
}

/// The client's headers for the pod, without the client's credentials for this API.
fn forwarded(asked: &HeaderMap, upgrade: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = asked.clone();
    strip(&mut headers);
    headers.remove(header::AUTHORIZATION);
    // The whole body is available, whatever the client announced.
    headers.remove(header::EXPECT);
    headers.remove(header::CONTENT_LENGTH);
    let acting: Vec<HeaderName> = headers.keys().filter(|k| k.as_str().starts_with("impersonate-")).cloned().collect();
    for name in acting {
        headers.remove(name);
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    headers
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// A redirect within the pod, led through here (K8s apimachinery util/proxy/transport.go `rewriteURL`).
fn through(location: &str, host: &str, prefix: &str) -> Option<String> {
    let path = match location.split_once("://") {
        Some((_, after)) => {
            let (named, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            if named != host {
                return None;
            }
            path
        }
        None => location,
    };
    let rooted = path.starts_with('/') && !path.starts_with("//") && !path.starts_with(prefix);
    rooted.then(|| format!("{prefix}{path}"))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn page_without_room_is_passed_on_as_it_comes() {
        let body = async |most: usize| {
            let parts = ["<a href=", "/x", ">"].map(|part| Ok(Bytes::from(part)));
            let (mut left, mut asked) = (most, 0);
            let room = |bytes: usize| {
                asked += bytes;
                left.checked_sub(bytes).inspect(|rest| left = *rest).is_some()
            };
            let page = page(stream::iter(parts), room, |link| Some(format!("/p{link}"))).await;
            (page.collect().await.unwrap().to_bytes(), asked)
        };
        assert_eq!(body(100).await, (Bytes::from("<a href=/p/x>"), 11));
        assert_eq!(body(9).await, (Bytes::from("<a href=/x>"), 10), "what follows is read as it is sent");
        assert_eq!(body(0).await, (Bytes::from("<a href=/x>"), 8));
    }

    #[test]
    fn the_path_of_the_pod_is_what_follows() {
        let prefix = "/api/v1/namespaces/a/pods/http:p:80/proxy";
        for rest in ["", "/", "/a%2Fb/c/", "//x"] {
            assert_eq!(split(&format!("{prefix}{rest}")), (prefix.to_owned(), rest));
        }
        assert_eq!(split("//api/v1//namespaces/a/pods/p/proxy/x").1, "/x");
    }

    #[test]
    fn the_host_is_told_whatever_the_version() {
        let parts = |request: http::request::Builder| request.body(()).unwrap().into_parts().0;
        assert_eq!(host(&parts(Request::get("https://api:6443/x"))), "api:6443");
        assert_eq!(host(&parts(Request::get("/x").header("host", "api"))), "api");
        assert_eq!(host(&parts(Request::get("/x"))), "");
    }

    #[test]
    fn no_credentials_go_to_the_pod() {
        let pairs = [
            ("authorization", "Bearer t"),
            ("impersonate-user", "u"),
            ("impersonate-extra-a", "b"),
            ("connection", "x-own, Upgrade"),
            ("x-own", "1"),
            ("upgrade", "websocket"),
            ("accept", "text/plain"),
        ];
        let asked: HeaderMap =
            pairs.iter().map(|(k, v)| (k.parse::<HeaderName>().unwrap(), HeaderValue::from_static(v))).collect();
        let plain = forwarded(&asked, None);
        assert_eq!(plain.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        assert_eq!(forwarded(&asked, upgraded(&asked)).get("upgrade").unwrap(), "websocket");
    }

    #[test]
    fn redirects_stay_with_the_pod() {
        let prefix = "/api/v1/namespaces/a/pods/p/proxy";
        let led = |location: &str| through(location, "api:6443", prefix);
        assert_eq!(led("/x?y").as_deref(), Some("/api/v1/namespaces/a/pods/p/proxy/x?y"));
        assert_eq!(led("https://api:6443/x").as_deref(), Some("/api/v1/namespaces/a/pods/p/proxy/x"));
        for other in ["x", "https://elsewhere/x", "//elsewhere/x", "/api/v1/namespaces/a/pods/p/proxy/x"] {
            assert_eq!(led(other), None, "{other}");
        }
    }
}
