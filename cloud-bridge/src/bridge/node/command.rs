//! Commands to the connection of a node.

use std::sync::Arc;

use edge_protocol::message::{Call, CallResult, StreamId, StreamRequest};
use kubelet_api::backend::BackendError;
use tokio::sync::{Semaphore, oneshot};

use crate::bridge::chunks::Chunks;

/// A stream that the connection has opened.
#[derive(Debug)]
pub(in crate::bridge) struct OpenStream {
    pub id: StreamId,
    pub chunks: Chunks,
    /// A permit for each byte that may wait for the node's credit; closed when the stream has ended.
    pub room: Arc<Semaphore>,
}

/// Commands to a connection.
#[derive(Debug)]
pub(in crate::bridge) enum Command {
    /// A newer connection of the node exists.
    Superseded,
    /// The node may no longer be connected.
    Disconnect(String),
    /// The bridge ends: close regularly.
    Close,
    /// Another client changed or deleted the node's object.
    RewriteNode,
    /// In a box, because the queue of every connection has the size of the largest command.
    Open(Box<Open>),
    /// A request of a rule to the node. In a box as above.
    Ask(Box<Asked>),
    /// Bytes for the node, for which permits of the stream's room were taken.
    Send { stream: StreamId, data: Vec<u8> },
    /// Number of bytes that the reader of a stream has consumed.
    Consumed { stream: StreamId, bytes: usize },
    /// The reader of a stream is gone.
    EndStream { stream: StreamId },
}

/// Request to open a stream.
#[derive(Debug)]
pub(in crate::bridge) struct Open {
    pub request: StreamRequest,
    pub answer: oneshot::Sender<Result<OpenStream, BackendError>>,
}

/// A request of a rule to the node.
#[derive(Debug)]
pub(in crate::bridge) struct Asked {
    pub call: Call,
    pub answer: oneshot::Sender<CallResult>,
}
