//! One node's kubelet API over TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use kube::Client;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::auth::{self, Denied};
use super::query::{self, Asked, Misunderstood};
use super::read::{self, PLAIN};
use crate::api::backend::{BackendError, PodOnNode};
use crate::bridge::Bridge;
use crate::panics;
use crate::pki::identity::Subject;
use crate::streaming::{self, Problem};

/// For a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

type Body = UnsyncBoxBody<Bytes, BackendError>;

/// Whose API this is.
pub(super) struct Served {
    pub(super) node: String,
    pub(super) bridge: Bridge,
    pub(super) client: Client,
}

/// Accepts until the process ends.
pub(super) async fn accept(listener: TcpListener, tls: Arc<ServerConfig>, served: Arc<Served>) {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let (acceptor, served) = (acceptor.clone(), Arc::clone(&served));
                tokio::spawn(async move {
                    if let Err(error) = connection(socket, acceptor, served).await {
                        log::debug!("kubelet client {peer}: {error}");
                    }
                });
            }
            Err(error) => {
                log::warn!("kubelet port of {}: {error}", served.node);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, acceptor: TlsAcceptor, served: Arc<Served>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await;
    let tls = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    let subject = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()).and_then(Subject::of);
    let service = service_fn(move |request: Request<Incoming>| {
        let (served, subject) = (Arc::clone(&served), subject.clone());
        async move {
            let work = format!("kubelet request about node {}", served.node);
            let answer = panics::isolate(work, answer(&served, subject.as_ref(), request)).await;
            let mistake = || text(StatusCode::INTERNAL_SERVER_ERROR, "the bridge has made a mistake");
            Ok::<_, std::convert::Infallible>(answer.unwrap_or_else(mistake))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    builder.serve_connection_with_upgrades(TokioIo::new(tls), service).await.map_err(io::Error::other)
}

async fn answer(served: &Served, subject: Option<&Subject>, request: Request<Incoming>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    if let Err(denied) = auth::check(&served.client, &served.node, subject, &parts).await {
        let code = match denied {
            Denied::Unauthorized => StatusCode::UNAUTHORIZED,
            Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
            Denied::Api(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        return text(code, denied.to_string());
    }
    let answered = match query::parse(&parts.method, &parts.uri) {
        Ok(asked) => reply(served, asked, &parts).await,
        Err(Misunderstood::BadRequest(problem)) => return text(StatusCode::BAD_REQUEST, problem),
        Err(Misunderstood::BadMethod) => return text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
        Err(Misunderstood::NotFound) => return text(StatusCode::NOT_FOUND, "404 page not found"),
    };
    answered.unwrap_or_else(|problem| {
        let headers = problem.headers();
        let mut response = text(problem.code, problem.text);
        response.headers_mut().extend(headers);
        response
    })
}

async fn reply(served: &Served, asked: Asked, parts: &Parts) -> Result<Response<Body>, Problem> {
    // A kubelet is asked by name, mostly; the node knows which pod has it now.
    let place = |namespace, pod, uid| PodOnNode { node: served.node.clone(), namespace, pod, uid };
    match asked {
        Asked::Logs { namespace, pod, options } => {
            let stream = served.bridge.logs(place(namespace, pod, String::new()), options).await?;
            let body = StreamBody::new(stream.map_ok(Frame::data).boxed());
            Ok(with_type(StatusCode::OK, PLAIN, body.boxed_unsync()))
        }
        Asked::Connect { namespace, pod, uid, work } => {
            let backend = Arc::new(served.bridge.clone());
            let switched = streaming::upgrade(backend, place(namespace, pod, uid), work, parts).await?;
            Ok(switched.map(|()| full(Bytes::new())))
        }
        other => {
            let (kind, body) = read::read(&served.bridge, &served.node, &other).await?;
            Ok(with_type(StatusCode::OK, kind, full(body.into())))
        }
    }
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(code, PLAIN, full(text.into()))
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn with_type(code: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
