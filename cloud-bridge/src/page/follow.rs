//! Feeds the board: Node objects from a separate watch, pods from the bridge's watch, links from a check twice a
//! second; and sends changes to streams.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::broadcast::{self, Receiver, Sender};

use super::board::{Board, PageNode, Phase, PodSeen};
use super::packed::{self, Pack};
use super::stream::event;
use crate::bridge::slim::SlimPod;
use crate::bridge::{BRIDGED_LABEL, Bridge};
use apimachinery::pace::in_slices;
use apimachinery::well_known::PAGE;

/// Interval of checking the links while a browser is watching, and otherwise.
const LOOKS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
/// Batches of changes that may wait for a slow stream.
const BATCHES: usize = 8;
/// Bytes of the first rows of a stream that are in memory at a time: a slow reader holds no more.
const PART: usize = 256 << 10;

/// The board, and the subscribers to its changes.
pub(super) struct Live {
    board: Mutex<Board>,
    news: Sender<Bytes>,
}

impl Live {
    pub(super) fn new(replicated: bool) -> Arc<Self> {
        Arc::new(Self { board: Mutex::new(Board::new(replicated)), news: broadcast::channel(BATCHES).0 })
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of all nodes for [`Live::rows`], and a receiver of later changes.
    pub(super) fn subscribe(&self) -> (Vec<Arc<str>>, Receiver<Bytes>) {
        let board = self.board();
        (board.names(""), self.news.subscribe())
    }

    /// The first events of a stream: rows of the nodes in `left` as events `part`, the last as `all`. What changes before
    /// its row is taken comes as news, too.
    pub(super) fn rows(self: Arc<Self>, left: Vec<Arc<str>>, packs: bool) -> impl Stream<Item = Bytes> + Send {
        let begun: Pack = packed::begun;
        futures::stream::unfold(Some((left, begun)), move |state| {
            let live = Arc::clone(&self);
            async move {
                let (mut left, pack) = state?;
                let text = live.board().part(&mut left, PART, SystemTime::now());
                let part = event(if left.is_empty() { "all" } else { "part" }, &text);
                // Where that does not work, the stream ends, and the browser begins another.
                let part = if packs { packed::aside(part, pack).await? } else { part };
                let later: Pack = packed::part;
                let next = if left.is_empty() { None } else { Some((left, later)) };
                Some((part, next))
            }
        })
    }

    /// Handles an event of the watch of all pods.
    pub(super) fn pods(&self, event: &Event<SlimPod>) {
        let (mut board, now) = (self.board(), SystemTime::now());
        match event {
            Event::Init => board.list_pods(),
            Event::InitApply(pod) | Event::Apply(pod) => board.pod(seen(pod), now),
            Event::InitDone => board.pods_listed(now),
            Event::Delete(pod) => {
                let seen = seen(pod);
                board.pod_gone(seen.namespace, seen.name, now);
            }
        }
    }

    fn look(&self, bridge: &Bridge) {
        let (mut board, now) = (self.board(), SystemTime::now());
        board.look();
        bridge.each_link(|name, link| board.link(name, link, now));
        board.looked(now);
        if self.news.receiver_count() == 0 {
            return board.skip();
        }
        if let Some(text) = board.take(now) {
            // The receiver may be gone.
            let _ = self.news.send(event("rows", &text));
        }
    }

    /// Checks the links forever.
    pub(super) async fn look_on(&self, bridge: &Bridge) {
        loop {
            self.look(bridge);
            let (watched, alone) = LOOKS;
            tokio::time::sleep(if self.news.receiver_count() > 0 { watched } else { alone }).await;
        }
    }

    /// Follows the Node objects until the client is gone.
    pub(super) async fn nodes(&self, client: Client) {
        let nodes: Api<PageNode> = Api::all(client);
        let config = watcher::Config::default().page_size(PAGE).labels(BRIDGED_LABEL);
        let mut events = pin!(in_slices(watcher(nodes, config).default_backoff()));
        let mut listed = HashSet::new();
        while let Some(event) = events.next().await {
            let (mut board, now) = (self.board(), SystemTime::now());
            board.reachable(event.is_ok());
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(node)) => {
                    board.node(&node, now);
                    listed.extend(node.metadata.name);
                }
                Ok(Event::Apply(node)) => board.node(&node, now),
                Ok(Event::InitDone) => board.nodes_listed(&std::mem::take(&mut listed)),
                Ok(Event::Delete(node)) => board.node_gone(node.metadata.name.as_deref().unwrap_or_default()),
                Err(error) => log::debug!("watching nodes for the page: {error}"),
            }
        }
    }
}

fn seen(pod: &SlimPod) -> PodSeen<'_> {
    let meta = &pod.metadata;
    PodSeen {
        namespace: meta.namespace.as_deref().unwrap_or_default(),
        name: meta.name.as_deref().unwrap_or_default(),
        node: pod.node(),
        phase: Phase::of(pod.phase()),
        terminating: meta.deletion_timestamp.is_some(),
        ready: pod.is_ready(),
        restarts: pod.restarts(),
        created: meta.creation_timestamp.as_ref().map_or(0, |at| at.0.as_second()),
        reason: pod.reason(),
    }
}
