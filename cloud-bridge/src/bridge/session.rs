//! One task per connected node: moves frames between the websocket and the session, and executes the session's events.
//! The session decides about order, resume and refusal.
//!
//! | file | owns |
//! |---|---|
//! | `begin` | the state of a connection at its start |
//! | `work`, `pending` | what the node asks for, and what the API answers |
//! | `reporting`, `devices` | reports of the node on their way into the API |
//! | `receiving` | a frame of the node |
//! | `sending`, `large` | the next frame, and permits for large ones |
//! | `budget`, `pool` | how much a node may cost |
//! | `rules` | messages and calls of rules |
//! | `serving` | streams |
//! | `pod_requests` | requests of pods to the API |
//! | `socket` | frames of the websocket |

mod begin;
mod budget;
mod devices;
mod large;
mod pending;
mod pod_requests;
pub(super) mod pool;
mod receiving;
mod reporting;
mod rules;
mod sending;
mod serving;
mod socket;
mod work;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_tungstenite::tungstenite::Message;
use edge_protocol::bridge::BridgeSession;
use futures::channel::mpsc;
use futures::future::{FusedFuture, poll_fn};
use futures::io::{AsyncRead, AsyncWrite};
use futures::{FutureExt, SinkExt, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;

use super::api_proxy::Rate;
use super::credential::Credential;
use super::lease::Renewal;
use super::node::{Command, Node};
use super::rejections::Rejections;
use super::reports::Reports;
use super::requests::Requests;
use super::shared::Shared;
use super::work_queue::WorkQueue;
use crate::pki::clock;
use apimachinery::panics;
use budget::{Budget, TURN};
use large::Large;
use pending::{Rewrite, Rules, Work};
use pool::Stake;
use sampan_log::printable::printable;
use serving::Serving;
pub use socket::Socket;
use socket::{outgoing, read, write};

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
    let link = node.attach(sender, credential.issued, shared.nodes.elsewhere(&node.name), SystemTime::now());
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
    pod_rate: Rate,
    /// Permit of the initial exchange.
    place: Option<OwnedSemaphorePermit>,
    large: Large,
    rewrite: Rewrite,
    rules: Rules,
}

impl Connection {
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
                () = node.changed.notified() => {
                    self.end_requests_of_deleted();
                    Ok(())
                }
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

    /// Sends the remaining frames: a refusal is only useful if it arrives.
    async fn flush(&mut self, mut pending: Option<edge_protocol::wire::Frame>, mut out: mpsc::Sender<Message>) {
        let node = Arc::clone(&self.node);
        while let Some(frame) = pending.take().or_else(|| self.session.poll_frame(&node.state(), Duration::ZERO)) {
            if out.send(outgoing(frame)).await.is_err() {
                break;
            }
        }
    }
}
