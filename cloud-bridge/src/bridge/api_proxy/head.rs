//! Heads of requests of pods to the API and of its answers: the pod of a token, what the bridge refuses itself, and which
//! headers travel back. Pure.

use std::time::Duration;

use apimachinery::status::failure;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use edge_protocol::channel::{self, OPENED, STATUS, STDOUT};
use edge_protocol::message::{ApiAnswer, ApiRequest};
use http::{HeaderMap, Request, StatusCode};
use serde::Deserialize;
use serde_json::json;

/// Timeout for the head of an answer that does not follow: an API server itself gives up after 60 s.
const PATIENCE: Duration = Duration::from_secs(70);

/// Headers of an answer that travel to the pod.
const HEADERS: [&str; 12] = [
    "content-type",
    "content-encoding",
    "content-length",
    "cache-control",
    "etag",
    "last-modified",
    "location",
    "retry-after",
    "warning",
    "audit-id",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Maximum length of all headers of an answer, in bytes. Further ones are left out.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Subresources of a pod that change the protocol of the connection.
const UPGRADES: [&str; 3] = ["exec", "attach", "portforward"];

/// The pod that a token says it is bound to. The bridge does not verify the token: the API does.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bridge) struct PodClaim {
    pub(in crate::bridge) namespace: String,
    pub(in crate::bridge) name: String,
    pub(in crate::bridge) uid: String,
}

/// An answer of the bridge itself.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::bridge) struct Refusal {
    pub(in crate::bridge) code: u16,
    reason: &'static str,
    message: String,
    /// Seconds after which another attempt makes sense.
    retry_after: Option<u32>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    fn forbidden(why: &str) -> Self {
        Self::new(403, "Forbidden", why)
    }

    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    pub(super) fn too_large() -> Self {
        let limit = edge_protocol::message::MAX_API_BODY;
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// The body of the request does not come.
    pub(super) fn slow_body() -> Self {
        Self::new(408, "Timeout", "the body of the request took too long")
    }

    pub(in crate::bridge) fn busy(why: &str) -> Self {
        Self { retry_after: Some(1), ..Self::new(429, "TooManyRequests", why) }
    }

    fn upgrade() -> Self {
        Self::new(501, "NotImplemented", "exec, attach and port-forward do not go through the link of a node")
    }

    pub(in crate::bridge) fn unavailable(why: impl Into<String>) -> Self {
        Self { retry_after: Some(5), ..Self::new(503, "ServiceUnavailable", why) }
    }

    pub(super) fn late() -> Self {
        Self::new(504, "Timeout", "the API has not answered the bridge in time")
    }

    /// The whole answer, as records of the stream. `head`: without a body.
    pub(in crate::bridge) fn records(&self, head: bool) -> Vec<u8> {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend(self.retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string())));
        let mut records = opened(&ApiAnswer { status: self.code, headers });
        if !head {
            let status = failure(self.code, self.reason, &self.message);
            records.extend(channel::records(STDOUT, status.to_string().as_bytes()));
        }
        records.extend(channel::records(STATUS, b""));
        records
    }
}

/// The record of the head of an answer.
pub(super) fn opened(answer: &ApiAnswer) -> Vec<u8> {
    channel::records(OPENED, json!(answer).to_string().as_bytes())
}

#[derive(Deserialize)]
struct Claims {
    #[serde(rename = "kubernetes.io")]
    kubernetes: Private,
}

#[derive(Deserialize)]
struct Private {
    namespace: String,
    pod: Reference,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
    uid: String,
}

/// Returns the pod that the token of a request is bound to (K8s pkg/serviceaccount/claims.go has the claims).
///
/// # Errors
/// 401 without a bearer token, 403 for a token that names no pod, 501 for a request that changes the protocol.
pub(in crate::bridge) fn pod_of(request: &ApiRequest) -> Result<PodClaim, Refusal> {
    let token = request.header("authorization").and_then(bearer).ok_or_else(Refusal::unauthorized)?;
    let none =
        || Refusal::forbidden("the token is not bound to a pod: only tokens of a node's pods go through its link");
    let claim = claim(token).ok_or_else(none)?;
    if changes_protocol(&request.path) { Err(Refusal::upgrade()) } else { Ok(claim) }
}

/// The token of a header, in the only form that every API server reads in the same way. Kubernetes takes the second of
/// three words as the token and ignores the third, and after two spaces it sees no token
/// (k8s.io/apiserver/pkg/authentication/request/bearertoken/bearertoken.go).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let one_word = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && one_word).then_some(token)
}

fn claim(token: &str) -> Option<PodClaim> {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let Claims { kubernetes: Private { namespace, pod } } = serde_json::from_slice(&payload).ok()?;
    let named = [&namespace, &pod.name, &pod.uid].into_iter().all(|text| !text.is_empty());
    named.then_some(PodClaim { namespace, name: pod.name, uid: pod.uid })
}

fn changes_protocol(path: &str) -> bool {
    let plain = path.split_once('?').map_or(path, |(plain, _)| plain);
    let parts: Vec<&str> = plain.trim_matches('/').split('/').collect();
    matches!(parts[..], ["api", "v1", "namespaces", _, "pods", _, last] if UPGRADES.contains(&last))
}

/// Checks that a token's pod is one of the node. `held`: uid of the node's pod of that name. `complete`: whether the
/// node's list of pods is complete.
///
/// # Errors
/// 403 for a pod of another node and for a deleted one; 503 if the bridge does not know the node's pods yet.
pub(in crate::bridge) fn is_bound(claim: &PodClaim, held: Option<&str>, complete: bool) -> Result<(), Refusal> {
    match held {
        Some(uid) if uid == claim.uid => Ok(()),
        _ if complete => Err(Refusal::forbidden("the token is bound to a pod that is not on this node")),
        _ => Err(Refusal::unavailable("the bridge has not read the pods of this node yet")),
    }
}

/// Timeout for the head of the answer; none for a request that follows, which may be silent from its start.
pub(super) fn patience(request: &ApiRequest) -> Option<Duration> {
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    let follows = query.split('&').any(|pair| pair.starts_with("watch=") || pair.starts_with("follow="));
    (!follows || request.method != "GET").then_some(PATIENCE)
}

/// The request for the API: what the pod wrote, and nothing else.
///
/// # Errors
/// 400 for a path that HTTP does not have.
pub(super) fn request(asked: &ApiRequest, body: Bytes) -> Result<Request<Bytes>, Refusal> {
    let mut request = Request::builder().method(asked.method.as_str()).uri(asked.path.as_str());
    for (name, value) in &asked.headers {
        request = request.header(name, value);
    }
    request.body(body).map_err(|error| Refusal::bad(error.to_string()))
}

/// The head of an answer, with the headers that travel.
pub(super) fn answer(status: StatusCode, headers: &HeaderMap) -> ApiAnswer {
    let mut length = 0;
    let mut kept = Vec::new();
    for name in HEADERS {
        for value in headers.get_all(name) {
            let Ok(value) = value.to_str() else { continue };
            length += name.len() + value.len();
            if length <= MAX_HEADER_BYTES {
                kept.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    ApiAnswer { status: status.as_u16(), headers: kept }
}

#[cfg(test)]
mod tests {
    use edge_protocol::channel::Records;
    use serde_json::Value;

    use super::*;

    fn asked(path: &str, authorization: &str) -> ApiRequest {
        let headers = Some(authorization).filter(|text| !text.is_empty());
        let headers = headers.map(|text| ("authorization".to_owned(), text.to_owned())).into_iter().collect();
        ApiRequest { method: "GET".into(), path: path.into(), headers, has_body: false }
    }

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn of_pod() -> Value {
        let pod = json!({"name": "p", "uid": "u"});
        json!({"exp": 1, "kubernetes.io": {"namespace": "n", "pod": pod, "serviceaccount": {"name": "s", "uid": "x"}}})
    }

    fn code(authorization: &str) -> u16 {
        pod_of(&asked("/api/v1/pods", authorization)).map_or_else(|refusal| refusal.code, |_| 200)
    }

    #[test]
    fn l1_only_tokens_of_pods_go_on() {
        let good = token(&of_pod());
        let claim = pod_of(&asked("/api", &format!("bearer {good}"))).unwrap();
        assert_eq!(claim, PodClaim { namespace: "n".into(), name: "p".into(), uid: "u".into() });
        for none in ["", "Bearer", "Bearer ", "Basic YTpi", good.as_str()] {
            assert_eq!(code(none), 401, "{none}");
        }
        let mut of_account = of_pod();
        of_account["kubernetes.io"].as_object_mut().unwrap().remove("pod");
        let mut nameless = of_pod();
        nameless["kubernetes.io"]["pod"]["uid"] = "".into();
        let mut odd = of_pod();
        odd["kubernetes.io"]["pod"] = json!(["p", "u", "x"]);
        for claims in [of_account, nameless, odd, json!({"sub": "admin"}), json!([]), json!("x")] {
            assert_eq!(code(&format!("Bearer {}", token(&claims))), 403, "{claims}");
        }
        for garbage in ["x", "a.b", "a.b.c", "..", "a.!.c", &format!("{good}.x"), "e30.e30.e30.e30"] {
            assert_eq!(code(&format!("Bearer {garbage}")), 403, "{garbage}");
        }
    }

    #[test]
    fn l1_token_that_is_checked_is_the_one_that_the_api_reads() {
        let good = token(&of_pod());
        assert_eq!(code(&format!("Bearer {good}")), 200);
        // Kubernetes reads `stolen`, and nothing after two spaces.
        for other in ["Bearer stolen ", "Bearer  ", " Bearer ", "Bearer \t", "Bearer\t"] {
            assert_eq!(code(&format!("{other}{good}")), 401, "{other:?}");
        }
        assert_eq!(code(&format!("Bearer {good} stolen")), 401);
    }

    #[test]
    fn l1_pod_must_be_on_the_node() {
        let claim = PodClaim { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        let code = |held, complete| is_bound(&claim, held, complete).map_or_else(|refusal| refusal.code, |()| 200);
        assert_eq!((code(Some("u"), true), code(Some("u"), false)), (200, 200));
        assert_eq!(code(None, true), 403, "another node's, or deleted");
        assert_eq!(code(Some("v"), true), 403, "deleted, and another one has its name");
        assert_eq!((code(None, false), code(Some("v"), false)), (503, 503));
    }

    #[test]
    fn requests_that_change_the_protocol_are_refused() {
        let authorization = format!("Bearer {}", token(&of_pod()));
        let code = |path: &str| pod_of(&asked(path, &authorization)).map_or_else(|refusal| refusal.code, |_| 200);
        for last in UPGRADES {
            assert_eq!(code(&format!("/api/v1/namespaces/n/pods/p/{last}?command=sh")), 501);
        }
        assert_eq!(code("/api/v1/namespaces/exec/pods/exec/log"), 200);
        assert_eq!(code("/api/v1/namespaces/exec/pods/exec"), 200);
    }

    #[test]
    fn request_is_what_the_pod_wrote() {
        let made = request(&asked("/api/v1/pods?limit=5", "Bearer x"), Bytes::from("y")).unwrap();
        assert_eq!((made.method(), made.uri().to_string().as_str()), (&http::Method::GET, "/api/v1/pods?limit=5"));
        assert_eq!(made.headers().len(), 1);
        assert_eq!(made.headers()["authorization"], "Bearer x");
        assert_eq!(made.body(), "y");
        assert_eq!(request(&asked("/api/<", ""), Bytes::new()).unwrap_err().code, 400);
    }

    #[test]
    fn requests_that_follow_may_be_silent() {
        let waits = |path: &str| patience(&asked(path, "")).is_some();
        assert!(waits("/api/v1/pods") && waits("/api/v1/namespaces/watch=/pods?limit=1"));
        let write = ApiRequest { method: "POST".into(), ..asked("/api/v1/pods?watch=1", "") };
        assert!(patience(&write).is_some(), "only what reads follows");
        assert!(!waits("/api/v1/pods?limit=1&watch=true") && !waits("/api/v1/namespaces/n/pods/p/log?follow=1"));
    }

    #[test]
    fn answer_keeps_known_headers() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("content-type", "a"), ("set-cookie", "b"), ("connection", "c"), ("warning", "d")] {
            headers.append(name, value.parse().unwrap());
        }
        headers.append("warning", "e".parse().unwrap());
        let kept = answer(StatusCode::OK, &headers);
        let kept: Vec<_> = kept.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(kept, [("content-type", "a"), ("warning", "d"), ("warning", "e")]);
        headers.insert("etag", "x".repeat(MAX_HEADER_BYTES).parse().unwrap());
        let length = |answer: &ApiAnswer| answer.headers.iter().map(|(n, v)| n.len() + v.len()).sum::<usize>();
        assert!(length(&answer(StatusCode::OK, &headers)) <= MAX_HEADER_BYTES);
    }

    #[test]
    fn refusal_is_a_whole_answer() {
        let read = |bytes: &[u8]| {
            let mut records = Records::default();
            records.push(bytes);
            let next = std::iter::from_fn(move || records.next_record().unwrap());
            next.map(|record| (record.channel, record.data)).collect::<Vec<_>>()
        };
        let all = read(&Refusal::busy("too many").records(false));
        assert_eq!(all.iter().map(|(channel, _)| *channel).collect::<Vec<_>>(), [OPENED, STDOUT, STATUS]);
        let head: ApiAnswer = serde_json::from_slice(&all[0].1).unwrap();
        assert_eq!(head.status, 429);
        assert!(head.headers.contains(&("retry-after".to_owned(), "1".to_owned())));
        let status: Value = serde_json::from_slice(&all[1].1).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(429)));
        assert!(all[2].1.is_empty());
        assert_eq!(read(&Refusal::late().records(true)).len(), 2);
    }
}
