//! The only port that nodes use: TLS, then `POST /v1/join` with a token or `POST /v1/enrol` with a claim token, or with a
//! certificate `GET /v1/link` and `POST /v1/identity`, which only checks the certificate; for operators `GET /v1/nodes` and `GET /metrics`; for everyone
//! `GET /livez`, `/healthz` and `/readyz`.
//!
//! Owns connections until a session takes over. Must not know the content of a session.

mod answered;
mod connection;
mod context;
mod enrol;
mod gather;
mod health;
mod identity;
mod join;
mod link;
pub mod metrics_port;
mod overview;
mod rates;
mod status;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::accept::{self, Gate, Lingering};
use crate::pki::identity::Holder;
use context::Arrived;
pub(crate) use overview::{OPERATORS, is_operator};
use sampan_log::printable::printable;
use status::Refusal;

pub use context::ListenerContext;

/// Maximum number of nodes in their initial exchange. When ten thousand reconnect at once, this protects those that are
/// already connected, and limits the memory for the exchange.
const MAX_COMING_IN: usize = 256;
/// Maximum number of unsent bytes in a socket, and in TLS, for a slow line: urgent data has to wait behind them.
const UNSENT: u16 = 16 << 10;

/// Opens the port.
///
/// # Errors
/// The address is in use, or does not belong to this machine.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("listening on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

/// Accepts until dropped.
pub async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    context: Arc<ListenerContext>,
    gate: Arc<Gate>,
) -> Infallible {
    let coming_in = Arc::new(Semaphore::new(MAX_COMING_IN));
    let acceptor = TlsAcceptor::from(tls);
    accept::each(listener, gate, "link", move |socket, peer, arrival| {
        let (context, coming_in) = (Arc::clone(&context), Arc::clone(&coming_in));
        serve(socket, acceptor.clone(), Arrived { peer, arrival, context, coming_in })
    })
    .await
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, arrived: Arrived) -> io::Result<()> {
    prepare(&socket)?;
    let arrival = Arc::clone(&arrived.arrival);
    arrival.within(socket.readable()).await?;
    arrival.turn().await;
    let socket = Lingering::new(socket);
    let at_once = socket.at_once();
    let mut tls = arrival.within(acceptor.accept(socket)).await?;
    tls.get_mut().1.set_buffer_limit(Some(UNSENT.into()));
    let certificate = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let holder = certificate.and_then(Holder::of);
    // One request: every answer except that of a link says `Connection: close`.
    connection::serve(tls, arrived.peer, &arrival, |request| {
        let (arrived, holder, at_once) = (&arrived, holder.as_ref(), &at_once);
        async move {
            let answer = route(request, arrived, holder).await;
            at_once.note(&answer);
            answer
        }
    })
    .await
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    accept::prepare(socket)?;
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT.into())
}

async fn route(request: Request<Incoming>, arrived: &Arrived, holder: Option<&Holder>) -> Response<Full<Bytes>> {
    let (context, arrival) = (&arrived.context, &arrived.arrival);
    // These wait for a body: the peer may still make the bridge wait.
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/join") => {
            return join::answer(request, context, arrival).await.unwrap_or_else(|refusal| refused(arrived, refusal));
        }
        (&Method::POST, "/v1/enrol") => {
            return enrol::answer(request, arrived).await.unwrap_or_else(|refusal| refused(arrived, refusal));
        }
        _ => {}
    }
    let _work = arrival.work();
    let answer = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/link") => link::upgrade(request, arrived, holder).await,
        (&Method::POST, "/v1/identity") => identity::answer(context, holder).await,
        (&Method::GET, "/v1/nodes") => overview::nodes(context, holder),
        (&Method::GET, "/metrics") => overview::metrics(context, holder),
        (&Method::GET, "/livez" | "/healthz") => Ok(health::live()),
        (&Method::GET, "/readyz") => Ok(health::ready(&context.bridge).await),
        (
            _,
            "/v1/join" | "/v1/enrol" | "/v1/link" | "/v1/identity" | "/v1/nodes" | "/metrics" | "/livez" | "/healthz"
            | "/readyz",
        ) => Err(Refusal::method_not_allowed()),
        (_, path) => Err(Refusal::not_found(path)),
    };
    answer.unwrap_or_else(|refusal| refused(arrived, refusal))
}

fn refused(arrived: &Arrived, refusal: Refusal) -> Response<Full<Bytes>> {
    log::warn!("{}: refused: {}", arrived.peer, printable(&refusal.message));
    refusal.into_response()
}
