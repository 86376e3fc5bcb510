//! One SPDY connection of a client: its frames in order, and a writer that its streams share.
//!
//! What comes is asked for, so that a stream that cannot go on holds the connection up and with it the client, as in
//! Kubernetes' own server. What goes waits in a short queue, one frame of each stream at a time.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::frame::{self, Decoder, Encoder, Frame};
use super::headers::Headers;
use crate::streaming::wire::{WireIn, WireOut};

/// Frames that wait for the socket.
const QUEUE: usize = 4;
/// How often the client is spoken to, so that one that has gone is noticed also when nothing is read from it.
const PING: Duration = Duration::from_secs(5);

/// Timeout for the client to close after this side.
const LINGER: Duration = Duration::from_secs(5);

/// What a client does with its streams.
#[derive(Debug)]
pub(crate) enum Event {
    Open {
        stream: u32,
        headers: Headers,
    },
    Data {
        stream: u32,
        data: Bytes,
    },
    /// Nothing more comes on this stream.
    Fin {
        stream: u32,
    },
    /// Nothing more comes, and nothing more is wanted.
    Reset {
        stream: u32,
    },
}

/// The client's side.
pub(crate) struct Incoming {
    wire: WireIn,
    decoder: Decoder,
    /// Sender of answers; `None` after the last one.
    out: Option<Outgoing>,
    newest: u32,
    /// Follows from the frame before.
    then: Option<Event>,
}

/// Our side. Cheap to clone; the connection closes when all clones are gone.
#[derive(Clone)]
pub(crate) struct Outgoing {
    frames: mpsc::Sender<Vec<u8>>,
    encoder: Arc<Mutex<Encoder>>,
}

/// The connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("the client has gone")]
pub(crate) struct Gone;

/// Starts the writer. It ends when the connection is closed or the last sender is gone.
pub(crate) fn start(wire: WireIn, out: WireOut) -> (Incoming, Outgoing, JoinHandle<()>) {
    let (frames, queue) = mpsc::channel(QUEUE);
    let writer = tokio::spawn(async move {
        if let Err(error) = write(out, queue).await {
            log::debug!("a streaming client: {error}");
        }
    });
    let out = Outgoing { frames, encoder: Arc::default() };
    (Incoming { wire, decoder: Decoder::default(), out: Some(out.clone()), newest: 0, then: None }, out, writer)
}

async fn write(mut wire: WireOut, mut queue: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    // Numbers of a server's pings are even.
    let mut id = 0_u32;
    loop {
        match tokio::time::timeout(PING, queue.recv()).await {
            Ok(Some(bytes)) => wire.write(bytes).await?,
            Ok(None) => return wire.close().await,
            Err(_) => {
                id = id.wrapping_add(2);
                wire.write(frame::ping(id)).await?;
            }
        }
    }
}

impl Incoming {
    /// The next event; none when the client has closed.
    ///
    /// # Errors
    /// The connection broke, or the client does not speak SPDY.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Event>> {
        if let Some(event) = self.then.take() {
            return Ok(Some(event));
        }
        loop {
            let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? else {
                match self.wire.read().await? {
                    Some(bytes) => self.decoder.push(&bytes),
                    None => return Ok(None),
                }
                continue;
            };
            let event = match frame {
                Frame::SynStream { stream, fin, headers } => {
                    if stream <= self.newest || stream % 2 == 0 {
                        self.send(frame::reset(stream, frame::PROTOCOL_ERROR)).await?;
                        continue;
                    }
                    self.newest = stream;
                    self.then = fin.then_some(Event::Fin { stream });
                    Event::Open { stream, headers }
                }
                Frame::Data { stream, fin, data } => {
                    let fin = fin.then_some(Event::Fin { stream });
                    if data.is_empty() {
                        let Some(fin) = fin else { continue };
                        return Ok(Some(fin));
                    }
                    self.then = fin;
                    Event::Data { stream, data }
                }
                Frame::Headers { stream, fin: true } => Event::Fin { stream },
                Frame::Reset { stream, .. } => Event::Reset { stream },
                // Numbers of a client's pings are odd; the others answer ours.
                Frame::Ping { id } if id % 2 == 1 => {
                    self.send(frame::ping(id)).await?;
                    continue;
                }
                Frame::GoAway | Frame::Ping { .. } | Frame::SynReply { .. } | Frame::Headers { .. } | Frame::Other => {
                    continue;
                }
            };
            return Ok(Some(event));
        }
    }

    /// The newest stream of the client.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    async fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match &self.out {
            Some(out) => out.send(bytes).await.map_err(io::Error::other),
            None => Ok(()),
        }
    }

    /// Lets the writer close when the other clones are gone, and waits for the client to do the same, a while at
    /// most: a socket that is closed with bytes unread takes those with it that are still on their way out.
    pub(crate) async fn finish(mut self, writer: JoinHandle<()>) {
        self.out = None;
        let last = async {
            // How it ended does not matter any more.
            let _ = writer.await;
            while let Ok(Some(_)) = self.next().await {}
        };
        let _ = tokio::time::timeout(LINGER, last).await;
    }
}

impl Outgoing {
    async fn send(&self, bytes: Vec<u8>) -> Result<(), Gone> {
        self.frames.send(bytes).await.map_err(|_| Gone)
    }

    /// Accepts a stream; before this the client takes no data on it.
    pub(crate) async fn accept(&self, stream: u32) -> Result<(), Gone> {
        // In the order of their making, as compressed headers must be: the place in the queue comes first.
        let place = self.frames.reserve().await.map_err(|_| Gone)?;
        let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        place.send(encoder.syn_reply(stream));
        Ok(())
    }

    pub(crate) async fn data(&self, stream: u32, data: &[u8]) -> Result<(), Gone> {
        self.send(frame::data(stream, false, data)).await
    }

    pub(crate) async fn fin(&self, stream: u32) -> Result<(), Gone> {
        self.send(frame::data(stream, true, &[])).await
    }

    pub(crate) async fn reset(&self, stream: u32, status: u32) -> Result<(), Gone> {
        self.send(frame::reset(stream, status)).await
    }

    pub(crate) async fn go_away(&self, last: u32) -> Result<(), Gone> {
        self.send(frame::go_away(last)).await
    }

    /// Waits until the way out is closed.
    pub(crate) async fn closed(&self) {
        self.frames.closed().await;
    }
}
