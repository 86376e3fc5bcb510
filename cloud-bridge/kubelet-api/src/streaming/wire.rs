//! The bytes of an upgraded connection, plain or as the binary messages of a WebSocket.

use std::io;

use async_tungstenite::tokio::TokioAdapter;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use async_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use async_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};
use async_tungstenite::{WebSocketReceiver, WebSocketSender, WebSocketStream};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

/// Bytes that are read at once, so also of one piece of a stream.
const READ: usize = 16 << 10;
/// Bytes of one message of a client. Go clients write a whole input at once when they have it in memory.
const MAX_MESSAGE: usize = 32 << 20;

/// What is below: TLS or, in tests, anything.
pub(super) type Io = TokioIo<Upgraded>;
pub(super) type SocketIn = WebSocketReceiver<TokioAdapter<Io>>;
pub(super) type SocketOut = WebSocketSender<TokioAdapter<Io>>;

/// Speaks WebSocket as the server; the handshake is over.
pub(super) async fn websocket(upgraded: Upgraded) -> (SocketOut, SocketIn) {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ)
        .write_buffer_size(0)
        .max_write_buffer_size(4 << 20)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let stream = TokioAdapter::new(TokioIo::new(upgraded));
    WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await.split()
}

/// The next binary message; none when the peer has closed. Text is what no client of Kubernetes sends here.
pub(super) async fn next_message(socket: &mut SocketIn) -> io::Result<Option<Bytes>> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
            Some(Ok(Message::Text(_))) => return Err(io::Error::other("a text message came where binary is spoken")),
            Some(Ok(Message::Close(_)) | Err(SocketError::ConnectionClosed)) | None => return Ok(None),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(io::Error::other(error)),
        }
    }
}

/// Says goodbye; clients take any other end for a failure.
pub(super) async fn close(socket: &mut SocketOut) -> io::Result<()> {
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    socket.close(Some(normal)).await.map_err(io::Error::other)
}

/// The way in.
pub(super) enum WireIn {
    Plain(ReadHalf<Io>),
    Tunnel(Box<SocketIn>),
}

/// The way out.
pub(super) enum WireOut {
    Plain(WriteHalf<Io>),
    Tunnel(Box<SocketOut>),
}

/// Both ways of an upgraded connection.
pub(super) async fn wire(upgraded: Upgraded, tunnel: bool) -> (WireIn, WireOut) {
    if tunnel {
        let (out, incoming) = websocket(upgraded).await;
        return (WireIn::Tunnel(Box::new(incoming)), WireOut::Tunnel(Box::new(out)));
    }
    let (read, write) = tokio::io::split(TokioIo::new(upgraded));
    (WireIn::Plain(read), WireOut::Plain(write))
}

impl WireIn {
    /// More bytes; none at the end.
    pub(super) async fn read(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::Plain(read) => {
                let mut buffer = BytesMut::with_capacity(READ);
                let read = read.read_buf(&mut buffer).await?;
                Ok((read > 0).then(|| buffer.freeze()))
            }
            Self::Tunnel(socket) => next_message(socket).await,
        }
    }
}

impl WireOut {
    pub(super) async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::Plain(write) => {
                write.write_all(&bytes).await?;
                write.flush().await
            }
            Self::Tunnel(socket) => socket.send(Message::binary(bytes)).await.map_err(io::Error::other),
        }
    }

    pub(super) async fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(write) => write.shutdown().await,
            Self::Tunnel(socket) => close(socket).await,
        }
    }
}
