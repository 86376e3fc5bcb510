//! From an address to an open connection: resolve, TCP, a tunnel through the proxy, TLS, websocket upgrade. No retries, no
//! sessions.

use super::address::BridgeAddress;
use super::tls::{TlsError, is_other_authority};
use crate::net::proxy::Proxy;
use crate::net::tunnel::Tunnel;
use crate::sys::from_json::from_json;
use crate::sys::resolve::{ResolveError, resolve};
use crate::sys::tcp::limit_unsent;
use crate::sys::time::{io_within, within};
use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::client::IntoClientRequest;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use async_tungstenite::tungstenite::{self, http};
use edge_protocol::frame::MAX_FRAME;
use futures_rustls::TlsConnector;
use futures_rustls::client::TlsStream;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Timeout for one TCP connect.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout for the answer of the proxy, the TLS handshake and the upgrade each, on a slow line.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Written data that stays unacknowledged this long ends the connection (tcp(7), TCP_USER_TIMEOUT).
const USER_TIMEOUT_MS: u32 = 30_000;
/// Bytes that wait in the socket, and in TLS, for a slow line: they are ahead of whatever becomes urgent.
const UNSENT: u16 = 8 << 10;

pub type Tls = TlsStream<Async<TcpStream>>;
pub type Socket = WebSocketStream<Tls>;

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("{what}{address}: {source}")]
    Connect { what: &'static str, address: SocketAddr, source: io::Error },
    #[error("{bridge}: proxy {proxy}: {source}")]
    Proxy { bridge: BridgeAddress, proxy: String, source: io::Error },
    #[error("{bridge}: {action}: {source}")]
    Handshake { bridge: BridgeAddress, action: &'static str, source: io::Error },
    #[error(
        "{bridge}: tls handshake: {source}: its authority is none that this node trusts; if it was replaced while this node was \
         offline, join again with a fresh token"
    )]
    OtherAuthority { bridge: BridgeAddress, source: io::Error },
    #[error("{bridge}: the bridge answered {status}: {message}")]
    Status { bridge: BridgeAddress, status: u16, message: String },
    #[error("{bridge}: {source}")]
    Websocket { bridge: BridgeAddress, source: Box<tungstenite::Error> },
    #[error("{0}: not a name that a certificate can have")]
    Name(BridgeAddress),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Addresses to dial: those of the bridge, or of the proxy, which looks up the bridge's name itself.
///
/// # Errors
/// Its name leads nowhere.
pub async fn addresses(bridge: &BridgeAddress, proxy: &Proxy) -> Result<Vec<SocketAddr>, DialError> {
    Ok(match proxy.towards(&bridge.host, bridge.port) {
        Some(server) => resolve(&server.host, server.port).await?,
        None => resolve(&bridge.host, bridge.port).await?,
    })
}

/// A TLS connection to the bridge, over whichever of these addresses answers first in order.
///
/// # Errors
/// The last address's reason.
pub async fn connect(
    bridge: &BridgeAddress,
    proxy: &Proxy,
    addresses: Vec<SocketAddr>,
    config: Arc<ClientConfig>,
) -> Result<Tls, DialError> {
    let name = ServerName::try_from(bridge.host.clone()).map_err(|_| DialError::Name(bridge.clone()))?;
    let server = proxy.towards(&bridge.host, bridge.port);
    let what = server.map_or("", |_| "proxy ");
    let mut failure = None;
    for address in addresses {
        match io_within(CONNECT, Async::<TcpStream>::connect(address)).await {
            Ok(mut tcp) => {
                prepare(&tcp).map_err(|source| DialError::Connect { what, address, source })?;
                if let Some(server) = server {
                    let opened = io_within(HANDSHAKE, open(&mut tcp, bridge, proxy)).await;
                    let (bridge, proxy) = (bridge.clone(), server.authority());
                    opened.map_err(|source| DialError::Proxy { bridge, proxy, source })?;
                }
                let handshake = TlsConnector::from(config).connect(name, tcp);
                let mut tls = io_within(HANDSHAKE, handshake).await.map_err(|source| {
                    let bridge = bridge.clone();
                    if is_other_authority(&source) {
                        DialError::OtherAuthority { bridge, source }
                    } else {
                        DialError::Handshake { bridge, action: "tls handshake", source }
                    }
                })?;
                tls.get_mut().1.set_buffer_limit(Some(UNSENT.into()));
                return Ok(tls);
            }
            Err(source) => failure = Some(DialError::Connect { what, address, source }),
        }
    }
    // A resolver that succeeds gives at least one address.
    Err(failure.unwrap_or_else(|| ResolveError::NotFound(bridge.host.clone()).into()))
}

/// Lets the proxy open a tunnel to the bridge.
async fn open(tcp: &mut Async<TcpStream>, bridge: &BridgeAddress, proxy: &Proxy) -> io::Result<()> {
    let mut tunnel = Tunnel::new(proxy, &bridge.host, bridge.port)?;
    tcp.write_all(tunnel.request().as_bytes()).await?;
    let mut buffer = [0; 512];
    loop {
        let length = tcp.read(&mut buffer).await?;
        if tunnel.hear(buffer.get(..length).unwrap_or_default())? {
            return Ok(());
        }
    }
}

fn prepare(tcp: &Async<TcpStream>) -> io::Result<()> {
    tcp.get_ref().set_nodelay(true)?;
    limit_unsent(tcp, UNSENT.into())?;
    setsockopt(tcp, sockopt::TcpUserTimeout, &USER_TIMEOUT_MS).map_err(io::Error::from)
}

/// Asks for the link: `GET /v1/link` with a websocket upgrade.
///
/// # Errors
/// The bridge's own words if it answers anything but 101.
pub async fn upgrade(bridge: &BridgeAddress, tls: Tls) -> Result<Socket, DialError> {
    let websocket = |source| DialError::Websocket { bridge: bridge.clone(), source: Box::new(source) };
    let request = format!("wss://{}/v1/link", bridge.authority()).into_client_request().map_err(websocket)?;
    let handshake = async_tungstenite::client_async_with_config(request, tls, Some(websocket_config()));
    match within(HANDSHAKE, handshake).await {
        Some(Ok((socket, _response))) => Ok(socket),
        Some(Err(tungstenite::Error::Http(response))) => Err(refusal(bridge, &response)),
        Some(Err(source)) => Err(websocket(source)),
        None => Err(websocket(io::Error::from(io::ErrorKind::TimedOut).into())),
    }
}

/// Sizes for a small device: the library's defaults are 256 KiB of buffers and messages of 64 MiB.
pub fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(8 << 10)
        .max_write_buffer_size(2 * MAX_FRAME)
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME))
}

fn refusal(bridge: &BridgeAddress, response: &http::Response<Option<Vec<u8>>>) -> DialError {
    let body = response.body().as_deref().unwrap_or_default();
    let status = response.status().as_u16();
    DialError::Status { bridge: bridge.clone(), status, message: status_message(body) }
}

/// Message of a Kubernetes `Status` body; otherwise the beginning of the text.
pub(super) fn status_message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Status {
        #[serde(default)]
        reason: String,
        #[serde(default)]
        message: String,
    }
    match from_json::<Status>(body) {
        Ok(Status { reason, message }) if reason.is_empty() => message,
        Ok(Status { reason, message }) => format!("{reason}: {message}"),
        Err(_) => String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_reason_and_message() {
        let status = br#"{"kind":"Status","reason":"Forbidden","message":"the token was used"}"#;
        assert_eq!(status_message(status), "Forbidden: the token was used");
        assert_eq!(status_message(b"<html>\nno"), "<html>no");
    }
}
