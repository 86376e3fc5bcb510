//! One task per connected node: moves frames between the websocket and the session, and executes the session's events.
//! The session decides about order, resume and refusal.

mod budget;
mod devices;
mod large;
mod pending;
pub(super) mod pool;
mod rules;
mod serving;
mod socket;
mod work;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_tungstenite::WebSocketReceiver;
use async_tungstenite::tungstenite::{Error as SocketError, Message};
use edge_protocol::SessionError;
use edge_protocol::bridge::{BridgeSession, BridgeSettings};
use futures::channel::mpsc;
use futures::future::{FusedFuture, poll_fn};
use futures::io::{AsyncRead, AsyncWrite};
use futures::{FutureExt, SinkExt, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;

use super::credential::Credential;
use super::lease::Renewal;
use super::node::{Command, Link, LinkStats, Node};
use super::rejections::Rejections;
use super::reports::Reports;
use super::requests::Requests;
use super::shared::Shared;
use super::work_queue::WorkQueue;
use crate::pki::clock;
use apimachinery::panics;
use budget::{Budget, TURN};
use large::Large;
use pending::{Done, Rewrite, Rules, Work};
use pool::Stake;
use sampan_log::printable::printable;
use serving::Serving;
pub use socket::Socket;
use socket::{Frame, next_frame, outgoing, write};

/// Limit of concurrent requests of one node to the API.
const CONCURRENCY: usize = 8;
/// Fewer for events, which must not delay urgent requests. Concurrent events of different objects share a sync of the
/// API's disk.
const EVENTS_CONCURRENCY: usize = 4;
/// Frames that may wait for the socket, plus one. Further ones wait in the session, where newer ones replace older
/// ones.
const OUT: usize = 3;
/// Maximum time for which a node in its initial exchange may block others.
const COMING_IN: Duration = Duration::from_secs(5);
/// Interval of checks whether the certificate of a connection has expired.
const CLOCK_LOOK: Duration = Duration::from_secs(600);
/// Time for the last frame of a connection that is being closed.
const FLUSH: Duration = Duration::from_secs(2);

/// Serves one connection until it ends.
pub(super) async fn run<S>(
    shared: Arc<Shared>,
    (node, peer): (Arc<Node>, IpAddr),
    credential: Credential,
    socket: Socket<S>,
    place: Option<OwnedSemaphorePermit>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, commands) = mpsc::unbounded();
    super::counters::SESSIONS.one();
    let link = node.attach(sender, credential.issued, shared.elsewhere(&node.name), SystemTime::now());
    let (name, jobs) = (node.name.clone(), Arc::clone(&shared.jobs));
    let mut connection = Connection::new(shared, (Arc::clone(&node), peer), credential, &link);
    connection.place = place;
    let served = panics::isolate(format!("node {name}"), connection.serve(socket, commands)).await;
    let why = served.unwrap_or_else(|| "a panic of the bridge".to_owned());
    log::info!("node {name}: connection {} ended: {}", link.session, printable(why));
    connection.streams.fail(&name);
    let silence = connection.now().saturating_sub(connection.session.last_heard());
    node.detach(link.session, SystemTime::now() - silence);
    jobs.stir();
}

/// The next frame, not before the node's budget allows it. It is safe to drop the future.
async fn read<S>(not_before: Instant, receiver: &mut WebSocketReceiver<S>) -> Result<Frame, SocketError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if not_before > Instant::now() {
        tokio::time::sleep_until(not_before.into()).await;
    }
    next_frame(receiver).await
}

struct Connection {
    shared: Arc<Shared>,
    node: Arc<Node>,
    peer: IpAddr,
    credential: Credential,
    session: BridgeSession,
    start: Instant,
    work_queue: WorkQueue,
    reports: Arc<Reports>,
    slots: Arc<Semaphore>,
    event_slots: Arc<Semaphore>,
    work: Work,
    renewal: Renewal,
    rejections: Rejections,
    budget: Budget,
    stake: Stake,
    requests: Requests,
    streams: Serving,
    /// Permit of the initial exchange.
    place: Option<OwnedSemaphorePermit>,
    large: Large,
    rewrite: Rewrite,
    rules: Rules,
}

/// Time in which this number of nodes repeat the statuses of their pods after a restart of the bridge. Each is a
/// request to the API without a change, about a millisecond of CPU, and a node has ten pods or more: so a sixth of a
/// core.
fn repeat_within(nodes: usize) -> Duration {
    const EACH: Duration = Duration::from_millis(60);
    const LEAST: Duration = Duration::from_secs(10);
    EACH.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).max(LEAST)
}

impl Connection {
    fn new(shared: Arc<Shared>, (node, peer): (Arc<Node>, IpAddr), credential: Credential, link: &Link) -> Self {
        let mut settings = BridgeSettings::new(node.name.clone(), shared.cluster.clone(), link.session);
        settings.heartbeat = shared.settings.heartbeat;
        settings.compress = true;
        settings.large_by_turns = true;
        settings.repeat_within = Some(repeat_within(shared.node_access.count()));
        settings.identity = Some(credential.terms(clock::now()));
        let session = BridgeSession::new(settings, &mut node.state(), Duration::ZERO);
        let requests = shared.clients.requests_as(&node.name);
        let own = Requests::new(shared.clients.own().clone());
        let overrides = shared.overrides(&node.name);
        let mut reports = Reports::new(Arc::clone(&node), link.session, requests.clone(), own, overrides);
        reports.replicated = shared.settings.replicated;
        reports.mirror_namespaces = Arc::clone(&shared.settings.mirror_namespaces);
        reports.pod_ranges = Arc::clone(&shared.pod_ranges);
        Self {
            session,
            start: Instant::now(),
            work_queue: WorkQueue::default(),
            reports: Arc::new(reports),
            slots: Arc::new(Semaphore::new(CONCURRENCY)),
            event_slots: Arc::new(Semaphore::new(EVENTS_CONCURRENCY)),
            work: Work::new(),
            renewal: Renewal::default(),
            rejections: Rejections::default(),
            budget: Budget::default(),
            stake: Stake::new(&shared.report_pool),
            requests,
            streams: Serving::default(),
            place: None,
            large: Large::No,
            rewrite: Rewrite::default(),
            rules: Rules::default(),
            shared,
            node,
            peer,
            credential,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Time until the next check whether the certificate has expired: the clock may be set meanwhile.
    fn expires_in(&self) -> Duration {
        self.credential.left(clock::now()).min(CLOCK_LOOK)
    }

    async fn serve<S>(&mut self, socket: Socket<S>, mut commands: mpsc::UnboundedReceiver<Command>) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, mut receiver) = socket;
        let (mut out, frames) = mpsc::channel(OUT);
        let mut writer = std::pin::pin!(write(sender, frames).fuse());
        let mut pending = None;
        let expiry = tokio::time::sleep(self.expires_in());
        let mut expiry = std::pin::pin!(expiry);
        let (node, pool) = (Arc::clone(&self.node), Arc::clone(&self.shared.report_pool));
        let ended = loop {
            self.stake.set(self.session.report_weight());
            let may_read = self.stake.may_read();
            let not_before = self.start + self.budget.not_before();
            self.take_events();
            self.come_in();
            if pending.is_none() {
                pending = self.next_frame();
            } else {
                // A socket that takes nothing keeps the frame. Without this the permit's deadline stays in the past, and
                // a timer that is always due keeps the thread: no socket is polled any more.
                self.take_turns();
            }
            let deadline = tokio::time::Instant::from_std(self.start + self.deadline());
            let step = tokio::select! {
                // Frames are read last: received messages are processed before new ones are accepted.
                biased;
                written = &mut writer => Err(written.map_or_else(|e| e.to_string(), |()| "closed".to_owned())),
                room = poll_fn(|cx| out.poll_ready(cx)), if pending.is_some() => {
                    if let (Ok(()), Some(frame)) = (room, pending.take()) {
                        let started = self.now();
                        // There is room; if the writer has ended, its own result reports it.
                        let _ = out.start_send(outgoing(frame));
                        if self.now() >= started + TURN {
                            // Compressing took time for which other tasks have waited.
                            tokio::task::yield_now().await;
                        }
                    }
                    Ok(())
                }
                Some(done) = self.work.next(), if !self.work.is_empty() => self.finish(done),
                Some(command) = commands.next() => self.command(command),
                () = node.changed.notified() => Ok(()),
                () = pool.freed(), if !may_read => Ok(()),
                frame = read(not_before, &mut receiver), if may_read => match frame {
                    Ok(frame) => {
                        let started = self.now();
                        let taken = self.take(&frame);
                        if self.budget.spend(started, self.now()) {
                            // Other tasks have waited.
                            tokio::task::yield_now().await;
                        }
                        taken
                    }
                    Err(error) => Err(error.to_string()),
                },
                () = tokio::time::sleep(COMING_IN), if self.place.is_some() => Ok(()),
                // The next connection uses the successor of the certificate, or fails. Timers are checked even if work
                // uses up each step of the task.
                () = coop::unconstrained(expiry.as_mut()) => match self.expires_in() {
                    Duration::ZERO => Err("its certificate has come to its end".to_owned()),
                    left => {
                        expiry.set(tokio::time::sleep(left));
                        Ok(())
                    }
                },
                () = coop::unconstrained(tokio::time::sleep_until(deadline)) => {
                    if let Some(ago) = self.renewal.late(self.now()) {
                        self.renew(ago);
                    }
                    self.session.on_timeout(self.now()).map_err(|error| error.to_string())
                }
            };
            if let Err(why) = step {
                break why;
            }
        };
        if !writer.is_terminated() {
            let flushed = async { tokio::join!(self.flush(pending, out), writer.as_mut().map(drop)) };
            // It does not matter whether the peer still reads.
            let _ = tokio::time::timeout(FLUSH, flushed).await;
        }
        ended
    }

    /// The next frame to send. A waiting large object comes after everything else.
    fn next_frame(&mut self) -> Option<edge_protocol::wire::Frame> {
        let frame = self.session.poll_frame(&self.node.state(), self.start.elapsed());
        self.take_turns();
        if frame.is_some() || !self.session.may_send_large() {
            return frame;
        }
        self.session.poll_frame(&self.node.state(), self.start.elapsed())
    }

    fn deadline(&self) -> Duration {
        let deadline = self.renewal.deadline().unwrap_or(Duration::MAX).min(self.session.next_timeout());
        deadline.min(self.large.deadline())
    }

    /// Sends the remaining frames: a refusal is only useful if it arrives.
    async fn flush(&mut self, mut pending: Option<edge_protocol::wire::Frame>, mut out: mpsc::Sender<Message>) {
        let node = Arc::clone(&self.node);
        while let Some(frame) = pending.take().or_else(|| self.session.poll_frame(&node.state(), Duration::ZERO)) {
            if out.send(outgoing(frame)).await.is_err() {
                break;
            }
        }
    }

    fn take(&mut self, frame: &Frame) -> Result<(), String> {
        let taken = self.frame(frame);
        self.note();
        taken.map_err(|error| error.to_string())
    }

    /// Ends the initial exchange when this node has acknowledged its list and has no more reports, or takes too long.
    fn come_in(&mut self) {
        if self.place.is_none() {
            return;
        }
        let done = self.session.acked().is_some() && self.session.report_bytes() == 0;
        if done || self.now() > COMING_IN {
            self.place = None;
        }
    }

    /// Requests a permit to send large objects, and releases it when the node has them or is too slow.
    fn take_turns(&mut self) {
        let wants = self.session.wants_large();
        if self.large.is_over(wants || self.session.sends_large(), self.now()) {
            self.large = Large::No;
        }
        match &self.large {
            Large::No if wants => {
                let turn = large::turn(Arc::clone(&self.shared.large));
                self.work.push(turn.map(|turn| turn.map_or(Done::Quiet, Done::Large)).boxed());
                self.large = Large::Asked;
            }
            // The window allows only one at a time.
            Large::Held { .. } if wants => self.session.allow_large(),
            _ => {}
        }
    }

    /// Records the state of the connection for status queries.
    fn note(&self) {
        let link_stats = LinkStats {
            heard: Some(SystemTime::now()),
            acked: self.session.acked(),
            down_bytes: self.session.in_flight(),
            up_bytes: self.session.report_bytes(),
            rtt_ms: self.session.rtt_ms(),
        };
        self.node.note(self.session.session(), link_stats);
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let now = self.now();
        self.session.set_room(self.stake.room());
        match frame {
            Frame::Text(text) => self.session.handle(&mut self.node.state(), text, now)?,
            Frame::Binary(bytes) => self.session.handle_binary(&mut self.node.state(), bytes, now)?,
        }
        if self.session.is_welcome() && self.renewal.due(now) {
            self.renew(Duration::ZERO);
        }
        Ok(())
    }
}
