//! The hostile node: connects with a valid certificate, says hello, and sends what `cases` contains; answers streams
//! with nonsense; reconnects at once after it was disconnected. Owns the attack and its counters.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_tungstenite::tungstenite::Message;
use edge_protocol::frame::encode;
use edge_protocol::message::{ObjectRef, ToCloud};
use edge_protocol::{compress, wire};
use futures::StreamExt;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::cases::{self, Random, Step};
use crate::fleet::Counters;
use crate::wire::{Socket, dial};

/// Maximum number of frames of one connection.
const PER_CONNECTION: usize = 64;

/// Counters of the attack.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) connections: u64,
    pub(crate) refused: u64,
    pub(crate) frames: u64,
    pub(crate) cases: usize,
    pub(crate) streams: u64,
}

pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) bridge: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) node: Value,
    pub(crate) pod: ObjectRef,
    pub(crate) random: Random,
    pub(crate) done: Done,
    pub(crate) counters: Rc<Counters>,
}

/// Message, position in it, and wrong value.
type Case = (usize, Vec<Step>, usize);

impl Peer {
    /// Runs until `end`; starts over with the first position after all were tried.
    pub(crate) async fn run(&mut self, end: Instant) {
        let honest = cases::honest(&self.name, &self.node, &self.pod);
        let odd = cases::odd();
        let mut all: Vec<Case> = Vec::new();
        for (number, message) in honest.iter().enumerate() {
            for path in cases::paths(message) {
                all.extend((0..odd.len()).map(|value| (number, path.clone(), value)));
            }
        }
        self.random.shuffle(&mut all);
        let mut next = all.iter().cycle();
        while Instant::now() < end {
            match dial(60_000, self.bridge, Arc::clone(&self.tls), Rc::clone(&self.counters)).await {
                Ok(socket) => {
                    self.done.connections += 1;
                    // Reconnects, whatever the reason of the end.
                    let _ = self.connection(socket, &honest, &odd, &mut next, end).await;
                }
                Err(_) => {
                    self.done.refused += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn connection<'a>(
        &mut self,
        mut socket: Socket,
        honest: &[Value],
        odd: &[Value],
        next: &mut impl Iterator<Item = &'a Case>,
        end: Instant,
    ) -> anyhow::Result<()> {
        // Usually a valid hello: the messages after it matter more.
        let hello = serde_json::to_value(cases::hello(&self.name))?;
        let mut texts = vec![hello.to_string()];
        if self.random.below(8) == 0 {
            texts = vec![honest[self.random.below(2)].to_string(), hello.to_string()];
        }
        for text in texts {
            self.send(&mut socket, Message::text(text)).await?;
        }
        for _ in 0..PER_CONNECTION {
            if Instant::now() >= end {
                break;
            }
            match self.random.below(16) {
                0 => {
                    let junk = cases::junk(&mut self.random);
                    self.send(&mut socket, Message::binary(junk)).await?;
                }
                // Repeated messages, and messages out of order.
                1 => {
                    let text = honest[self.random.below(honest.len())].to_string();
                    for _ in 0..self.random.below(100) {
                        self.send(&mut socket, Message::text(text.clone())).await?;
                    }
                }
                2 => {
                    let empty = ToCloud::StreamData { stream: self.random.below(4) as u64, data: Vec::new() };
                    for _ in 0..200 {
                        self.send(&mut socket, Message::text(encode(&empty))).await?;
                    }
                }
                _ => {
                    let Some((number, path, value)) = next.next() else { break };
                    self.done.cases += 1;
                    let mut message = cases::with(&honest[*number], path, &odd[*value]);
                    if let Some(id) = message.pointer_mut("/up/id").filter(|id| id.as_u64() == Some(1)) {
                        *id = json!(self.done.cases);
                    }
                    let text = message.to_string();
                    let packed = compress::pack(&text).filter(|_| self.random.below(2) == 0);
                    self.send(&mut socket, packed.map_or_else(|| Message::text(text), Message::binary)).await?;
                }
            }
            self.answer(&mut socket).await?;
        }
        Ok(())
    }

    pub(crate) async fn send(&mut self, socket: &mut Socket, message: Message) -> anyhow::Result<()> {
        self.done.frames += 1;
        // A bridge reads slowly from a flooding client, as it should; waiting for it forever would test nothing.
        Ok(tokio::time::timeout(Duration::from_secs(5), socket.send(message)).await??)
    }

    /// Receives what has arrived, and answers requests with nonsense.
    async fn answer(&mut self, socket: &mut Socket) -> anyhow::Result<()> {
        while let Ok(came) = tokio::time::timeout(Duration::from_millis(2), socket.next()).await {
            let text = match came {
                Some(Ok(Message::Text(text))) => text.to_string(),
                Some(Ok(Message::Binary(bytes))) => match wire::read(&bytes, true) {
                    Ok(wire::Content::Text(text)) => text,
                    _ => continue,
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => anyhow::bail!("closed"),
                Some(Ok(_)) => continue,
            };
            let asked: Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(stream) = asked["streamOpen"]["stream"].as_u64() {
                self.done.streams += 1;
                let many = [b"[".as_slice(), &b"{\"\":0},".repeat(8_000), b"0]"].concat();
                let nonsense: [&[u8]; 7] = [
                    &many,
                    b"[]",
                    b"{\"pods\":[1,{\"containers\":[1]}],\"node\":[]}",
                    b"1",
                    b"\xff\xff",
                    b"",
                    b"{\"node\":{\"cpu\":[]}}",
                ];
                let data = nonsense[self.random.below(nonsense.len())].to_vec();
                for message in [ToCloud::StreamData { stream, data }, ToCloud::StreamEnd { stream, error: None }] {
                    self.send(socket, Message::text(encode(&message))).await?;
                }
            }
        }
        Ok(())
    }
}
