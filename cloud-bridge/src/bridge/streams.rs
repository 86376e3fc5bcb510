//! Streams that a node serves over its connection: opening one, and its bytes or records with their credit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use apimachinery::meta::rfc3339;
use apimachinery::shares::Share;
use bytes::Bytes;
use edge_protocol::channel::{self, Record, Records};
use edge_protocol::message::{StreamId, StreamRequest};
use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use tokio::sync::{Semaphore, oneshot};

use super::chunks::Chunks;
use super::node::{Command, Node, Open, OpenStream};
use kubelet_api::backend::{BackendError, BoxFuture, Channels, RecordSender, RecordStream, StreamOver};

/// Timeout for the node's first answer to a stream that does not follow.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// The bytes a node sends on one stream. Dropping it ends the stream at the node and returns its share of the memory.
pub(super) struct NodeStream {
    id: StreamId,
    first: Option<Result<Bytes, BackendError>>,
    chunks: Chunks,
    room: Arc<Semaphore>,
    commands: UnboundedSender<Command>,
    _share: Share,
}

impl NodeStream {
    /// Requests a stream and waits for the node's first answer, so that a refusal can still become an HTTP error. With
    /// `patient` it waits without a limit: a log that is followed may be silent for days.
    ///
    /// # Errors
    /// The node is not connected, or refuses.
    pub(super) async fn open(
        node: &Node,
        request: StreamRequest,
        patient: bool,
        share: Share,
    ) -> Result<Self, BackendError> {
        let Some(link) = node.link() else { return Err(offline(&node.name, node.last_seen())) };
        let (answer, opened) = oneshot::channel();
        let broke = || BackendError::Unavailable(format!("the connection to node {} broke", node.name));
        link.commands.unbounded_send(Command::Open(Box::new(Open { request, answer }))).map_err(|_| broke())?;
        let OpenStream { id, chunks, room } = opened.await.map_err(|_| broke())??;
        let mut stream = Self { id, first: None, chunks, room, commands: link.commands, _share: share };
        let first = stream.chunks.recv();
        let first = if patient {
            first.await
        } else {
            let late = |_| BackendError::Unavailable(format!("node {} did not answer", node.name));
            tokio::time::timeout(FIRST_ANSWER, first).await.map_err(late)?
        };
        match first {
            Some(Err(error)) => Err(error),
            first => {
                stream.first = first;
                Ok(stream)
            }
        }
    }
}

impl Stream for NodeStream {
    type Item = Result<Bytes, BackendError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = match self.first.take() {
            Some(first) => Some(first),
            None => std::task::ready!(self.chunks.poll_recv(cx)),
        };
        if let Some(Ok(bytes)) = &item {
            let consumed = Command::Consumed { stream: self.id, bytes: bytes.len() };
            // The connection may have ended, and needs no credit then.
            let _ = self.commands.unbounded_send(consumed);
        }
        Poll::Ready(item)
    }
}

impl Drop for NodeStream {
    fn drop(&mut self) {
        let _ = self.commands.unbounded_send(Command::EndStream { stream: self.id });
    }
}

/// Makes a stream one of records, and waits for its `OPENED`.
///
/// # Errors
/// The node refuses, or violates the protocol.
pub(super) async fn channels(node: &str, stream: NodeStream) -> Result<Channels, BackendError> {
    let sender = Sender { id: stream.id, room: Arc::clone(&stream.room), commands: stream.commands.clone() };
    let mut records = records(stream);
    match records.next().await {
        Some(Ok(record)) if record.channel == channel::OPENED => Ok(Channels { records, sender: Box::new(sender) }),
        Some(Ok(record)) => Err(BackendError::Internal(format!(
            "node {node} began a stream with a record on channel {}",
            record.channel
        ))),
        Some(Err(error)) => Err(error),
        None => Err(BackendError::Internal(format!("node {node} ended a stream without a word"))),
    }
}

fn records(stream: NodeStream) -> RecordStream {
    let start = Some((stream, Records::default()));
    Box::pin(futures::stream::unfold(start, |state| async move {
        let (mut stream, mut records) = state?;
        loop {
            match records.next_record() {
                Ok(Some(record)) => return Some((Ok(record), Some((stream, records)))),
                Ok(None) => {}
                Err(error) => return Some((Err::<Record, _>(BackendError::Internal(error.to_string())), None)),
            }
            match stream.next().await? {
                Ok(bytes) => records.push(&bytes),
                Err(error) => return Some((Err(error), None)),
            }
        }
    }))
}

struct Sender {
    id: StreamId,
    room: Arc<Semaphore>,
    commands: UnboundedSender<Command>,
}

impl RecordSender for Sender {
    fn send<'a>(&'a self, channel: u8, data: &'a [u8]) -> BoxFuture<'a, Result<(), StreamOver>> {
        Box::pin(async move {
            // One record at a time: none is larger than the room.
            let mut parts = data.chunks(channel::MAX_RECORD);
            let mut next = Some(parts.next().unwrap_or_default());
            while let Some(part) = next {
                let data = channel::records(channel, part);
                let bytes = u32::try_from(data.len()).map_err(|_| StreamOver)?;
                self.room.acquire_many(bytes).await.map_err(|_| StreamOver)?.forget();
                self.commands.unbounded_send(Command::Send { stream: self.id, data }).map_err(|_| StreamOver)?;
                next = parts.next();
            }
            Ok(())
        })
    }
}

/// The error for a node that is not connected.
pub(super) fn offline(node: &str, last_seen: Option<SystemTime>) -> BackendError {
    let seen = last_seen.and_then(|at| Timestamp::try_from(at).ok());
    let seen =
        seen.map_or_else(|| "not seen since the bridge started".to_owned(), |at| format!("last seen {}", rfc3339(at)));
    BackendError::Unavailable(format!("node {node} is not connected ({seen})"))
}

/// The kind of error with which a node ended a stream, by the first words of its text.
pub(super) fn error_of(text: String) -> BackendError {
    match text.split_once(": ") {
        Some(("not found", rest)) => BackendError::NotFound(rest.to_owned()),
        Some(("bad request", rest)) => BackendError::BadRequest(rest.to_owned()),
        _ if text.contains("is waiting to start") || text.contains("previous terminated") => {
            BackendError::BadRequest(text)
        }
        _ if text.contains("not found") || text.contains("is not on this node") => BackendError::NotFound(text),
        _ => BackendError::Internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_node_keep_their_kind() {
        assert!(matches!(error_of("not found: x".into()), BackendError::NotFound(text) if text == "x"));
        assert!(matches!(error_of("bad request: x".into()), BackendError::BadRequest(text) if text == "x"));
        let waiting = "container \"c\" in pod \"p\" is waiting to start: ContainerCreating";
        assert!(matches!(error_of(waiting.into()), BackendError::BadRequest(_)));
        let previous = "previous terminated container \"c\" in pod \"p\" not found";
        assert!(matches!(error_of(previous.into()), BackendError::BadRequest(_)));
        assert!(matches!(error_of("container c not found in pod p".into()), BackendError::NotFound(_)));
        assert!(matches!(error_of("disk on fire".into()), BackendError::Internal(_)));
    }

    #[test]
    fn an_absent_node_is_said_to_be_absent_since_when() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let text = offline("edge-1", Some(at)).to_string();
        assert_eq!(text, "node edge-1 is not connected (last seen 1970-01-02T00:00:00Z)");
        assert!(offline("edge-1", None).to_string().contains("not seen since"));
    }
}
