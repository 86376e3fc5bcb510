//! The kubelet API of the nodes over their connections: logs, exec, attach, port-forward and usage.

use std::sync::Arc;

use apimachinery::flow::Flow;
use edge_protocol::message::StreamRequest;
use edge_protocol::weight::weight;
use futures::StreamExt;
use kubelet_api::backend::{
    BackendError, BoxFuture, Channels, KubeletBackend, LogOptions, LogStream, PodOnNode, SessionOptions,
};
use serde_json::Value;

use super::node::Node;
use super::streams::{self, NodeStream};
use super::{Bridge, requests};

/// Maximum size of one node's measurements, in bytes: those of 110 pods of ten containers are a tenth of this.
const MAX_STATS: usize = 4 << 20;
/// Maximum size of parsed measurements in memory, in bytes; those of 110 pods of ten containers are half of this.
const MAX_STATS_WEIGHT: usize = 16 << 20;

impl Bridge {
    /// Opens the log of a container.
    ///
    /// # Errors
    /// Same as [`KubeletBackend::logs`].
    pub async fn logs(&self, pod: PodOnNode, options: LogOptions) -> Result<LogStream, BackendError> {
        let count = |number: Option<i64>| number.map(|n| u64::try_from(n).unwrap_or(0));
        let request = StreamRequest::Logs {
            namespace: pod.namespace,
            pod: pod.pod,
            uid: pod.uid,
            container: options.container,
            follow: options.follow,
            previous: options.previous,
            timestamps: options.timestamps,
            tail_lines: count(options.tail_lines),
            since_seconds: count(options.since_seconds),
            since_time: options.since_time,
            limit_bytes: count(options.limit_bytes),
        };
        let stream = self.open(&pod.node, &pod.flow, request, options.follow).await?;
        Ok(Box::pin(stream))
    }

    /// Tells a node to delete a volume that it has provisioned. After success the volume is gone.
    ///
    /// # Errors
    /// The node is not connected, is too old to know such volumes, or cannot delete it.
    pub async fn delete_volume(&self, node: &str, volume: &str) -> Result<(), BackendError> {
        let request = StreamRequest::DeleteVolume { volume: volume.to_owned() };
        let mut stream = self.open(node, &Flow::unlimited(), request, false).await?;
        match stream.next().await {
            None => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(BackendError::Internal(format!("node {node} answered with bytes nobody asked for"))),
        }
    }

    /// Begins a call of the controller of a CSI driver on a node; `path` is gRPC's. Records are those of
    /// [`StreamRequest::Csi`].
    ///
    /// # Errors
    /// The node is not connected, is too old to know such calls, or has no such controller.
    pub(crate) async fn call_controller(
        &self,
        node: &str,
        flow: &Flow,
        (driver, path): (String, String),
    ) -> Result<Channels, BackendError> {
        self.channels(node, flow, StreamRequest::Csi { driver, path }).await
    }

    fn node(&self, name: &str) -> Result<Arc<Node>, BackendError> {
        self.shared.nodes.get(name).ok_or_else(|| streams::offline(name, None))
    }

    /// Opens a stream whose memory counts for `flow`. `patient`: see [`NodeStream::open`].
    async fn open(
        &self,
        node: &str,
        flow: &Flow,
        request: StreamRequest,
        patient: bool,
    ) -> Result<NodeStream, BackendError> {
        let node = self.node(node)?;
        let share = self.shared.stream_memory.take(flow, &request)?;
        NodeStream::open(&node, request, patient, share).await
    }

    async fn channels(&self, node: &str, flow: &Flow, request: StreamRequest) -> Result<Channels, BackendError> {
        let stream = self.open(node, flow, request, false).await?;
        streams::channels(node, stream).await
    }

    async fn measure(&self, node: &str) -> Result<Value, BackendError> {
        let mut stream = self.open(node, &Flow::unlimited(), StreamRequest::Stats {}, false).await?;
        let mut text = Vec::new();
        while let Some(bytes) = stream.next().await {
            text.extend(bytes?);
            if text.len() > MAX_STATS {
                return Err(BackendError::Internal(format!("node {node} sent more than {MAX_STATS} bytes of stats")));
            }
        }
        let nonsense = |what: String| BackendError::Internal(format!("node {node} sent stats that {what}"));
        let text = str::from_utf8(&text).map_err(|error| nonsense(format!("are no text: {error}")))?;
        if weight(text) > MAX_STATS_WEIGHT {
            return Err(nonsense("hold too many values".to_owned()));
        }
        serde_json::from_str(text).map_err(|error| nonsense(format!("are no JSON: {error}")))
    }

    async fn list_pods(&self, node: &str) -> Result<Value, BackendError> {
        if !requests::is_path_segment(node) {
            return Err(BackendError::BadRequest(format!("{node:?} is no name of a node")));
        }
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        let requests = requests::Requests::new(self.shared.clients.own().clone());
        requests.get(&path).await.map_err(|error| BackendError::Internal(format!("listing pods: {error}")))
    }
}

impl KubeletBackend for Bridge {
    fn logs(&self, pod: PodOnNode, options: LogOptions) -> BoxFuture<'_, Result<LogStream, BackendError>> {
        Box::pin(self.logs(pod, options))
    }

    fn exec(&self, pod: PodOnNode, options: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        let PodOnNode { node, namespace, pod, uid, flow } = pod;
        let SessionOptions { container, command, stdin, stdout, stderr, tty } = options;
        let request = StreamRequest::Exec { namespace, pod, uid, container, command, stdin, stdout, stderr, tty };
        Box::pin(async move { self.channels(&node, &flow, request).await })
    }

    fn attach(&self, pod: PodOnNode, options: SessionOptions) -> BoxFuture<'_, Result<Channels, BackendError>> {
        let PodOnNode { node, namespace, pod, uid, flow } = pod;
        let SessionOptions { container, command: _, stdin, stdout, stderr, tty } = options;
        let request = StreamRequest::Attach { namespace, pod, uid, container, stdin, stdout, stderr, tty };
        Box::pin(async move { self.channels(&node, &flow, request).await })
    }

    fn port_forward(&self, pod: PodOnNode, port: u16) -> BoxFuture<'_, Result<Channels, BackendError>> {
        let PodOnNode { node, namespace, pod, uid, flow } = pod;
        let request = StreamRequest::PortForward { namespace, pod, uid, port };
        Box::pin(async move { self.channels(&node, &flow, request).await })
    }

    fn connected(&self, node: &str) -> Result<(), BackendError> {
        let node = self.node(node)?;
        node.link().map(drop).ok_or_else(|| streams::offline(&node.name, node.last_seen()))
    }

    fn stats(&self, node: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        let node = node.to_owned();
        Box::pin(async move { self.measure(&node).await })
    }

    fn pods(&self, node: &str) -> BoxFuture<'_, Result<Value, BackendError>> {
        let node = node.to_owned();
        Box::pin(async move { self.list_pods(&node).await })
    }
}
