//! The websocket of a connection: whole text frames in and out.

use async_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};
use async_tungstenite::{WebSocketReceiver, WebSocketSender};
use futures::StreamExt;
use futures::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// Writes frames until there will be no more.
pub(super) async fn write<S>(
    mut sender: WebSocketSender<S>,
    mut frames: mpsc::Receiver<String>,
) -> Result<(), SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(frame) = frames.recv().await {
        sender.send(Message::text(frame)).await?;
    }
    sender.close(None).await
}

/// The text of the next frame; the ends of the connection are errors.
pub(super) async fn next_frame<S>(receiver: &mut WebSocketReceiver<S>) -> Result<Utf8Bytes, SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match receiver.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Binary(_))) => {
                return Err(SocketError::Io(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "a binary frame, where text is spoken",
                )));
            }
            Some(Ok(Message::Close(_))) | None => return Err(SocketError::ConnectionClosed),
            Some(Err(error)) => return Err(error),
        }
    }
}
