//! The bytes of an upgraded connection, plain or as the binary messages of a WebSocket.

use std::io;

use apimachinery::flow::Flow;
use async_tungstenite::tokio::TokioAdapter;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use async_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use async_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};
use async_tungstenite::{WebSocketReceiver, WebSocketSender, WebSocketStream};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use super::arriving::{Arriving, Counted};

/// Bytes that are read at once, so also of one piece of a stream.
const READ: usize = 16 << 10;
/// Bytes of one message of a client, which wait here until it is whole. Clients copy their input in pieces of 32 KiB.
pub(super) const MAX_MESSAGE: usize = 4 << 20;
/// The same where what a client says means nothing: pings and a close have 125 bytes.
pub(super) const MAX_IGNORED: usize = 16 << 10;

/// What is below: TLS or, in tests, anything.
pub(super) type Io = TokioIo<Upgraded>;
pub(super) type SocketOut = WebSocketSender<TokioAdapter<Counted<Io>>>;

/// What a client sends over a WebSocket.
pub(super) struct SocketIn {
    messages: WebSocketReceiver<TokioAdapter<Counted<Io>>>,
    arriving: Arriving,
}

/// Speaks WebSocket as the server; the handshake is over. A message of a client has `most` bytes, which count for `flow`.
pub(super) async fn websocket(upgraded: Upgraded, most: usize, flow: &Flow) -> (SocketOut, SocketIn) {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ)
        .write_buffer_size(0)
        .max_write_buffer_size(4 << 20)
        .max_message_size(Some(most))
        .max_frame_size(Some(most));
    let arriving = Arriving::new(flow);
    let stream = TokioAdapter::new(Counted::new(TokioIo::new(upgraded), arriving.clone()));
    let (out, messages) = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await.split();
    (out, SocketIn { messages, arriving })
}

/// The form of the messages of a WebSocket (K8s apimachinery pkg/util/httpstream/wsstream/conn.go). Each begins with the
/// number of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Binary,
    /// Text: a digit for the channel, and the bytes as base64.
    Base64,
}

impl Codec {
    pub(super) fn message(self, channel: u8, data: &[u8]) -> Message {
        match self {
            Self::Binary => Message::binary([&[channel], data].concat()),
            Self::Base64 => Message::text(format!("{}{}", char::from(b'0' + channel), STANDARD.encode(data))),
        }
    }

    /// The channel of a message and its bytes; `None` for a message that has no meaning.
    pub(super) fn read(self, message: &Bytes) -> Option<(u8, Bytes)> {
        let channel = *message.first()?;
        match self {
            Self::Binary => Some((channel, message.slice(1..))),
            Self::Base64 => Some((channel.checked_sub(b'0')?, STANDARD.decode(&message[1..]).ok()?.into())),
        }
    }
}

/// The next message, when nothing of the one before is kept; none when the peer has closed. Text counts as its bytes, as in
/// Kubernetes: the Python client sends it.
pub(super) async fn next_message(socket: &mut SocketIn) -> io::Result<Option<Bytes>> {
    socket.arriving.done();
    loop {
        match socket.messages.next().await {
            Some(Ok(Message::Binary(bytes))) => return Ok(Some(bytes)),
            Some(Ok(Message::Text(text))) => return Ok(Some(text.into())),
            Some(Ok(Message::Close(_)) | Err(SocketError::ConnectionClosed)) | None => return Ok(None),
            Some(Ok(control)) => socket.arriving.control(control.len()),
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
pub(super) async fn wire(upgraded: Upgraded, tunnel: bool, flow: &Flow) -> (WireIn, WireOut) {
    if tunnel {
        let (out, incoming) = websocket(upgraded, MAX_MESSAGE, flow).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_messages_are_text_with_a_digit() {
        assert_eq!(Codec::Base64.message(1, b"ab"), Message::text("1YWI="));
        assert_eq!(Codec::Base64.read(&Bytes::from("0YWI=")), Some((0, Bytes::from("ab"))));
        assert_eq!(Codec::Base64.read(&Bytes::from("0")), Some((0, Bytes::new())));
        assert_eq!(Codec::Base64.read(&Bytes::from("0?")), None);
        assert_eq!(Codec::Binary.message(1, b"ab"), Message::binary(&b"\x01ab"[..]));
        assert_eq!(Codec::Binary.read(&Bytes::from("\0ab")), Some((0, Bytes::from("ab"))));
    }
}
