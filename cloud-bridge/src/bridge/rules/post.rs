//! One HTTP request to the target of a rule: certificates are verified, and redirects are not followed. For a message,
//! little more than the code of the answer is used. A slow target delays only requests to the same target.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use edge_protocol::message::{CallFailure, CallResult, MAX_BODY, RuleMessage};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use sampan_trust::Verifier;
use serde::de::IgnoredAny;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::pki::clock;

/// Timeout for an answer, including everything before it.
const PATIENCE: Duration = Duration::from_secs(15);
/// Limit of concurrent requests to one host and port.
const AT_ONCE: usize = 64;
/// Maximum number of idle connections to one host and port, and their timeout.
const IDLE: (usize, Duration) = (4, Duration::from_secs(60));

const MESSAGE_ID: HeaderName = HeaderName::from_static("x-sampan-message-id");
const NODE: HeaderName = HeaderName::from_static("x-sampan-node");
const TOPIC: HeaderName = HeaderName::from_static("x-sampan-topic");
const TIME: HeaderName = HeaderName::from_static("x-sampan-time");
/// draft-ietf-httpapi-idempotency-key-header.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Result of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Posted {
    Delivered,
    /// The target refuses it permanently.
    Refused(String),
    /// A retry may succeed.
    Trouble(String),
}

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends requests. Cheap until the first one.
pub(in crate::bridge) struct Poster {
    authorities: Vec<CertificateDer<'static>>,
    client: Mutex<Option<Http>>,
    hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Poster {
    /// `authorities`: trusted in addition to the system's.
    pub(in crate::bridge) fn new(authorities: &[CertificateDer<'static>]) -> Self {
        Self { authorities: authorities.to_vec(), client: Mutex::default(), hosts: Mutex::default() }
    }

    /// Sends a message of a node to a target.
    pub(super) async fn post(&self, url: &Uri, node: &str, message: &RuleMessage) -> Posted {
        let Some(request) = request(url, node, message) else {
            return Posted::Refused("its topic or its id is nothing that HTTP can say".to_owned());
        };
        let http = match self.http() {
            Ok(http) => http,
            Err(why) => return Posted::Trouble(why),
        };
        let answered = async {
            // Held until the connection is returned: a slow target keeps its permit.
            let _turn = self.turn(url).await;
            http.request(request).await
        };
        match timeout(PATIENCE, answered).await {
            Err(_) => Posted::Trouble("no answer in time".to_owned()),
            Ok(Err(error)) => Posted::Trouble(causes(&error)),
            Ok(Ok(answer)) => judge(&answer),
        }
    }

    /// Sends a request of a program on a node, and returns the code and body of the answer.
    pub(super) async fn ask(&self, url: &Uri, node: &str, body: Vec<u8>) -> CallResult {
        let failed = |failure, why: String| CallResult::Failed { failure, why };
        let Some(request) = asked(url, node, body) else {
            return failed(CallFailure::Refused, "the node's name is nothing that HTTP can say".to_owned());
        };
        let http = match self.http() {
            Ok(http) => http,
            Err(why) => return failed(CallFailure::Unavailable, why),
        };
        let answered = async {
            let _turn = self.turn(url).await;
            let answer = match http.request(request).await {
                Ok(answer) => answer,
                Err(error) if error.is_connect() => return failed(CallFailure::Unreachable, causes(&error)),
                Err(error) => return failed(CallFailure::Broken, causes(&error)),
            };
            let status = answer.status().as_u16();
            match Limited::new(answer.into_body(), MAX_BODY).collect().await {
                Ok(body) => CallResult::Http { status, headers: Vec::new(), body: body.to_bytes().to_vec() },
                Err(error) => {
                    let long = error.is::<LengthLimitError>();
                    let why = if long { format!("it has more than {MAX_BODY} bytes") } else { causes(&*error) };
                    failed(CallFailure::Broken, format!("the target answers {status}, and of its body: {why}"))
                }
            }
        };
        let late =
            || failed(CallFailure::Timeout, "the target does not answer in time: it may have been done".to_owned());
        timeout(PATIENCE, answered).await.unwrap_or_else(|_| late())
    }

    fn http(&self) -> Result<Http, String> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        found.errors.iter().for_each(|error| log::warn!("certificates that the system believes: {error}"));
        roots.add_parsable_certificates(found.certs.into_iter().chain(self.authorities.iter().cloned()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock::Floored));
        let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let config = match self.authorities.as_slice() {
            [] => config.with_root_certificates(roots),
            own => {
                // `dangerous` is rustls' name for a custom verifier.
                let verifier = Verifier::new(provider, roots, own.to_vec()).map_err(|error| error.to_string())?;
                config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let config = config.with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config);
        let made = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE.0)
            .pool_idle_timeout(IDLE.1)
            .build(connector.https_or_http().enable_http1().build());
        Ok(client.insert(made).clone())
    }

    async fn turn(&self, url: &Uri) -> Option<OwnedSemaphorePermit> {
        let host = url.authority().map(ToString::to_string).unwrap_or_default();
        let semaphore = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            hosts.retain(|_, semaphore| semaphore.strong_count() > 0);
            let present = hosts.get(&host).and_then(Weak::upgrade);
            present.unwrap_or_else(|| {
                let made = Arc::new(Semaphore::new(AT_ONCE));
                hosts.insert(host, Arc::downgrade(&made));
                made
            })
        };
        // The semaphore is never closed.
        semaphore.acquire_owned().await.ok()
    }
}

fn request(url: &Uri, node: &str, message: &RuleMessage) -> Option<Request<Full<Bytes>>> {
    let text = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    let mut request = Request::post(url.clone()).body(Full::from(message.payload.clone())).ok()?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(&message.payload)));
    headers.insert(MESSAGE_ID, text(&message.key)?);
    headers.insert(IDEMPOTENCY_KEY, text(&format!("\"{}\"", message.key))?);
    headers.insert(NODE, text(node)?);
    headers.insert(TOPIC, text(&message.topic)?);
    headers.insert(TIME, HeaderValue::from(message.at_ms));
    Some(request)
}

fn asked(url: &Uri, node: &str, body: Vec<u8>) -> Option<Request<Full<Bytes>>> {
    let kind = HeaderValue::from_static(media_type(&body));
    let mut request = Request::post(url.clone()).body(Full::from(body)).ok()?;
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    request.headers_mut().insert(NODE, HeaderValue::from_str(node).ok()?);
    Some(request)
}

fn media_type(payload: &[u8]) -> &'static str {
    match std::str::from_utf8(payload) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => "application/json",
        Ok(_) => "text/plain; charset=utf-8",
        Err(_) => "application/octet-stream",
    }
}

fn judge(answer: &Response<Incoming>) -> Posted {
    let status = answer.status();
    let why = || format!("the target answers {status}");
    match status {
        _ if status.is_success() => Posted::Delivered,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => Posted::Trouble(why()),
        _ if status.is_redirection() => Posted::Refused(format!("{}, and redirects are not followed", why())),
        _ if status.is_client_error() => Posted::Refused(why()),
        _ => Posted::Trouble(why()),
    }
}

/// An error with its causes: the outermost says least.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_whose_it_is_and_which() {
        let message = RuleMessage { key: "k-1".into(), topic: "ns/t".into(), at_ms: 5, ..RuleMessage::default() };
        let url: Uri = "http://a/b?c".parse().unwrap();
        let made = request(&url, "n", &message).unwrap();
        let header = |name: &str| made.headers()[name].to_str().unwrap().to_owned();
        assert_eq!((made.uri(), made.method().as_str()), (&url, "POST"));
        assert_eq!((header("x-sampan-message-id"), header("idempotency-key")), ("k-1".into(), "\"k-1\"".into()));
        assert_eq!((header("x-sampan-node"), header("x-sampan-topic")), ("n".into(), "ns/t".into()));
        assert!(request(&url, "n", &RuleMessage { topic: "a\nb: c".into(), ..message }).is_none());
        assert_eq!(media_type(b"{\"a\":1}"), "application/json");
        assert_eq!(media_type(b"21.5 C"), "text/plain; charset=utf-8");
        assert_eq!(media_type(&[0xff]), "application/octet-stream");
    }
}
