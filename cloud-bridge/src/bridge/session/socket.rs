//! The websocket of a connection: whole frames in and out, packed ones as binary messages.

use async_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};
use async_tungstenite::{WebSocketReceiver, WebSocketSender};
use bytes::Bytes;
use edge_protocol::wire::{self, Wire};
use futures::StreamExt;
use futures::channel::mpsc;
use futures::io::{AsyncRead, AsyncWrite};

/// What came.
pub(super) enum Frame {
    Text(Utf8Bytes),
    /// See `edge_protocol::wire`.
    Binary(Bytes),
}

/// A frame as it goes out.
pub(super) fn outgoing(frame: wire::Frame) -> Message {
    match frame.wire() {
        Wire::Text(text) => Message::text(text),
        Wire::Binary(bytes) => Message::binary(bytes),
    }
}

/// Writes frames until there will be no more.
pub(super) async fn write<S>(
    mut sender: WebSocketSender<S>,
    mut frames: mpsc::Receiver<Message>,
) -> Result<(), SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(frame) = frames.next().await {
        sender.send(frame).await?;
    }
    sender.close(None).await
}

/// The next frame; the ends of the connection are errors.
pub(super) async fn next_frame<S>(receiver: &mut WebSocketReceiver<S>) -> Result<Frame, SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match receiver.next().await {
            Some(Ok(Message::Text(text))) => return Ok(Frame::Text(text)),
            Some(Ok(Message::Binary(bytes))) => return Ok(Frame::Binary(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(SocketError::ConnectionClosed),
            Some(Err(error)) => return Err(error),
        }
    }
}
