//! Streams that a node serves over its connection: opening one, and its bytes with their credit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use edge_protocol::message::{StreamId, StreamRequest};
use futures::Stream;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::node::{Chunks, Command, Node};
use crate::api::backend::BackendError;

/// For the node's first answer to a stream that does not follow.
const FIRST_ANSWER: Duration = Duration::from_secs(30);

/// The bytes a node sends on one stream. Dropping it ends the stream at the node.
pub(super) struct NodeStream {
    id: StreamId,
    first: Option<Result<Bytes, BackendError>>,
    chunks: Chunks,
    commands: mpsc::UnboundedSender<Command>,
}

impl NodeStream {
    /// Asks the node and waits for its first words, so that a refusal can still become an answer of its own.
    /// With `patient` it waits as long as it takes: a log that is followed may be silent for days.
    ///
    /// # Errors
    /// The node is not connected, or refuses.
    pub(super) async fn open(node: &Node, request: StreamRequest, patient: bool) -> Result<Self, BackendError> {
        let Some(link) = node.link() else { return Err(offline(&node.name, node.last_seen())) };
        let (answer, opened) = oneshot::channel();
        let broke = || BackendError::Unavailable(format!("the connection to node {} broke", node.name));
        link.commands.send(Command::Open { request, answer }).map_err(|_| broke())?;
        let (id, chunks) = opened.await.map_err(|_| broke())??;
        let mut stream = Self { id, first: None, chunks, commands: link.commands };
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
            // A connection that has ended needs no credit.
            let _ = self.commands.send(consumed);
        }
        Poll::Ready(item)
    }
}

impl Drop for NodeStream {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::EndStream { stream: self.id });
    }
}

/// What is said of a node that is not connected.
pub(super) fn offline(node: &str, last_seen: Option<SystemTime>) -> BackendError {
    let seen = last_seen.and_then(|at| Timestamp::try_from(at).ok());
    let seen = seen.map_or_else(
        || "not seen since the bridge started".to_owned(),
        |at| format!("last seen {}", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
    );
    BackendError::Unavailable(format!("node {node} is not connected ({seen})"))
}

/// The kind of a failure that a node ended a stream with, by the first words of its text.
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
