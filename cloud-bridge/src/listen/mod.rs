//! The one port that nodes know: TLS, then `POST /v1/join` with a token, or with a certificate `GET /v1/link` and
//! `POST /v1/identity`, which only says whether the certificate is good; for operators `GET /v1/nodes` and
//! `GET /metrics`.
//!
//! Owns connections up to the moment when a session takes over. Must not know what a session says.

mod identity;
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
use http::{Method, Request, Response};
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
use crate::panics;
use crate::pki::authority::Authority;
use crate::pki::identity::Holder;
use crate::printable::printable;
pub(crate) use overview::OPERATORS;
use status::Refusal;

/// Connections that have not yet shown who they are, or are nodes that have not yet said all they have to say first.
/// More wait in the kernel: when ten thousand nodes come back at once, those that are in must not suffer from those
/// that are not, and the memory of coming in is needed only so many times.
const MAX_ARRIVING: usize = 256;
/// For a handshake and the first request.
const PATIENCE: Duration = Duration::from_secs(20);
/// Written data that nobody acknowledges for so long ends the connection (tcp(7), TCP_USER_TIMEOUT).
const USER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that wait in a socket, and in TLS, for a slow line: they are ahead of whatever becomes urgent.
const UNSENT: u16 = 16 << 10;

/// The place of a connection that is arriving, until somebody takes it.
type Arrival = Arc<std::sync::Mutex<Option<tokio::sync::OwnedSemaphorePermit>>>;

/// What the listener needs to answer.
pub struct Door {
    pub bridge: Bridge,
    pub authority: Arc<Authority>,
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
    let arriving = Arc::new(Semaphore::new(MAX_ARRIVING));
    let acceptor = TlsAcceptor::from(tls);
    loop {
        // Never closed.
        let Ok(permit) = Arc::clone(&arriving).acquire_owned().await else { return };
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: those who are connected must not suffer.
                log::warn!("accepting a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
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
    prepare(&socket)?;
    let mut tls = within(acceptor.accept(socket)).await?;
    tls.get_mut().1.set_buffer_limit(Some(UNSENT.into()));
    let certificate = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let holder = certificate.and_then(Holder::of);
    let permit: Arrival = Arc::new(std::sync::Mutex::new(Some(permit)));
    let service = service_fn(move |request: Request<Incoming>| {
        let (door, holder, permit) = (Arc::clone(&door), holder.clone(), Arc::clone(&permit));
        async move {
            let answer =
                panics::isolate(format!("request of {peer}"), route(request, peer, &door, holder.as_ref(), &permit));
            let answer =
                answer.await.unwrap_or_else(|| Refusal::internal("the bridge has made a mistake").into_response());
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

fn prepare(socket: &TcpStream) -> io::Result<()> {
    // Small frames, each of which somebody waits for.
    socket.set_nodelay(true)?;
    let socket = socket2::SockRef::from(socket);
    socket.set_tcp_notsent_lowat(UNSENT.into())?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

async fn route(
    request: Request<Incoming>,
    peer: SocketAddr,
    door: &Arc<Door>,
    holder: Option<&Holder>,
    arrival: &Arrival,
) -> Response<Full<Bytes>> {
    let answer = match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/join") => join::answer(request, door).await,
        (&Method::GET, "/v1/link") => link::upgrade(request, peer, door, holder, arrival).await,
        (&Method::POST, "/v1/identity") => identity::answer(door, holder).await,
        (&Method::GET, "/v1/nodes") => overview::nodes(door, holder),
        (&Method::GET, "/metrics") => overview::metrics(door, holder),
        (_, "/v1/join" | "/v1/link" | "/v1/identity" | "/v1/nodes" | "/metrics") => Err(Refusal::method_not_allowed()),
        (_, path) => Err(Refusal::not_found(path)),
    };
    answer.unwrap_or_else(|refusal| {
        log::warn!("{peer}: refused: {}", printable(&refusal.message));
        refusal.into_response()
    })
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
