//! What of a request is passed on: the token, a few headers, paths of the API. No I/O.

use edge_protocol::message::{ApiRequest, ApiRequestError, MAX_API_BODY};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, UPGRADE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};

use super::refusal::Refusal;

/// Headers that are passed on.
const HEADERS: [&str; 5] = ["authorization", "accept", "accept-encoding", "content-type", "user-agent"];

/// The token, as the API reads it (k8s.io/apiserver/pkg/authentication/request/bearertoken).
pub(super) fn token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (one, more) = (all.next()?, all.next());
    let (kind, token) = one.to_str().ok()?.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (more.is_none() && kind.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The request as it is passed on.
pub(super) fn request(head: &Parts, has_body: bool) -> Result<ApiRequest, Refusal> {
    if head.headers.contains_key(UPGRADE) || head.method == Method::CONNECT {
        return Err(Refusal::upgrade());
    }
    // Left out silently, the request would have other rights than its sender means.
    if head.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(Refusal::impersonates());
    }
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_API_BODY) {
        return Err(Refusal::large_body());
    }
    let mut headers = Vec::new();
    for name in HEADERS {
        for value in head.headers.get_all(name) {
            let value = value.to_str().map_err(|_| Refusal::bad(&format!("header {name} is not ASCII")))?;
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let request = ApiRequest { method: head.method.as_str().to_owned(), path, headers, has_body };
    match request.check() {
        Ok(()) => Ok(request),
        Err(ApiRequestError::Path) => Err(Refusal::no_path()),
        Err(ApiRequestError::Method(_)) => Err(Refusal::method()),
        Err(other) => Err(Refusal::bad(&other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn passes(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<ApiRequest, u16> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        super::request(&head, false).map_err(|refusal| refusal.code())
    }

    #[test]
    fn few_headers_are_passed_on() {
        let sent = [
            ("host", "kubernetes"),
            ("accept", "application/json"),
            ("Authorization", "Bearer x"),
            ("cookie", "a"),
            ("x-remote-user", "admin"),
            ("accept", "*/*"),
            ("forwarded", "for=1"),
        ];
        let passed = passes("GET", "/api/v1/pods?watch=1", &sent).expect("is passed on");
        let names: Vec<_> = passed.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(names, [("authorization", "Bearer x"), ("accept", "application/json"), ("accept", "*/*")]);
        assert_eq!((passed.method.as_str(), passed.path.as_str()), ("GET", "/api/v1/pods?watch=1"));
    }

    #[test]
    fn other_requests_are_refused() {
        assert_eq!(passes("GET", "/metrics", &[]), Err(404));
        assert_eq!(passes("GET", "/api/../metrics", &[]), Err(404));
        assert_eq!(passes("OPTIONS", "/api", &[]), Err(405));
        assert_eq!(passes("GET", "/api", &[("impersonate-user", "admin")]), Err(403));
        assert_eq!(passes("GET", "/api", &[("Impersonate-Extra-Scopes", "a")]), Err(403));
        assert_eq!(passes("POST", "/api/v1/namespaces/a/pods/b/exec", &[("upgrade", "websocket")]), Err(501));
        assert_eq!(passes("POST", "/api/v1/pods", &[("content-length", "3145729")]), Err(413));
        assert_eq!(passes("GET", &format!("/api?{}", "x".repeat(9_000)), &[]), Err(400));
    }

    #[test]
    fn token_is_the_only_one() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().expect("a value"));
            }
            token(&headers).map(str::to_owned)
        };
        assert_eq!(of(&["Bearer a.b.c"]).as_deref(), Some("a.b.c"));
        assert_eq!(of(&["bearer a.b.c"]).as_deref(), Some("a.b.c"));
        for none in [&[][..], &["Bearer"], &["Bearer "], &["Basic x"], &["a.b.c"], &["Bearer a", "Bearer b"]] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
