//! Port-forward: each pair of a client's streams is one connection to a port of the pod.
//!
//! K8s staging/src/k8s.io/cri-streaming/pkg/streaming/portforward is the model: pairs of a data and an error stream
//! that share a request id, in one SPDY connection; or, for other clients, pairs of channels in a WebSocket.

mod spdy;
mod waiting;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use apimachinery::flow::Flow;
use async_tungstenite::tungstenite::Message;
use edge_protocol::channel::{CLOSE, Record, STDIN, STDOUT};
use futures::StreamExt;
use hyper::upgrade::Upgraded;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::negotiate::Transport;
use super::spdy::connection::{Gone, Outgoing};
use super::spdy::frame;
use super::wire::{self, Codec};
use crate::backend::{BackendError, Channels, KubeletBackend, PodOnNode};
use waiting::{Budget, Feed, Waiting};

/// Connections of one client; the node serves fewer, but says so itself.
const MAX: usize = 256;
/// After a pod has closed its side, it still gets what the client sends, until the client is quiet for this time
/// (containerd and socat use the same half second, for both directions).
const QUIET: Duration = Duration::from_millis(500);
/// Messages that wait for the socket.
const QUEUE: usize = 4;

/// Serves a client until it goes.
pub(super) async fn serve(
    (upgraded, transport, codec): (Upgraded, Transport, Codec),
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    ports: &[u16],
    flow: &Flow,
) {
    let name = format!("{}/{}", pod.namespace, pod.pod);
    let served = match transport {
        Transport::Socket => over_socket((upgraded, codec), backend, pod, ports, flow).await,
        Transport::Spdy => spdy::serve(upgraded, false, backend, pod, flow).await,
        Transport::Tunnel => spdy::serve(upgraded, true, backend, pod, flow).await,
    };
    if let Err(error) = served {
        log::debug!("forwarding to {name}: {error}");
    }
}

/// Where the bytes of a connection and its failure go.
enum End {
    Spdy {
        out: Outgoing,
        data: u32,
        error: u32,
    },
    /// The number of the data channel; the error channel is the next.
    Socket {
        out: mpsc::Sender<Message>,
        codec: Codec,
        channel: u8,
    },
}

impl End {
    async fn data(&self, bytes: &[u8]) -> Result<(), Gone> {
        match self {
            Self::Spdy { out, data, .. } => out.data(*data, bytes).await,
            Self::Socket { out, codec, channel } => message(out, *codec, *channel, bytes).await,
        }
    }

    /// Nothing follows from the pod.
    async fn end(&self) -> Result<(), Gone> {
        match self {
            Self::Spdy { out, data, .. } => out.fin(*data).await,
            Self::Socket { .. } => Ok(()),
        }
    }

    async fn close(&self) -> Result<(), Gone> {
        match self {
            Self::Spdy { out, error, .. } => out.fin(*error).await,
            Self::Socket { .. } => Ok(()),
        }
    }

    async fn fail(&self, why: &str) -> Result<(), Gone> {
        match self {
            Self::Spdy { out, data, error } => {
                out.data(*error, why.as_bytes()).await?;
                out.fin(*error).await?;
                out.reset(*data, frame::INTERNAL_ERROR).await
            }
            Self::Socket { out, codec, channel } => message(out, *codec, channel + 1, why.as_bytes()).await,
        }
    }
}

async fn message(out: &mpsc::Sender<Message>, codec: Codec, channel: u8, bytes: &[u8]) -> Result<(), Gone> {
    out.send(codec.message(channel, bytes)).await.map_err(|_| Gone)
}

/// One connection, from the first byte to the last.
async fn connect(
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    port: u16,
    mut waiting: Waiting,
    end: End,
) -> Result<(), Gone> {
    let prefix = format!("error forwarding port {port} to pod {}, uid {}: ", pod.pod, pod.uid);
    // A node says most of it itself.
    let told = |error: &BackendError| {
        let text = error.to_string();
        if text.starts_with("error forwarding port") { text } else { format!("{prefix}{text}") }
    };
    let Channels { mut records, sender } = match backend.port_forward(pod, port).await {
        Ok(channels) => channels,
        Err(error) => return end.fail(&told(&error)).await,
    };
    let sent = AtomicU64::new(0);
    let up = async {
        // That the node's end is closed is told by its records.
        while let Some((bytes, _room)) = waiting.recv().await {
            if sender.send(STDIN, &bytes).await.is_err() {
                break;
            }
            sent.fetch_add(1, Ordering::Relaxed);
        }
        let _ = sender.send(CLOSE, &[STDIN]).await;
        std::future::pending().await
    };
    let down = async {
        loop {
            match records.next().await {
                Some(Ok(Record { channel: STDOUT, data })) => end.data(&data).await?,
                Some(Ok(Record { channel: CLOSE, data })) if data == [STDOUT] => break,
                Some(Ok(_)) => {}
                Some(Err(error)) => return end.fail(&told(&error)).await,
                None => break,
            }
        }
        end.end().await?;
        // A client closes its own end only when it sees all of this one closed, so this side closes first.
        let mut before = None;
        while before != Some(sent.load(Ordering::Relaxed)) {
            before = Some(sent.load(Ordering::Relaxed));
            let rest = async { while let Some(Ok(_)) = records.next().await {} };
            if tokio::time::timeout(QUIET, rest).await.is_ok() {
                break;
            }
        }
        end.close().await
    };
    tokio::select! {
        never = up => never,
        done = down => done,
    }
}

async fn over_socket(
    (upgraded, codec): (Upgraded, Codec),
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    ports: &[u16],
    flow: &Flow,
) -> io::Result<()> {
    let (mut sender, mut receiver) = wire::websocket(upgraded, wire::MAX_MESSAGE, flow).await;
    let (out, mut queue) = mpsc::channel::<Message>(QUEUE);
    let mut tasks = JoinSet::new();
    let budget = Budget::default();
    let mut feeds = Vec::new();
    let mut ends = Vec::new();
    for (port, channel) in ports.iter().zip((0_u8..).step_by(2)) {
        let (feed, waiting) = Feed::new(&budget);
        feeds.push(feed);
        ends.push((*port, waiting, End::Socket { out: out.clone(), codec, channel }));
    }
    drop(out);
    tasks.spawn(async move {
        while let Some(message) = queue.recv().await {
            if sender.send(message).await.is_err() {
                return;
            }
        }
        // All connections have ended. Whether the client still listens is its affair.
        let _ = wire::close(&mut sender).await;
    });
    for (port, waiting, end) in ends {
        let (backend, pod) = (Arc::clone(&backend), pod.clone());
        tasks.spawn(async move {
            if let End::Socket { out, codec, channel } = &end {
                for channel in [*channel, channel + 1] {
                    let _ = message(out, *codec, channel, &port.to_le_bytes()).await;
                }
            }
            let _ = connect(backend, pod, port, waiting, end).await;
        });
    }
    while let Some(bytes) = wire::next_message(&mut receiver).await? {
        let Some((channel, data)) = codec.read(&bytes).filter(|(channel, _)| channel % 2 == 0) else { continue };
        if let Some(feed) = feeds.get(usize::from(channel / 2)) {
            feed.give(&data).await;
        }
    }
    Ok(())
}
