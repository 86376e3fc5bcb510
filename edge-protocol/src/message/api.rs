//! Requests of pods to the API, and the head of an answer: values, and what a request may hold.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum length of a path with its query, in bytes.
pub const MAX_API_PATH: usize = 8 << 10;

/// Maximum number of headers of a request.
pub const MAX_API_HEADERS: usize = 16;

/// Maximum length of all names and values of a request's headers, in bytes.
pub const MAX_API_HEADER_BYTES: usize = 16 << 10;

/// Maximum length of a request's body, in bytes: the API server's own limit (`MaxRequestBodyBytes` in
/// k8s.io/apiserver/pkg/server/config.go).
pub const MAX_API_BODY: usize = 3 << 20;

/// Headers of a request that are passed on. `Impersonate-*` is none of them.
const HEADERS: [&str; 5] = ["authorization", "accept", "accept-encoding", "content-type", "user-agent"];

/// First parts of a path that are passed on.
const ROOTS: [&str; 7] = ["/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz"];

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Head of a pod's request to the API.
///
/// The stream of a request carries records of [`channel`](crate::channel) in both directions:
///
/// | from | channel | data |
/// |---|---|---|
/// | edge | `STDIN` | the body, at most [`MAX_API_BODY`] bytes; with `has_body` only |
/// | edge | `CLOSE` | the body is complete: one byte, `STDIN`; with `has_body` only |
/// | bridge | `OPENED` | JSON of an [`ApiAnswer`], once, first |
/// | bridge | `STDOUT` | the answer's body |
/// | bridge | `STATUS` | empty: the answer is complete; else the reason why it ends here, as text |
///
/// After `STATUS` the bridge ends the stream without an error. An end before `OPENED` has an error: the request was not
/// answered. If the edge ends the stream, the bridge cancels the request.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiRequest {
    pub method: String,
    /// Path and query as the pod wrote them, percent-encoded.
    pub path: String,
    /// Names in lower case.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    #[serde(default)]
    pub has_body: bool,
}

/// Head of the API's answer to an [`ApiRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiAnswer {
    pub status: u16,
    /// Names in lower case.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
}

/// Reason why a request is not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiRequestError {
    #[error("method {0} is not passed on to the API")]
    Method(String),
    #[error("a path of {0} bytes is over the limit of {MAX_API_PATH}")]
    LongPath(usize),
    #[error("the path is none of the API's, or has characters that a path cannot have")]
    Path,
    #[error("{0} headers are over the limit of {MAX_API_HEADERS}")]
    ManyHeaders(usize),
    #[error("headers of {0} bytes are over the limit of {MAX_API_HEADER_BYTES}")]
    LongHeaders(usize),
    #[error("header {0} is not passed on to the API")]
    Header(String),
    #[error("header {0} has a value that a header cannot have")]
    Value(&'static str),
    #[error("header authorization comes twice")]
    TwoTokens,
}

impl ApiRequest {
    /// Returns the first value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(known, value)| (known == name).then_some(value.as_str()))
    }

    /// Checks that the request is one that travels. The node checks before it sends, the bridge when it receives.
    ///
    /// # Errors
    /// A field is over its limit, or has something that is not passed on.
    pub fn check(&self) -> Result<(), ApiRequestError> {
        if !METHODS.contains(&self.method.as_str()) {
            return Err(ApiRequestError::Method(self.method.chars().take(16).collect()));
        }
        check_path(&self.path)?;
        if self.headers.len() > MAX_API_HEADERS {
            return Err(ApiRequestError::ManyHeaders(self.headers.len()));
        }
        let length: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if length > MAX_API_HEADER_BYTES {
            return Err(ApiRequestError::LongHeaders(length));
        }
        for (name, value) in &self.headers {
            let known = HEADERS.into_iter().find(|known| known == name);
            let known = known.ok_or_else(|| ApiRequestError::Header(name.chars().take(64).collect()))?;
            if !value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
                return Err(ApiRequestError::Value(known));
            }
        }
        match self.headers.iter().filter(|(name, _)| name == "authorization").count() {
            0 | 1 => Ok(()),
            _ => Err(ApiRequestError::TwoTokens),
        }
    }
}

fn check_path(path: &str) -> Result<(), ApiRequestError> {
    if path.len() > MAX_API_PATH {
        return Err(ApiRequestError::LongPath(path.len()));
    }
    let plain = path.split_once('?').map_or(path, |(plain, _)| plain);
    let is_under = |root: &str| plain.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // A server may decode before it looks for such parts.
    let decoded = plain.to_ascii_lowercase().replace("%2f", "/").replace("%2e", ".");
    let climbs = decoded.split('/').any(|part| matches!(part, "." | ".."));
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if is_plain && !climbs && ROOTS.into_iter().any(is_under) { Ok(()) } else { Err(ApiRequestError::Path) }
}

/// Never shows the token: debug texts end up in logs.
impl fmt::Debug for ApiRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiRequest {{ method: {:?}, path: {:?}, .. }}", self.method, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> ApiRequest {
        ApiRequest { method: "GET".into(), path: path.into(), headers: Vec::new(), has_body: false }
    }

    fn with(headers: &[(&str, &str)]) -> Result<(), ApiRequestError> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ApiRequest { headers, ..get("/api") }.check()
    }

    #[test]
    fn paths_of_the_api_travel() {
        let long = format!("/api/{}", "x".repeat(MAX_API_PATH - 5));
        for path in
            ["/api", "/apis", "/api/v1/pods?watch=1", "/version", "/openapi/v3", "/readyz/etcd", "/apis/a..b", &long]
        {
            assert_eq!(get(path).check(), Ok(()), "{path}");
        }
    }

    #[test]
    fn other_paths_are_refused() {
        for path in
            ["", "/", "api", "/metrics", "/apix", "/logs", "/debug/pprof", "http://x/api", "/api/v1 x", "/api#x"]
        {
            assert_eq!(get(path).check(), Err(ApiRequestError::Path), "{path}");
        }
        for path in
            ["/api/../metrics", "/api/%2E%2e/metrics", "/api/..%2fmetrics", "/api/./v1", "/api/ä", "/api\r\nx:y"]
        {
            assert_eq!(get(path).check(), Err(ApiRequestError::Path), "{path}");
        }
        let long = format!("/api?{}", "x".repeat(MAX_API_PATH));
        assert_eq!(get(&long).check(), Err(ApiRequestError::LongPath(MAX_API_PATH + 5)));
    }

    #[test]
    fn only_known_headers_travel() {
        assert_eq!(with(&[("accept", "application/json;as=Table"), ("accept", "*/*"), ("user-agent", "")]), Ok(()));
        for name in ["impersonate-user", "Impersonate-User", "Authorization", "host", "upgrade", "x-remote-user", ""] {
            assert_eq!(with(&[(name, "x")]), Err(ApiRequestError::Header(name.into())));
        }
        assert_eq!(with(&[("accept", "x\r\nimpersonate-user: y")]), Err(ApiRequestError::Value("accept")));
        assert_eq!(
            with(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]),
            Err(ApiRequestError::TwoTokens)
        );
        let many = [("accept", "x"); MAX_API_HEADERS + 1];
        assert_eq!(with(&many), Err(ApiRequestError::ManyHeaders(many.len())));
        let long = "x".repeat(MAX_API_HEADER_BYTES);
        assert_eq!(with(&[("accept", &long)]), Err(ApiRequestError::LongHeaders(long.len() + 6)));
    }

    #[test]
    fn methods_that_change_the_connection_are_refused() {
        for method in ["CONNECT", "TRACE", "OPTIONS", "get", "GET /api HTTP/1.1\r\n", ""] {
            let request = ApiRequest { method: method.into(), ..get("/api") };
            assert!(matches!(request.check(), Err(ApiRequestError::Method(_))), "{method}");
        }
    }

    #[test]
    fn token_is_not_in_debug_text() {
        let headers = vec![("authorization".to_owned(), "Bearer secret".to_owned())];
        let request = ApiRequest { headers, ..get("/api") };
        assert!(!format!("{request:?}").contains("secret"));
    }
}
