//! Port-forward: each pair of a client's streams is one connection to a port of the pod.
//!
//! K8s staging/src/k8s.io/cri-streaming/pkg/streaming/portforward is the model: pairs of a data and an error stream
//! that share a request id, in one SPDY connection; or, for other clients, pairs of channels in a WebSocket.

mod connection;
mod spdy;
mod waiting;

use std::io;
use std::sync::Arc;

use async_tungstenite::tungstenite::Message;
use hyper::upgrade::Upgraded;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::negotiate::Transport;
use super::wire::{self, Codec};
use crate::backend::{KubeletBackend, PodOnNode};
use connection::{End, connect, message};
use waiting::{Budget, Feed};

/// Messages that wait for the socket.
const QUEUE: usize = 4;

/// Serves a client until it goes.
pub(super) async fn serve(
    (upgraded, transport, codec): (Upgraded, Transport, Codec),
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    ports: &[u16],
) {
    let name = format!("{}/{}", pod.namespace, pod.pod);
    let served = match transport {
        Transport::Socket => over_socket((upgraded, codec), backend, pod, ports).await,
        Transport::Spdy => spdy::serve(upgraded, false, backend, pod).await,
        Transport::Tunnel => spdy::serve(upgraded, true, backend, pod).await,
    };
    if let Err(error) = served {
        log::debug!("forwarding to {name}: {error}");
    }
}

async fn over_socket(
    (upgraded, codec): (Upgraded, Codec),
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    ports: &[u16],
) -> io::Result<()> {
    let (mut sender, mut receiver) = wire::websocket(upgraded, wire::MAX_MESSAGE, &pod.flow).await;
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
