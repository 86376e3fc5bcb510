//! What the API needs from a node to answer the pod subresources that a kubelet would serve. The bridge
//! implements it over the link; the API knows nothing of sessions.

use std::future::Future;
use std::pin::Pin;

use apimachinery::flow::Flow;
use bytes::Bytes;
use edge_protocol::channel::Record;
use futures::Stream;
use serde_json::Value;

/// A boxed future, so that the trait stays object-safe.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The bytes of a log as they arrive; an error ends the stream.
pub type LogStream = Pin<Box<dyn Stream<Item = Result<Bytes, BackendError>> + Send>>;

/// The query of `pods/log`, validated; `container` is always filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub container: String,
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub since_seconds: Option<i64>,
    /// RFC 3339, as the client sent it.
    pub since_time: Option<String>,
    pub tail_lines: Option<i64>,
    pub limit_bytes: Option<i64>,
}

/// Which pod on which node, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOnNode {
    pub node: String,
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    /// The client for which the memory of its streams counts.
    pub flow: Flow,
}

/// Why a node did not answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// The kubelet's own refusal: 400 BadRequest with this text
    /// (`container "c" in pod "p" is waiting to start: ContainerCreating`).
    #[error("{0}")]
    BadRequest(String),
    /// No such container, or no log of it: 404.
    #[error("{0}")]
    NotFound(String),
    /// The node has no session now: 503.
    #[error("{0}")]
    Unavailable(String),
    /// Too many streams are open: 429.
    #[error("{0}")]
    Busy(String),
    /// Anything else: 500.
    #[error("{0}")]
    Internal(String),
}

/// What `exec` and `attach` ask for, validated: at least one of the three streams, and no stderr with a terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOptions {
    pub container: String,
    /// Empty for `attach`.
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// Records of the node, after its `OPENED`; an error ends them.
pub type RecordStream = Pin<Box<dyn Stream<Item = Result<Record, BackendError>> + Send>>;

/// The way of records to the node.
pub trait RecordSender: Send + Sync {
    /// Sends one record, as soon as the node has room for it.
    ///
    /// # Errors
    /// The stream is over.
    fn send<'a>(&'a self, channel: u8, data: &'a [u8]) -> BoxFuture<'a, Result<(), StreamOver>>;
}

/// Nothing more can be sent; why is said by the records that come.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the node's end of the stream is closed")]
pub struct StreamOver;

/// Both directions of a stream with a node. Dropping `records` ends it on the node.
pub struct Channels {
    pub records: RecordStream,
    pub sender: Box<dyn RecordSender>,
}

/// The kubelet side of pod subresources.
pub trait KubeletBackend: Send + Sync {
    /// Opens the log of one container. Dropping the stream cancels it on the node.
    fn logs(&self, pod: PodOnNode, options: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>>;

    /// Runs a command in a container.
    fn exec(&self, pod: PodOnNode, options: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>>;

    /// Joins a container's own streams.
    fn attach(&self, pod: PodOnNode, options: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>>;

    /// Connects to a port in the pod's network namespace.
    fn port_forward(&self, pod: PodOnNode, port: u16) -> BoxFuture<'_, Result<Channels, BackendError>>;

    /// Whether the node can be asked now.
    ///
    /// # Errors
    /// It is not connected: since when.
    fn connected(&self, node: &str) -> Result<(), BackendError>;

    /// The node's own measurements: the object of a kubelet's `/stats/summary`.
    fn stats(&self, node: &str) -> BoxFuture<'_, Result<Value, BackendError>>;

    /// The pods of the node: a `PodList`.
    fn pods(&self, node: &str) -> BoxFuture<'_, Result<Value, BackendError>>;
}
