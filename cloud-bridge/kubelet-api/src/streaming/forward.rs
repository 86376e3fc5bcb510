//! Port-forward: each pair of a client's streams is one connection to a port of the pod.
//!
//! K8s staging/src/k8s.io/cri-streaming/pkg/streaming/portforward is the model: pairs of a data and an error stream
//! that share a request id, in one SPDY connection; or, for other clients, pairs of channels in a WebSocket.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_tungstenite::tungstenite::Message;
use bytes::Bytes;
use edge_protocol::channel::{CLOSE, Record, STDIN, STDOUT};
use futures::StreamExt;
use hyper::upgrade::Upgraded;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::negotiate::Transport;
use super::spdy::connection::{self, Event, Gone, Outgoing};
use super::spdy::frame;
use super::spdy::headers::{self, Headers};
use super::wire;
use crate::backend::{BackendError, Channels, KubeletBackend, PodOnNode};

/// For the second stream of a pair.
const PAIR: Duration = Duration::from_secs(30);
/// Connections of one client; the node serves fewer, but says so itself.
const MAX: usize = 256;
/// Bytes of one connection that wait for the node, before the client is held up with all of its connections.
const WAITING: usize = 1 << 20;
/// A pod that sends no more still gets what the client sends, until it sends nothing for so long (containerd and
/// socat have the same half second, for both).
const QUIET: Duration = Duration::from_millis(500);
/// Messages that wait for the socket.
const QUEUE: usize = 4;

/// Serves a client until it goes.
pub(super) async fn serve(
    upgraded: Upgraded,
    transport: Transport,
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    ports: &[u16],
) {
    let name = format!("{}/{}", pod.namespace, pod.pod);
    let served = match transport {
        Transport::Socket => over_socket(upgraded, backend, pod, ports).await,
        Transport::Spdy => over_spdy(upgraded, false, backend, pod).await,
        Transport::Tunnel => over_spdy(upgraded, true, backend, pod).await,
    };
    if let Err(error) = served {
        log::debug!("forwarding to {name}: {error}");
    }
}

/// Bytes of the client, with their share of what may wait. The end of the channel is the end of the bytes.
type Waiting = mpsc::UnboundedReceiver<(Bytes, OwnedSemaphorePermit)>;

/// The client's end of one connection.
struct Feed {
    /// None after the last.
    bytes: Option<mpsc::UnboundedSender<(Bytes, OwnedSemaphorePermit)>>,
    room: Arc<Semaphore>,
}

impl Feed {
    fn new() -> (Self, Waiting) {
        let (bytes, waiting) = mpsc::unbounded_channel();
        (Self { bytes: Some(bytes), room: Arc::new(Semaphore::new(WAITING)) }, waiting)
    }

    /// Waits for room. A connection that has ended takes everything.
    async fn give(&self, data: Bytes) {
        let Some(sender) = &self.bytes else { return };
        for from in (0..data.len()).step_by(WAITING) {
            let part = data.slice(from..data.len().min(from + WAITING));
            let bytes = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(bytes);
            tokio::select! {
                permit = room => {
                    // Neither is closed by anybody but the connection that has ended.
                    let _ = permit.map(|permit| sender.send((part, permit)));
                }
                () = sender.closed() => return,
            }
        }
    }

    fn end(&mut self) {
        self.bytes = None;
    }
}

/// A pair that is not whole yet.
struct Pair {
    since: Instant,
    port: u16,
    data: Option<(u32, Waiting)>,
    error: Option<u32>,
}

/// What the client sends on one connection, and the connection's task and error stream once it has them.
struct Live {
    feed: Feed,
    task: Option<(AbortHandle, u32)>,
}

async fn over_spdy(
    upgraded: Upgraded,
    tunnel: bool,
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
) -> io::Result<()> {
    let (wire_in, wire_out) = wire::wire(upgraded, tunnel).await;
    let (mut incoming, out, _writer) = connection::start(wire_in, wire_out);
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut live: HashMap<u32, Live> = HashMap::new();
    // Dropped with this function: the node's streams end when the client goes.
    let mut tasks = JoinSet::new();
    loop {
        let oldest = pairs.values().map(|pair| pair.since + PAIR).min();
        let event = tokio::select! {
            event = incoming.next() => event?,
            () = out.closed() => return Ok(()),
            Some(done) = tasks.join_next() => {
                if let Ok(stream) = done {
                    live.remove(&stream);
                }
                continue;
            }
            () = tokio::time::sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => {
                let late: Vec<String> =
                    pairs.iter().filter(|(_, p)| Some(p.since + PAIR) == oldest).map(|(id, _)| id.clone()).collect();
                for (id, pair) in late.into_iter().filter_map(|id| pairs.remove_entry(&id)) {
                    let why = format!("(request={id}) timed out waiting for streams");
                    give_up(&out, pair, &mut live, &why).await.map_err(io::Error::other)?;
                }
                continue;
            }
        };
        match event {
            None => return Ok(()),
            Some(Event::Open { stream, headers }) => {
                let asked = KubeletRequest::of(stream, &headers);
                let Some(asked) = asked.filter(|_| tasks.len() + pairs.len() < MAX) else {
                    out.reset(stream, frame::REFUSED_STREAM).await.map_err(io::Error::other)?;
                    continue;
                };
                out.accept(stream).await.map_err(io::Error::other)?;
                let pair = pairs.entry(asked.request.clone()).or_insert_with(|| Pair {
                    since: Instant::now(),
                    port: asked.port,
                    data: None,
                    error: None,
                });
                if asked.data {
                    let (feed, waiting) = Feed::new();
                    live.insert(stream, Live { feed, task: None });
                    pair.port = asked.port;
                    pair.data = Some((stream, waiting));
                } else {
                    pair.error = Some(stream);
                }
                if let Pair { port, data: Some((data, _)), error: Some(error), .. } = *pair
                    && let Some(Pair { data: Some((_, waiting)), .. }) = pairs.remove(&asked.request)
                {
                    let end = End::Spdy { out: out.clone(), data, error };
                    let connect = connect(Arc::clone(&backend), pod.clone(), port, waiting, end);
                    let task = tasks.spawn(async move {
                        // A client that has gone ends this function.
                        let _ = connect.await;
                        data
                    });
                    if let Some(live) = live.get_mut(&data) {
                        live.task = Some((task, error));
                    }
                }
            }
            Some(Event::Data { stream, data }) => {
                if let Some(live) = live.get(&stream) {
                    live.feed.give(data).await;
                }
            }
            Some(Event::Fin { stream }) => {
                if let Some(live) = live.get_mut(&stream) {
                    live.feed.end();
                }
            }
            Some(Event::Reset { stream }) => {
                if let Some((task, error)) = live.remove(&stream).and_then(|live| live.task) {
                    task.abort();
                    // The client waits for this to close its own connection, also when it has all it wants.
                    out.fin(error).await.map_err(io::Error::other)?;
                }
            }
        }
    }
}

/// Ends a pair that nothing will come of.
async fn give_up(out: &Outgoing, pair: Pair, live: &mut HashMap<u32, Live>, why: &str) -> Result<(), Gone> {
    if let Some(error) = pair.error {
        out.data(error, why.as_bytes()).await?;
        out.fin(error).await?;
    }
    if let Some((data, _)) = pair.data {
        live.remove(&data);
        out.reset(data, frame::CANCEL).await?;
    }
    Ok(())
}

/// What the headers of a stream ask for.
struct KubeletRequest {
    request: String,
    port: u16,
    data: bool,
}

impl KubeletRequest {
    fn of(stream: u32, headers: &Headers) -> Option<Self> {
        let data = match headers::get(headers, "streamType")? {
            "data" => true,
            "error" => false,
            _ => return None,
        };
        let port = headers::get(headers, "port")?.parse().ok().filter(|port| *port > 0)?;
        let request = match headers::get(headers, "requestID") {
            Some(id) if !id.is_empty() => id.to_owned(),
            // Clients that give no id open the error stream first, and the data stream next.
            _ => if data { stream.saturating_sub(2) } else { stream }.to_string(),
        };
        Some(Self { request, port, data })
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
        channel: u8,
    },
}

impl End {
    async fn data(&self, bytes: &[u8]) -> Result<(), Gone> {
        match self {
            Self::Spdy { out, data, .. } => out.data(*data, bytes).await,
            Self::Socket { out, channel } => message(out, *channel, bytes).await,
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
            Self::Socket { out, channel } => message(out, channel + 1, why.as_bytes()).await,
        }
    }
}

async fn message(out: &mpsc::Sender<Message>, channel: u8, bytes: &[u8]) -> Result<(), Gone> {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(channel);
    message.extend(bytes);
    out.send(Message::binary(message)).await.map_err(|_| Gone)
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
        // A client closes its own end only when it sees all of this one closed, so that somebody must go first.
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
    upgraded: Upgraded,
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    ports: &[u16],
) -> io::Result<()> {
    let (mut sender, mut receiver) = wire::websocket(upgraded).await;
    let (out, mut queue) = mpsc::channel::<Message>(QUEUE);
    let mut tasks = JoinSet::new();
    let mut feeds = Vec::new();
    let mut ends = Vec::new();
    for (port, channel) in ports.iter().zip((0_u8..).step_by(2)) {
        let (feed, waiting) = Feed::new();
        feeds.push(feed);
        ends.push((*port, waiting, End::Socket { out: out.clone(), channel }));
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
            if let End::Socket { out, channel } = &end {
                for channel in [*channel, channel + 1] {
                    let _ = message(out, channel, &port.to_le_bytes()).await;
                }
            }
            let _ = connect(backend, pod, port, waiting, end).await;
        });
    }
    while let Some(bytes) = wire::next_message(&mut receiver).await? {
        let feed =
            bytes.first().filter(|channel| **channel % 2 == 0).and_then(|channel| feeds.get(usize::from(channel / 2)));
        if let Some(feed) = feed {
            feed.give(bytes.slice(1..)).await;
        }
    }
    Ok(())
}
