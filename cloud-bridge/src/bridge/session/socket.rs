//! The websocket of a connection: whole frames in and out, compressed ones as binary messages, and long ones in
//! fragments.

use std::time::Instant;

use async_tungstenite::tungstenite::protocol::frame::Frame as Fragment;
use async_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use async_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};
use async_tungstenite::{WebSocketReceiver, WebSocketSender};
use bytes::Bytes;
use edge_protocol::wire::{self, Wire};
use futures::channel::mpsc;
use futures::io::{AsyncRead, AsyncWrite};
use futures::{SinkExt, StreamExt};

/// Length of a fragment in bytes (RFC 6455, 5.4). The library keeps a buffer of the longest one for the life of the
/// connection, and there are thousands.
const FRAGMENT: usize = 1 << 10;

/// The two halves of a websocket. They share their state and are small: an `async fn` reserves space for its arguments
/// twice, and a connection passes through several.
pub type Socket<S> = (WebSocketSender<S>, WebSocketReceiver<S>);

/// A received frame.
pub(super) enum Frame {
    Text(Utf8Bytes),
    /// See `edge_protocol::wire`.
    Binary(Bytes),
}

/// Converts a frame to a message.
pub(super) fn outgoing(frame: wire::Frame) -> Message {
    match frame.wire() {
        Wire::Text(text) => Message::text(text),
        Wire::Binary(bytes) => Message::binary(bytes),
        Wire::Shared(bytes) => Message::binary(Bytes::from_owner(bytes)),
    }
}

/// Writes frames until the queue ends.
pub(super) async fn write<S>(
    mut sender: WebSocketSender<S>,
    mut frames: mpsc::Receiver<Message>,
) -> Result<(), SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(frame) = frames.next().await {
        let (kind, bytes) = match frame {
            Message::Text(text) => (Data::Text, text.into()),
            Message::Binary(bytes) => (Data::Binary, bytes),
            other => {
                sender.send(other).await?;
                continue;
            }
        };
        for fragment in fragments(kind, bytes) {
            sender.feed(Message::Frame(fragment)).await?;
        }
        sender.flush().await?;
    }
    sender.close(None).await
}

/// Splits a message into fragments of at most [`FRAGMENT`] bytes.
fn fragments(kind: Data, bytes: Bytes) -> impl Iterator<Item = Fragment> {
    let mut rest = Some((kind, bytes));
    std::iter::from_fn(move || {
        let (kind, mut bytes) = rest.take()?;
        let piece = bytes.split_to(bytes.len().min(FRAGMENT));
        let last = bytes.is_empty();
        if !last {
            rest = Some((Data::Continue, bytes));
        }
        Some(Fragment::message(piece, OpCode::Data(kind), last))
    })
}

/// The next frame, not before this time; the end of the connection is an error. It is safe to drop the future.
pub(super) async fn read<S>(not_before: Instant, receiver: &mut WebSocketReceiver<S>) -> Result<Frame, SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if not_before > Instant::now() {
        tokio::time::sleep_until(not_before.into()).await;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_in_fragments_that_make_it_again() {
        for length in [0, 1, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 5 * FRAGMENT, 5 * FRAGMENT + 7] {
            let bytes: Vec<u8> = (0..length).map(|at| at.to_be_bytes()[7]).collect();
            let pieces: Vec<Fragment> = fragments(Data::Binary, bytes.clone().into()).collect();
            assert_eq!(pieces.len(), length.div_ceil(FRAGMENT).max(1));
            for (at, piece) in pieces.iter().enumerate() {
                let kind = if at == 0 { Data::Binary } else { Data::Continue };
                assert_eq!(piece.header().opcode, OpCode::Data(kind));
                assert_eq!(piece.header().is_final, at + 1 == pieces.len());
                assert!(piece.payload().len() <= FRAGMENT);
            }
            assert_eq!(pieces.iter().flat_map(|piece| piece.payload().to_vec()).collect::<Vec<_>>(), bytes);
        }
    }
}
