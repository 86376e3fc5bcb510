//! Kubelet requests for nodes that are connected to another bridge: forwarded to that bridge, which answers or says why not, and
//! never forwards them again. The caller has been authenticated and authorized here; this bridge proves itself by a certificate
//! ([`replica`]), and the other one by a server certificate of the same authority, which only bridges get.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use apimachinery::flow::Flow;
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kubelet_api::backend::{BackendError, LogOptions};
use kubelet_api::request::KubeletRequest;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use socket2::TcpKeepalive;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::body::{Body, full};
use super::count::{ALL, Count, EACH, Place};
use super::{pipe, replica};
use crate::accept::client::held;
use crate::bridge::counters::{self, Present};
use crate::pki::authority::Authority;
use crate::pki::{PkiError, clock};

/// Time for which the other bridge may take nothing of what is sent to it, or answer no probe of its idle connection
/// (tcp(7), TCP_USER_TIMEOUT). Its node may be as slow.
const UNREAD: Duration = Duration::from_secs(120);
/// Idle time before probes of a connection, and their interval.
const PROBE: Duration = Duration::from_secs(15);
/// Time for an upgraded connection after one side has closed.
const ENDING: Duration = Duration::from_secs(10);
/// Limits of what is read ahead, and of unsent bytes in TLS, for each request.
const BUFFERS: (usize, usize) = (32 << 10, 16 << 10);

/// Timeouts for the other bridge.
#[derive(Clone, Copy)]
struct Patience {
    /// Time to connect, TLS included.
    dial: Duration,
    /// Time to the head of an answer.
    head: Duration,
}

/// The other bridge gives its node 30 s for an answer.
const PATIENCE: Patience = Patience { dial: Duration::from_secs(10), head: Duration::from_secs(60) };

/// Body of a forwarded request, as it comes from the caller.
type Asking = UnsyncBoxBody<Bytes, hyper::Error>;

/// What a request counts for, and how long the other bridge has for the head of its answer.
#[derive(Clone, Copy)]
struct Terms<'a> {
    namespace: Option<&'a str>,
    head: Option<Duration>,
}

/// Client for the other bridges of the cluster.
pub struct Forwarder {
    patience: Patience,
    authority: Arc<Authority>,
    tls: Mutex<Option<(SystemTime, TlsConnector)>>,
    count: Arc<Count>,
}

impl Forwarder {
    /// Opens no connection yet. The authority signs this bridge's certificate, and verifies those of other bridges.
    pub fn new(authority: Arc<Authority>) -> Arc<Self> {
        Arc::new(Self { patience: PATIENCE, authority, tls: Mutex::default(), count: Arc::default() })
    }

    /// Asks the bridge at `place` (`IP:PORT`), and returns its answer. A request that it upgrades continues in a task of its own.
    ///
    /// # Errors
    /// Too many requests are forwarded, or that bridge cannot be reached or does not answer in time.
    pub(super) async fn forward(
        &self,
        node: &str,
        place: &str,
        asked: &KubeletRequest,
        parts: &Parts,
    ) -> Result<Response<Body>, BackendError> {
        let terms = Terms { namespace: namespace(asked), head: is_answered_soon(asked).then_some(self.patience.head) };
        let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
        self.pass_on(node, place, terms, parts, body).await
    }

    /// Asks the bridge at `place` for a call of a CSI driver's controller, whose message is the body. It counts for its
    /// client like requests about pods do for their namespace.
    ///
    /// # Errors
    /// Same as [`Forwarder::forward`].
    pub(crate) async fn forward_call(
        &self,
        (node, place): (&str, &str),
        (flow, head): (&Flow, Duration),
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Body>, BackendError> {
        let terms = Terms { namespace: flow.name().map(|name| &**name), head: Some(head) };
        self.pass_on(node, place, terms, parts, body.boxed_unsync()).await
    }

    async fn pass_on(
        &self,
        node: &str,
        place: &str,
        terms: Terms<'_>,
        parts: &Parts,
        body: Asking,
    ) -> Result<Response<Body>, BackendError> {
        counters::KUBELET_FORWARDED.one();
        let answered = self.ask(node, place, terms, parts, body).await;
        if answered.is_err() {
            counters::KUBELET_UNANSWERED.one();
        }
        answered
    }

    async fn ask(
        &self,
        node: &str,
        place: &str,
        terms: Terms<'_>,
        parts: &Parts,
        body: Asking,
    ) -> Result<Response<Body>, BackendError> {
        let taken = self.count.take(node, terms.namespace).ok_or_else(|| {
            BackendError::Busy(format!(
                "too many requests are forwarded to other bridges ({EACH} for one node, {ALL} in all, and for one namespace no more than \
                 are free); close some, or try again later"
            ))
        })?;
        let counted = (taken, counters::KUBELET_FORWARDED_OPEN.enter());
        let problem = |why: String| {
            BackendError::Unavailable(format!("node {node} is connected to the bridge at {place}: {why}"))
        };
        let made = request(node, place, parts, body).ok_or_else(|| problem("this is not an address".to_owned()))?;
        let tls = self.tls().map_err(|error| problem(error.to_string()))?;
        let late = |what: &str, limit: Duration| problem(format!("{what} within {} s", limit.as_secs()));
        let dial_within = self.patience.dial;
        let dialled = timeout(dial_within, dial(place, &tls)).await;
        let stream = dialled.map_err(|_| late("it cannot be reached", dial_within))?;
        let stream = stream.map_err(|error| problem(format!("it cannot be reached: {error}")))?;
        let mut builder = http1::Builder::new();
        let spoken = builder.max_buf_size(BUFFERS.0).handshake::<_, Asking>(TokioIo::new(stream)).await;
        let (mut sender, connection) = spoken.map_err(|error| problem(error.to_string()))?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                log::debug!("connection to another bridge: {error}");
            }
        });
        let guard = (counted, Ending(task.abort_handle()));
        let sent = sender.send_request(made);
        let sent = match terms.head {
            Some(head) => timeout(head, sent).await.map_err(|_| late("it does not answer", head))?,
            None => sent.await,
        };
        let mut answer = sent.map_err(|error| problem(format!("it broke off: {error}")))?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
                return Err(problem("it switches protocols, unasked".to_owned()));
            };
            tokio::spawn(join(client, hyper::upgrade::on(&mut answer), guard));
            let (head, _) = answer.into_parts();
            return Ok(switching(&head.headers));
        }
        Ok(passed_back(answer, guard))
    }

    /// The client's settings, with a certificate that is renewed before it ends.
    fn tls(&self) -> Result<TlsConnector, PkiError> {
        let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        if let Some((_, tls)) = tls.as_ref().filter(|(made, _)| clock::is_fresh(*made, now)) {
            return Ok(tls.clone());
        }
        let made = TlsConnector::from(Arc::new(config(&self.authority)?));
        *tls = Some((now, made.clone()));
        Ok(made)
    }
}

/// Ends the task of a connection.
struct Ending(AbortHandle);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is kept until the request ends.
type Guard = ((Place, Present), Ending);

fn config(authority: &Authority) -> Result<ClientConfig, PkiError> {
    let mut roots = RootCertStore::empty();
    for one in authority.trusted() {
        roots.add(one)?;
    }
    let own = replica::sign(authority)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(clock::Floored));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    Ok(config.with_client_auth_cert(vec![own.certificate], own.key)?)
}

async fn dial(place: &str, tls: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let address: std::net::SocketAddr = place.parse().map_err(std::io::Error::other)?;
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let options = socket2::SockRef::from(&socket);
    options.set_tcp_user_timeout(Some(UNREAD))?;
    options.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE).with_interval(PROBE))?;
    let mut stream = tls.connect(ServerName::IpAddress(address.ip().into()), socket).await?;
    stream.get_mut().1.set_buffer_limit(Some(BUFFERS.1));
    Ok(stream)
}

/// Whether the head of an answer comes in a limited time; a log that is followed may be silent for days.
fn is_answered_soon(asked: &KubeletRequest) -> bool {
    !matches!(asked, KubeletRequest::Logs { options: LogOptions { follow: true, .. }, .. })
}

/// Namespace of the pod that a request is about. Other requests are those of the cluster's components.
fn namespace(asked: &KubeletRequest) -> Option<&str> {
    match asked {
        KubeletRequest::Logs { namespace, .. } | KubeletRequest::Connect { namespace, .. } => Some(namespace),
        KubeletRequest::Healthz | KubeletRequest::Stats { .. } | KubeletRequest::Metrics | KubeletRequest::Pods => None,
    }
}

/// The request for the other bridge: without the caller's credentials. `None` if `place` or `node` cannot be one.
fn request<B>(node: &str, place: &str, parts: &Parts, body: B) -> Option<Request<B>> {
    let mut request = Request::new(body);
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.method_mut() = parts.method.clone();
    copy(&parts.headers, request.headers_mut(), is_passed_on);
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(place).ok()?);
    request.headers_mut().insert(replica::NODE, HeaderValue::from_str(node).ok()?);
    Some(request)
}

/// Whether a header is for the other bridge. `Connection` and `Upgrade` ask for the protocol that both ends of the streams speak.
fn is_passed_on(name: &HeaderName) -> bool {
    const NOT: [HeaderName; 5] =
        [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, header::HOST, replica::NODE];
    !NOT.contains(name) && !is_of_body(name)
}

/// Whether a header says how a body is sent (RFC 9112, section 6), or what else the connection is asked for.
fn is_of_body(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 5] =
        [header::CONTENT_LENGTH, header::EXPECT, header::TE, header::TRAILER, header::TRANSFER_ENCODING];
    NAMES.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings")
}

/// The answer that switches the caller's connection, too.
fn switching(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    copy(headers, response.headers_mut(), |name| !is_of_body(name));
    response
}

/// The other bridge's answer, whose body comes as it is read.
fn passed_back(answer: Response<Incoming>, guard: Guard) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let body = body.map_err(|error| BackendError::Internal(format!("the other bridge broke off: {error}")));
    let mut response = held(Response::new(body), guard).map(BodyExt::boxed_unsync);
    *response.status_mut() = head.status;
    // The caller's connection is another one, perhaps of HTTP/2.
    let is_passed_back =
        |name: &HeaderName| !is_of_body(name) && *name != header::CONNECTION && *name != header::UPGRADE;
    copy(&head.headers, response.headers_mut(), is_passed_back);
    response
}

/// Copies the headers with these names.
fn copy(from: &HeaderMap, to: &mut HeaderMap, is_copied: impl Fn(&HeaderName) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| is_copied(name)) {
        to.append(name.clone(), value.clone());
    }
}

/// Connects the caller with the other bridge.
async fn join(client: OnUpgrade, bridge: OnUpgrade, guard: Guard) {
    match futures::future::try_join(client, bridge).await {
        Ok((client, bridge)) => pipe::join(TokioIo::new(client), TokioIo::new(bridge), ENDING).await,
        Err(error) => log::debug!("a stream through another bridge: upgrade: {error}"),
    }
    drop(guard);
}

#[cfg(test)]
mod tests;
