//! One node's kubelet API over TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
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
use crate::api::backend::{BackendError, LogOptions, PodOnNode};
use crate::bridge::Bridge;
use crate::pki::identity::Subject;

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
        async move { Ok::<_, std::convert::Infallible>(answer(&served, subject.as_ref(), &request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    builder.serve_connection(TokioIo::new(tls), service).await.map_err(io::Error::other)
}

async fn answer(served: &Served, subject: Option<&Subject>, request: &Request<Incoming>) -> Response<Body> {
    if let Err(denied) = auth::check(&served.client, &served.node, subject, request.headers()).await {
        let code = match denied {
            Denied::Unauthorized => StatusCode::UNAUTHORIZED,
            Denied::Forbidden { .. } => StatusCode::FORBIDDEN,
            Denied::Api(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        return text(code, denied.to_string());
    }
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here");
    }
    match query::parse(request.uri()) {
        Ok(Asked::Healthz) => text(StatusCode::OK, "ok"),
        Ok(Asked::Logs { namespace, pod, options }) => logs(served, namespace, pod, options).await,
        Err(Misunderstood::BadRequest(problem)) => text(StatusCode::BAD_REQUEST, problem),
        Err(Misunderstood::NotFound) => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

async fn logs(served: &Served, namespace: String, pod: String, options: LogOptions) -> Response<Body> {
    // A kubelet is asked by name only; the node knows which pod has it now.
    let place = PodOnNode { node: served.node.clone(), namespace, pod, uid: String::new() };
    match served.bridge.logs(place, options).await {
        Ok(stream) => {
            let body = StreamBody::new(stream.map_ok(Frame::data).boxed());
            with_type(StatusCode::OK, body.boxed_unsync())
        }
        Err(error) => {
            let code = match &error {
                BackendError::BadRequest(_) => StatusCode::BAD_REQUEST,
                BackendError::NotFound(_) => StatusCode::NOT_FOUND,
                BackendError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
                BackendError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            text(code, error.to_string())
        }
    }
}

fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(code, Full::new(text.into()).map_err(|never| match never {}).boxed_unsync())
}

fn with_type(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
