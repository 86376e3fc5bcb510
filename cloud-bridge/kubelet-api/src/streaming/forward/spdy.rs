//! Port-forward over SPDY: which streams of a client belong together, and the connection that each pair is.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::Upgraded;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::connection::{End, connect};
use super::waiting::{Budget, EARLY, Feed, Waiting};
use crate::backend::{KubeletBackend, PodOnNode};
use crate::streaming::spdy::connection::{self, Event, Gone, Outgoing};
use crate::streaming::spdy::frame;
use crate::streaming::spdy::headers::{self, Headers};
use crate::streaming::wire;

/// Connections of one client; the node serves fewer, but says so itself.
const MAX: usize = 256;
/// Timeout for the second stream of a pair.
const PAIR: Duration = Duration::from_secs(30);
/// Maximum length of a request id, in bytes. Clients send numbers; ids of incomplete pairs are kept.
const REQUEST_MAX: usize = 64;

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
    /// Bytes that came before the task.
    early: usize,
    task: Option<(AbortHandle, u32)>,
}

/// The streams of one client.
struct Client {
    out: Outgoing,
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
    /// Pairs by request id.
    pairs: HashMap<String, Pair>,
    /// Streams by data stream.
    live: HashMap<u32, Live>,
    /// Dropped with this: the node's streams end when the client goes.
    tasks: JoinSet<u32>,
    budget: Budget,
}

pub(super) async fn serve(
    upgraded: Upgraded,
    tunnel: bool,
    backend: Arc<dyn KubeletBackend>,
    pod: PodOnNode,
) -> io::Result<()> {
    let (wire_in, wire_out) = wire::wire(upgraded, tunnel, &pod.flow).await;
    let (mut incoming, out, _writer) = connection::start(wire_in, wire_out);
    let (pairs, live) = (HashMap::new(), HashMap::new());
    let mut client =
        Client { out: out.clone(), backend, pod, pairs, live, tasks: JoinSet::new(), budget: Budget::default() };
    loop {
        let oldest = client.pairs.values().map(|pair| pair.since + PAIR).min();
        tokio::select! {
            event = incoming.next() => match event? {
                Some(event) => client.take(event).await.map_err(io::Error::other)?,
                None => return Ok(()),
            },
            () = out.closed() => return Ok(()),
            Some(done) = client.tasks.join_next() => {
                if let Ok(stream) = done {
                    client.live.remove(&stream);
                }
            }
            () = tokio::time::sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => {
                client.give_up_pairs_of(oldest).await.map_err(io::Error::other)?;
            }
        }
    }
}

impl Client {
    async fn take(&mut self, event: Event) -> Result<(), Gone> {
        match event {
            Event::Open { stream, headers } => self.open(stream, &headers).await?,
            Event::Data { stream, data } => {
                let Some(live) = self.live.get_mut(&stream) else { return Ok(()) };
                live.early += if live.task.is_none() { data.len() } else { 0 };
                if live.early > EARLY && live.task.is_none() {
                    // Its pair keeps the place until its time is over.
                    self.live.remove(&stream);
                    return self.out.reset(stream, frame::CANCEL).await;
                }
                live.feed.give(&data).await;
            }
            Event::Fin { stream } => {
                if let Some(live) = self.live.get_mut(&stream) {
                    live.feed.end();
                }
            }
            Event::Reset { stream } => {
                if let Some((task, error)) = self.live.remove(&stream).and_then(|live| live.task) {
                    task.abort();
                    // The client waits for this to close its own connection, also when it has all it wants.
                    self.out.fin(error).await?;
                }
            }
        }
        Ok(())
    }

    async fn open(&mut self, stream: u32, headers: &Headers) -> Result<(), Gone> {
        let asked = KubeletRequest::of(stream, headers);
        let Some(asked) = asked.filter(|_| self.tasks.len() + self.pairs.len() < MAX) else {
            return self.out.reset(stream, frame::REFUSED_STREAM).await;
        };
        // K8s cri-streaming pkg/streaming/portforward httpStreamPair.add: a stream of which the pair has one is refused.
        let has = |pair: &Pair| if asked.data { pair.data.is_some() } else { pair.error.is_some() };
        if self.pairs.get(&asked.request).is_some_and(has) {
            return self.out.reset(stream, frame::REFUSED_STREAM).await;
        }
        self.out.accept(stream).await?;
        let (since, port) = (Instant::now(), asked.port);
        let pair = self.pairs.entry(asked.request.clone()).or_insert(Pair { since, port, data: None, error: None });
        if asked.data {
            let (feed, waiting) = Feed::new(&self.budget);
            self.live.insert(stream, Live { feed, early: 0, task: None });
            pair.port = port;
            pair.data = Some((stream, waiting));
        } else {
            pair.error = Some(stream);
        }
        if let Pair { port, data: Some((data, _)), error: Some(error), .. } = *pair
            && let Some(Pair { data: Some((_, waiting)), .. }) = self.pairs.remove(&asked.request)
        {
            let end = End::Spdy { out: self.out.clone(), data, error };
            let connect = connect(Arc::clone(&self.backend), self.pod.clone(), port, waiting, end);
            let task = self.tasks.spawn(async move {
                // A client that has gone ends the whole.
                let _ = connect.await;
                data
            });
            if let Some(live) = self.live.get_mut(&data) {
                live.task = Some((task, error));
            }
        }
        Ok(())
    }

    /// Gives up pairs that are incomplete at this time.
    async fn give_up_pairs_of(&mut self, then: Option<Instant>) -> Result<(), Gone> {
        let is_late = |pair: &Pair| Some(pair.since + PAIR) == then;
        let late: Vec<String> = self.pairs.iter().filter(|(_, pair)| is_late(pair)).map(|(id, _)| id.clone()).collect();
        for (id, pair) in late.into_iter().filter_map(|id| self.pairs.remove_entry(&id)) {
            if let Some(error) = pair.error {
                let why = format!("(request={id}) timed out waiting for streams");
                self.out.data(error, why.as_bytes()).await?;
                self.out.fin(error).await?;
            }
            if let Some((data, _)) = pair.data {
                self.live.remove(&data);
                self.out.reset(data, frame::CANCEL).await?;
            }
        }
        Ok(())
    }
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
            Some(id) if id.len() > REQUEST_MAX => return None,
            Some(id) if !id.is_empty() => id.to_owned(),
            // Clients that give no id open the error stream first, and the data stream next.
            _ => if data { stream.saturating_sub(2) } else { stream }.to_string(),
        };
        Some(Self { request, port, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_is_short() {
        let request = |stream: u32, kind: &str, id: &str| {
            let headers = [("streamtype", kind), ("port", "80"), ("requestid", id)];
            let headers: Headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            KubeletRequest::of(stream, &headers).map(|asked| asked.request)
        };
        assert_eq!(request(3, "data", "7").as_deref(), Some("7"));
        assert_eq!((request(3, "error", "").as_deref(), request(5, "data", "").as_deref()), (Some("3"), Some("3")));
        assert!(request(3, "data", &"7".repeat(REQUEST_MAX)).is_some());
        assert!(request(3, "data", &"7".repeat(REQUEST_MAX + 1)).is_none());
    }
}
