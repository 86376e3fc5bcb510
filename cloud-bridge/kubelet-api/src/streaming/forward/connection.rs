//! One connection to a port of a pod, from the first byte to the last, over either protocol of the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_tungstenite::tungstenite::Message;
use edge_protocol::channel::{CLOSE, Record, STDIN, STDOUT};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::waiting::Waiting;
use crate::backend::{BackendError, Channels, KubeletBackend, PodOnNode};
use crate::streaming::spdy::connection::{Gone, Outgoing};
use crate::streaming::spdy::frame;
use crate::streaming::wire::Codec;

/// After a pod has closed its side, it still gets what the client sends, until the client is quiet for this time
/// (containerd and socat use the same half second, for both directions).
const QUIET: Duration = Duration::from_millis(500);

/// Where the bytes of a connection and its failure go.
pub(super) enum End {
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

pub(super) async fn message(out: &mpsc::Sender<Message>, codec: Codec, channel: u8, bytes: &[u8]) -> Result<(), Gone> {
    out.send(codec.message(channel, bytes)).await.map_err(|_| Gone)
}

/// One connection, from the first byte to the last.
pub(super) async fn connect(
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
