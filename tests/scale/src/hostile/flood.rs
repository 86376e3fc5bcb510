//! Sends one flood as fast as the bridge reads it, within the bridge's limits of messages under way: a node that
//! exceeds them is only disconnected.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_tungstenite::tungstenite::Message;
use edge_protocol::frame::encode;
use edge_protocol::message::ToCloud;
use edge_protocol::wire;
use futures::StreamExt;
use kube::Client;
use serde_json::Value;

use crate::cases;
use crate::floods::{self, Flood, Ground};
use crate::peer::Peer;
use crate::wire::{Socket, dial};

/// Maximum number of unacknowledged reports; the bridge allows 256 and 4 MiB, and a large report is large.
const WINDOW: usize = 200;
const LARGE_WINDOW: usize = 6;
/// Maximum number of open connections that are never read from.
const KEPT: usize = 64;
/// Length of one answer of the node, in pieces of [`PIECE`].
const ANSWER: usize = 1_000;
const PIECE: usize = 30 << 10;

impl Peer {
    /// Sends until `end`; reconnects whenever the bridge disconnects it.
    pub(crate) async fn flood(&mut self, flood: Flood, end: Instant) {
        let mut kept = Vec::new();
        // Numbers continue over connections: a repeated report is ignored.
        let mut turn = 0;
        while Instant::now() < end {
            let Ok(mut socket) = dial(60_000, self.bridge, Arc::clone(&self.tls), Rc::clone(&self.counters)).await
            else {
                self.done.refused += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            self.done.connections += 1;
            let greeted = self.send(&mut socket, Message::text(encode(&cases::hello(&self.name)))).await;
            match flood {
                Flood::Reconnects => {}
                Flood::SlowReaders => {
                    kept.push(socket);
                    if kept.len() > KEPT {
                        kept.remove(0);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                // Reconnects, whatever the reason of the end.
                _ if greeted.is_ok() => {
                    let _ended = self.pour(flood, &mut socket, &mut turn, end).await;
                }
                _ => {}
            }
        }
    }

    async fn pour(&mut self, flood: Flood, socket: &mut Socket, turn: &mut u64, end: Instant) -> anyhow::Result<()> {
        let (name, node, pod) = (self.name.clone(), self.node.clone(), self.pod.clone());
        let ground = Ground { name: &name, node: &node, pod: &pod };
        let window = match flood {
            Flood::GiantNodes | Flood::GiantMirrorPods => LARGE_WINDOW,
            Flood::Devices => 1,
            Flood::Tokens => 60,
            _ => WINDOW,
        };
        let mut open = 0_usize;
        while Instant::now() < end {
            if open < window {
                *turn += 1;
                let mut messages: Vec<Message> = floods::said(flood, ground, *turn, &mut self.random)
                    .iter()
                    .map(|said| Message::text(encode(said)))
                    .collect();
                if flood == Flood::Bombs {
                    messages.push(Message::binary(cases::junk(&mut self.random)));
                }
                self.done.cases += messages.len();
                for message in messages {
                    self.send(socket, message).await?;
                }
                open += usize::from(waits(flood));
            }
            // Wait only if the window is full.
            let patience = Duration::from_millis(if open < window && flood != Flood::Answers { 0 } else { 20 });
            open = open.saturating_sub(self.take(flood, socket, patience).await?);
        }
        Ok(())
    }

    /// Receives what has arrived; returns how many reports it acknowledges.
    async fn take(&mut self, flood: Flood, socket: &mut Socket, patience: Duration) -> anyhow::Result<usize> {
        let mut acknowledged = 0;
        while let Ok(came) = tokio::time::timeout(patience, socket.next()).await {
            let text = match came {
                Some(Ok(Message::Text(text))) => text.to_string(),
                Some(Ok(Message::Binary(bytes))) => match wire::read(&bytes, true) {
                    Ok(wire::Content::Text(text)) => text,
                    _ => continue,
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => anyhow::bail!("closed"),
                Some(Ok(_)) => continue,
            };
            let said: Value = serde_json::from_str(&text).unwrap_or_default();
            acknowledged += said["upAck"]["ids"].as_array().map_or(0, Vec::len);
            acknowledged += ["upRefuse", "token", "devicesAck"].iter().filter(|name| !said[**name].is_null()).count();
            if let Some(stream) = said["streamOpen"]["stream"].as_u64().filter(|_| flood == Flood::Answers) {
                self.done.streams += 1;
                // From the third piece on, this exceeds the credit.
                let pieces = [1, 2, ANSWER][self.random.below(3)];
                for _ in 0..pieces {
                    let data = ToCloud::StreamData { stream, data: vec![b'['; PIECE] };
                    self.done.cases += 1;
                    self.send(socket, Message::text(encode(&data))).await?;
                }
            }
        }
        Ok(acknowledged)
    }
}

/// Whether the bridge answers each message of this flood.
fn waits(flood: Flood) -> bool {
    use Flood::{
        CsiDrivers, Devices, Events, GiantMirrorPods, GiantNodes, MirrorPods, NodeStatuses, PodStatuses, Tokens,
        UnknownPods,
    };
    matches!(
        flood,
        CsiDrivers
            | Devices
            | Events
            | GiantMirrorPods
            | GiantNodes
            | MirrorPods
            | NodeStatuses
            | PodStatuses
            | Tokens
            | UnknownPods
    )
}

/// Requests the log of this pod and reads it, without end.
pub(crate) async fn read_log(client: Client, pod: String) {
    loop {
        let path = format!("/api/v1/namespaces/default/pods/{pod}/log?follow=true");
        if let Ok(request) = http::Request::get(path).body(Vec::new())
            && let Ok(lines) = client.request_stream(request).await
        {
            // The node may send it without end.
            let (mut lines, mut bytes) = (std::pin::pin!(lines), Vec::new());
            let read = futures::io::AsyncReadExt::read_to_end(&mut lines, &mut bytes);
            let _ended = tokio::time::timeout(Duration::from_secs(2), read).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
