//! The one port that nodes know: TLS, then `POST /v1/join` with a token or `GET /v1/link` with a certificate;
//! for operators `GET /v1/nodes` and `GET /metrics`.
//!
//! Owns connections up to the moment when a session takes over. Must not know what a session says.

mod join;
mod link;
mod overview;
mod status;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::bridge::Bridge;
use crate::pki::authority::Authority;
use crate::pki::identity::Subject;
pub(crate) use overview::OPERATORS;
use status::Refusal;

/// Connections that have not yet shown who they are.
const MAX_STRANGERS: usize = 256;
/// For a handshake and the first request.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes that wait in a socket, and in TLS, for a slow line: they are ahead of whatever becomes urgent.
const UNSENT: u16 = 16 << 10;

/// What the listener needs to answer.
pub struct Door {
    pub bridge: Bridge,
    pub authority: Authority,
    /// The bridge's own client, for tokens.
    pub client: Client,
}

/// Opens the port.
///
/// # Errors
/// The address is taken or is none of this machine.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("listening on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

/// Accepts until dropped.
pub async fn accept(listener: TcpListener, tls: Arc<ServerConfig>, door: Arc<Door>) {
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: those who are connected must not suffer.
                log::warn!("accepting a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() else {
            log::warn!("{peer}: turned away, {MAX_STRANGERS} connections are in their handshake");
            continue;
        };
        let (acceptor, door) = (acceptor.clone(), Arc::clone(&door));
        tokio::spawn(async move {
            if let Err(error) = serve(socket, peer, acceptor, door, permit).await {
                log::info!("{peer}: {error}");
            }
        });
    }
}

async fn serve(
    socket: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    door: Arc<Door>,
    permit: tokio::sync::OwnedSemaphorePermit,
) -> io::Result<()> {
    // Small frames, each of which somebody waits for.
    socket.set_nodelay(true)?;
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT.into())?;
    let mut tls = within(acceptor.accept(socket)).await?;
    tls.get_mut().1.set_buffer_limit(Some(UNSENT.into()));
    let certificate = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let subject = certificate.and_then(Subject::of);
    let permit = Arc::new(std::sync::Mutex::new(Some(permit)));
    let service = service_fn(move |request: Request<Incoming>| {
        let (door, subject, permit) = (Arc::clone(&door), subject.clone(), Arc::clone(&permit));
        async move {
            let answer = route(request, peer, &door, subject.as_ref()).await;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                // No stranger any more.
                drop(permit.lock().map(|mut permit| permit.take()));
            }
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(tls), service)
        .with_upgrades()
        .await
        .map_err(io::Error::other)
}

async fn route(
    request: Request<Incoming>,
    peer: SocketAddr,
    door: &Arc<Door>,
    subject: Option<&Subject>,
) -> Response<Full<Bytes>> {
    let answer = match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/join") => join::answer(request, door).await,
        (&Method::GET, "/v1/link") => link::upgrade(request, peer, door, subject),
        (&Method::GET, "/v1/nodes") => overview::nodes(door, subject),
        (&Method::GET, "/metrics") => overview::metrics(door, subject),
        (_, "/v1/join" | "/v1/link" | "/v1/nodes" | "/metrics") => Err(Refusal::method_not_allowed()),
        (_, path) => Err(Refusal::not_found(path)),
    };
    answer.unwrap_or_else(|refusal| {
        log::warn!("{peer}: refused: {}", refusal.message);
        refusal.into_response()
    })
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
