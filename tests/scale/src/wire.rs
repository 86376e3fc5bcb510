//! One connection of one node. Counts the bytes below TLS, as a mobile operator would.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tokio::TokioAdapter;
use async_tungstenite::tungstenite::client::IntoClientRequest;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use edge_protocol::frame::MAX_FRAME;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fleet::Counters;

/// Connections from one loopback address, well below the number of ephemeral ports.
const PER_ADDRESS: usize = 5_000;
/// Timeout for connect, handshake and upgrade together.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Socket = WebSocketStream<TokioAdapter<TlsStream<Counted>>>;

/// A TCP stream that counts its bytes.
pub(crate) struct Counted {
    tcp: TcpStream,
    counters: Rc<Counters>,
}

/// Dials the bridge as node number `index`.
pub(crate) async fn dial(
    index: usize,
    bridge: SocketAddr,
    tls: Arc<ClientConfig>,
    counters: Rc<Counters>,
) -> anyhow::Result<Socket> {
    tokio::time::timeout(PATIENCE, connect(index, bridge, tls, counters)).await?
}

async fn connect(
    index: usize,
    bridge: SocketAddr,
    tls: Arc<ClientConfig>,
    counters: Rc<Counters>,
) -> anyhow::Result<Socket> {
    let socket = TcpSocket::new_v4()?;
    let last = u8::try_from(2 + index / PER_ADDRESS).unwrap_or(254);
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, last)), 0))?;
    let tcp = socket.connect(bridge).await?;
    tcp.set_nodelay(true)?;
    let name = ServerName::from(bridge.ip());
    let tls = TlsConnector::from(tls).connect(name, Counted { tcp, counters }).await?;
    let request = format!("wss://{bridge}/v1/link").into_client_request()?;
    let config = WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME));
    let (socket, _) =
        async_tungstenite::client_async_with_config(request, TokioAdapter::new(tls), Some(config)).await?;
    Ok(socket)
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.tcp).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        self.counters.received.set(self.counters.received.get() + read as u64);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.tcp).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.counters.sent.set(self.counters.sent.get() + written as u64);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
