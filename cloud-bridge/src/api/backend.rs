//! What the API needs from a node to answer the pod subresources that a kubelet would serve. The bridge
//! implements it over the link; the API knows nothing of sessions.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use futures::Stream;

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

/// Which pod on which node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOnNode {
    pub node: String,
    pub namespace: String,
    pub pod: String,
    pub uid: String,
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
    /// Anything else: 500.
    #[error("{0}")]
    Internal(String),
}

/// The kubelet side of pod subresources.
pub trait KubeletBackend: Send + Sync {
    /// Opens the log of one container. Dropping the stream cancels it on the node.
    fn logs(&self, pod: PodOnNode, options: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>>;
}
