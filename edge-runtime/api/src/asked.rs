//! What a request asks for: whether it is a watch, whether its answer may be kept, and under which key. No I/O.

use edge_protocol::message::ApiRequest;

use crate::pods::{Digest, sha256};

/// Parameters that change how an answer is delivered, and not what is asked for.
const NOT_IN_KEY: [&str; 8] = [
    "allowWatchBookmarks",
    "continue",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// Subresources whose answers are a moment's, or those of a program behind the API.
const NOT_KEPT: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// GET without a watch, whose answer may be kept.
    pub(crate) is_kept: bool,
    pub(crate) is_watch: bool,
    /// The initial state as events of a watch.
    pub(crate) wants_initial_events: bool,
    /// Answers may hold Secrets.
    pub(crate) is_secret: bool,
    /// The answer may be one page of several.
    pub(crate) is_paged: bool,
    /// Token of the page; empty for the first.
    pub(crate) page: String,
    /// Seconds after which a watch ends.
    pub(crate) timeout_s: Option<u64>,
    what: String,
}

impl Asked {
    pub(crate) fn of(request: &ApiRequest) -> Self {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let pairs: Vec<(String, &str)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(key, value)| (decoded(key), value))
            .collect();
        let value = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let raw: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // The API decodes before it looks: an encoded `secrets` is one, too.
        let plain = decoded(path);
        let parts: Vec<&str> = plain.split('/').filter(|part| !part.is_empty()).collect();
        let is_get = request.method == "GET";
        // The old form: /api/v1/watch/..., /apis/GROUP/VERSION/watch/....
        let old_watch = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest.first() == Some(&"watch"),
            _ => false,
        };
        let is_watch = is_get && (old_watch || value("watch").is_some_and(is_true));
        let of_api = parts.first().is_some_and(|root| matches!(*root, "api" | "apis" | "openapi" | "version"));
        let is_kept = is_get
            && !is_watch
            && of_api
            && !value("follow").is_some_and(is_true)
            && !parts.iter().skip(2).any(|part| NOT_KEPT.contains(part));
        let mut kept: Vec<_> = pairs.iter().filter(|(key, _)| !NOT_IN_KEY.contains(&key.as_str())).collect();
        kept.sort();
        // Quoted: a decoded key may hold any character.
        let kept: String = kept.iter().map(|(key, value)| format!("&{key:?}={value}")).collect();
        let header = |name: &str| request.header(name).unwrap_or_default().replace(' ', "");
        let gzip = header("accept-encoding").split(',').any(|one| one == "gzip" || one.starts_with("gzip;"));
        Self {
            is_kept,
            is_watch,
            wants_initial_events: is_watch && value("sendInitialEvents").is_some_and(is_true),
            is_secret: parts.contains(&"secrets"),
            is_paged: value("limit").is_some_and(|limit| !matches!(limit, "" | "0")) || value("continue").is_some(),
            page: value("continue").map(decoded).unwrap_or_default(),
            timeout_s: value("timeoutSeconds").and_then(|seconds| seconds.parse().ok()),
            what: format!("/{}?{kept}\n{}\n{gzip}", raw.join("/"), header("accept")),
        }
    }

    /// The key of the answer for a ServiceAccount: the same for a list, for its pages and for its watch.
    pub(crate) fn key(&self, account: &str) -> Digest {
        sha256(format!("{account}\n{}", self.what).as_bytes())
    }
}

/// As the API reads it (`Convert_Slice_string_To_bool` in k8s.io/apimachinery/pkg/runtime/conversion.go).
fn is_true(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
}

/// A value without percent-encoding.
fn decoded(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(*first),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The list that belongs to a watch: the same path and headers, without the parameters of a watch.
pub(crate) fn list_of(watch: &ApiRequest) -> ApiRequest {
    let (path, query) = watch.path.split_once('?').unwrap_or((&watch.path, ""));
    let of_list =
        |pair: &&str| !NOT_IN_KEY.contains(&decoded(pair.split_once('=').map_or(*pair, |(key, _)| key)).as_str());
    let query: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).filter(of_list).collect();
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
    ApiRequest { path, ..watch.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> ApiRequest {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ApiRequest { method: method.into(), path: path.into(), headers, has_body: false }
    }

    fn get(path: &str) -> Asked {
        Asked::of(&request("GET", path, &[]))
    }

    #[test]
    fn delivery_does_not_change_the_key() {
        let key = get("/api/v1/pods?labelSelector=a&fieldSelector=b").key("ns/sa");
        for same in [
            "/api/v1/pods?fieldSelector=b&labelSelector=a",
            "/api/v1/pods?limit=500&labelSelector=a&fieldSelector=b&resourceVersion=0&timeoutSeconds=7",
            "/api/v1/pods?labelSelector=a&fieldSelector=b&continue=x",
            "/api/v1/pods?labelSelector=a&watch=1&fieldSelector=b&allowWatchBookmarks=true",
            "//api/v1/pods/?labelSelector=a&&fieldSelector=b",
        ] {
            assert_eq!(get(same).key("ns/sa"), key, "{same}");
        }
        for other in ["/api/v1/pods", "/api/v1/pods?labelSelector=a", "/api/v1/pod?labelSelector=a&fieldSelector=b"] {
            assert_ne!(get(other).key("ns/sa"), key, "{other}");
        }
    }

    #[test]
    fn key_is_of_one_account_and_one_form() {
        let asked = |headers: &[(&str, &str)]| Asked::of(&request("GET", "/api/v1/pods", headers));
        let json = asked(&[("accept", "application/json")]);
        assert_ne!(json.key("ns/a"), json.key("ns/b"));
        assert_ne!(json.key("ns/a"), asked(&[("accept", "application/json;as=Table")]).key("ns/a"));
        assert_ne!(json.key("ns/a"), asked(&[("accept", "application/json"), ("accept-encoding", "gzip")]).key("ns/a"));
        assert_eq!(json.key("ns/a"), asked(&[("accept", "application/json"), ("user-agent", "x")]).key("ns/a"));
    }

    #[test]
    fn reads_are_kept_and_moments_are_not() {
        for path in
            ["/api", "/api/v1/pods", "/apis", "/apis/apps/v1", "/openapi/v3", "/version", "/api/v1/pods?watch=0"]
        {
            assert!(get(path).is_kept, "{path}");
        }
        for path in [
            "/healthz",
            "/readyz/etcd",
            "/livez",
            "/api/v1/pods?watch=true",
            "/api/v1/watch/pods",
            "/api/v1/namespaces/a/pods/b/log",
            "/api/v1/namespaces/a/services/b/proxy/x",
        ] {
            assert!(!get(path).is_kept, "{path}");
        }
        assert!(!Asked::of(&request("POST", "/api/v1/pods", &[])).is_kept);
        assert!(!Asked::of(&request("HEAD", "/api/v1/pods", &[])).is_kept);
    }

    #[test]
    fn watches_are_recognized_as_the_api_does() {
        for path in ["/api/v1/pods?watch=1", "/api/v1/pods?watch", "/api/v1/pods?watch=True", "/apis/a/v1/watch/b"] {
            assert!(get(path).is_watch, "{path}");
        }
        for path in ["/api/v1/pods?watch=0", "/api/v1/pods?watch=FALSE", "/api/v1/pods", "/api/v1/namespaces/watch"] {
            assert!(!get(path).is_watch, "{path}");
        }
        let asked = get("/api/v1/pods?watch=1&sendInitialEvents=true&timeoutSeconds=7");
        assert!(asked.wants_initial_events);
        assert_eq!(asked.timeout_s, Some(7));
    }

    #[test]
    fn pages_and_secrets_are_recognized() {
        assert!(get("/api/v1/pods?limit=5").is_paged && !get("/api/v1/pods?limit=0").is_paged);
        let asked = get("/api/v1/namespaces/a/secrets?continue=a%3D%3d+b%");
        assert!(asked.is_paged && asked.is_secret);
        assert_eq!(asked.page, "a== b%");
    }

    #[test]
    fn encoded_request_is_what_the_api_takes_it_for() {
        assert!(get("/api/v1/namespaces/a/secret%73").is_secret);
        assert!(get("/api/v1/namespaces/a/secrets%2Fb").is_secret);
        assert!(!get("/api/v1/namespaces/a/pods/b/lo%67").is_kept);
        assert!(get("/api/v1/pods?%77atch=1").is_watch && !get("/api/v1/pods?%77atch=1").is_kept);
        assert!(get("/api/v1/pods?l%69mit=1").is_paged);
        assert_ne!(get("/api/v1/pods?a%26b=1").key("a"), get("/api/v1/pods?a&b=1").key("a"));
        assert_eq!(list_of(&request("GET", "/api/v1/pods?%77atch=1&a=b", &[])).path, "/api/v1/pods?a=b");
    }

    #[test]
    fn list_of_a_watch_has_its_key() {
        let watch = request("GET", "/api/v1/pods?watch=1&labelSelector=a&resourceVersion=5", &[("accept", "a")]);
        let list = list_of(&watch);
        assert_eq!(list.path, "/api/v1/pods?labelSelector=a");
        assert_eq!(Asked::of(&list).key("a"), Asked::of(&watch).key("a"));
        assert!(Asked::of(&list).is_kept);
    }
}
