//! One task per connected node: moves frames between the websocket and the session value, and carries out what
//! the session says. No decisions of its own about order, resume or refusal: those are the session's.

mod budget;
mod large;
mod serving;
mod socket;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_tungstenite::WebSocketReceiver;
use async_tungstenite::tungstenite::Error as SocketError;
use edge_protocol::SessionError;
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::message::{ObjectKey, RenewAnswer, Report, TokenAnswer, TokenRequest};
use edge_protocol::version::RefuseReason;
use futures::channel::mpsc;
use futures::future::{BoxFuture, FusedFuture, poll_fn};
use futures::io::{AsyncRead, AsyncWrite};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, SinkExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Shared;
use super::credential::Credential;
use super::lanes::{Answer, Attempt, Lane, Lanes, Outcome, describe};
use super::lease::{self, Renewal};
use super::nacks::Nacks;
use super::node::{Command, Link, Node, Open, Pulse};
use super::reports::{Reports, refusal_event};
use super::requests::Requests;
use crate::pki::clock;
use apimachinery::panics;
use budget::{Budget, TURN};
use large::Large;
use sampan_log::printable::printable;
use serving::Serving;
pub use socket::Socket;
use socket::{Frame, next_frame, outgoing, write};

/// Requests of one node under way at the API at the same time.
const CONCURRENCY: usize = 8;
/// Of events fewer: they must not stand in the way of what somebody waits for.
const EVENTS_CONCURRENCY: usize = 1;
/// Frames that wait for the socket, and one more; the rest waits in the session, where newer replaces older.
const OUT: usize = 3;
/// A node may keep others waiting outside for so long.
const COMING_IN: Duration = Duration::from_secs(5);
/// How often the clock is asked whether the certificate of a connection has ended.
const CLOCK_LOOK: Duration = Duration::from_secs(600);
/// For the last frame of a connection that is being closed.
const FLUSH: Duration = Duration::from_secs(2);

/// Work at the API that the session waits for.
enum Done {
    Report(Attempt, Outcome),
    /// The renewal for a frame that came then.
    Lease(Duration, kube::Result<()>),
    Token(u64, TokenAnswer),
    Renewed(RenewAnswer),
    /// A newer connection of the node is at another bridge: nothing more may be written for this one.
    Fenced,
    /// A large object may go.
    Large(OwnedSemaphorePermit),
    /// Nothing is to be told to the node.
    Quiet,
}

type Work = FuturesUnordered<BoxFuture<'static, Done>>;

/// Serves one connection until it ends.
pub(super) async fn run<S>(
    shared: Arc<Shared>,
    node: Arc<Node>,
    credential: Credential,
    socket: Socket<S>,
    place: Option<OwnedSemaphorePermit>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, commands) = mpsc::unbounded();
    let link = node.attach(sender, credential.issued, shared.elsewhere(&node.name), SystemTime::now());
    let name = node.name.clone();
    let mut connection = Connection::new(shared, Arc::clone(&node), credential, &link);
    connection.place = place;
    let served = panics::isolate(format!("node {name}"), connection.serve(socket, commands)).await;
    let why = served.unwrap_or_else(|| "a panic of the bridge".to_owned());
    log::info!("node {name}: connection {} ended: {}", link.session, printable(why));
    connection.streams.fail(&name);
    let silence = connection.now().saturating_sub(connection.session.last_heard());
    node.detach(link.session, SystemTime::now() - silence);
}

/// The next frame, not before it is this node's turn. Nothing is lost when it is dropped.
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
    credential: Credential,
    session: BridgeSession,
    start: Instant,
    lanes: Lanes,
    reports: Arc<Reports>,
    slots: Arc<Semaphore>,
    event_slots: Arc<Semaphore>,
    work: Work,
    renewal: Renewal,
    nacks: Nacks,
    budget: Budget,
    requests: Requests,
    streams: Serving,
    /// Held while the node comes in.
    place: Option<OwnedSemaphorePermit>,
    large: Large,
}

/// In what time this many nodes tell the statuses of their pods again after a restart of the bridge. Each is a request to the
/// API that changes nothing, of about a millisecond of CPU, and a node has ten pods or more: so a sixth of a core.
fn repeat_within(nodes: usize) -> Duration {
    const EACH: Duration = Duration::from_millis(60);
    const LEAST: Duration = Duration::from_secs(10);
    EACH.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).max(LEAST)
}

impl Connection {
    fn new(shared: Arc<Shared>, node: Arc<Node>, credential: Credential, link: &Link) -> Self {
        let mut settings = BridgeSettings::new(node.name.clone(), shared.cluster.clone(), link.session);
        settings.heartbeat = shared.settings.heartbeat;
        settings.compress = true;
        settings.large_by_turns = true;
        settings.repeat_within = Some(repeat_within(shared.members.count()));
        settings.identity = Some(credential.terms(clock::now()));
        let session = BridgeSession::new(settings, &mut node.state(), Duration::ZERO);
        let requests = shared.clients.requests_as(&node.name);
        let own = Requests::new(shared.clients.own().clone());
        let overrides = shared.overrides(&node.name);
        let mut reports = Reports::new(Arc::clone(&node), link.session, requests.clone(), own, overrides);
        reports.replicated = shared.settings.replicated;
        Self {
            session,
            start: Instant::now(),
            lanes: Lanes::default(),
            reports: Arc::new(reports),
            slots: Arc::new(Semaphore::new(CONCURRENCY)),
            event_slots: Arc::new(Semaphore::new(EVENTS_CONCURRENCY)),
            work: Work::new(),
            renewal: Renewal::default(),
            nacks: Nacks::default(),
            budget: Budget::default(),
            requests,
            streams: Serving::default(),
            place: None,
            large: Large::No,
            shared,
            node,
            credential,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// When to look again whether its certificate has ended: the clock may be set meanwhile.
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
        let node = Arc::clone(&self.node);
        let ended = loop {
            let not_before = self.start + self.budget.not_before();
            self.take_events();
            self.come_in();
            if pending.is_none() {
                pending = self.session.poll_frame(&node.state(), self.start.elapsed());
            }
            self.take_turns();
            if pending.is_none() && self.session.may_send_large() {
                pending = self.session.poll_frame(&node.state(), self.start.elapsed());
            }
            let deadline = self.renewal.deadline().unwrap_or(Duration::MAX).min(self.session.next_timeout());
            let deadline = deadline.min(self.large.deadline());
            let deadline = tokio::time::Instant::from_std(self.start + deadline);
            let step = tokio::select! {
                // Frames are taken last: what has arrived is worked off before more is let in.
                biased;
                written = &mut writer => Err(written.map_or_else(|e| e.to_string(), |()| "closed".to_owned())),
                room = poll_fn(|cx| out.poll_ready(cx)), if pending.is_some() => {
                    if let (Ok(()), Some(frame)) = (room, pending.take()) {
                        let begun = self.now();
                        // There is room, and a writer that has ended says so by itself.
                        let _ = out.start_send(outgoing(frame));
                        if self.now() >= begun + TURN {
                            // It was packed: others have waited.
                            tokio::task::yield_now().await;
                        }
                    }
                    Ok(())
                }
                Some(done) = self.work.next(), if !self.work.is_empty() => self.finish(done),
                Some(command) = commands.next() => self.command(command),
                () = node.changed.notified() => Ok(()),
                frame = read(not_before, &mut receiver) => match frame {
                    Ok(frame) => {
                        let begun = self.now();
                        let taken = self.take(&frame);
                        if self.budget.spend(begun, self.now()) {
                            // Others have waited.
                            tokio::task::yield_now().await;
                        }
                        taken
                    }
                    Err(error) => Err(error.to_string()),
                },
                () = tokio::time::sleep(COMING_IN), if self.place.is_some() => Ok(()),
                // The next connection is made with its successor, or not at all.
                () = &mut expiry => match self.expires_in() {
                    Duration::ZERO => Err("its certificate has come to its end".to_owned()),
                    left => {
                        expiry.set(tokio::time::sleep(left));
                        Ok(())
                    }
                },
                () = tokio::time::sleep_until(deadline) => {
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
        // A refusal is of use only when it arrives.
        let flush = async {
            while let Some(frame) = pending.take().or_else(|| self.session.poll_frame(&node.state(), Duration::ZERO)) {
                if out.send(outgoing(frame)).await.is_err() {
                    break;
                }
            }
            drop(out);
        };
        if !writer.is_terminated() {
            let flushed = async { tokio::join!(flush, writer.as_mut().map(drop)) };
            // Whether the peer still listens is its affair.
            let _ = tokio::time::timeout(FLUSH, flushed).await;
        }
        ended
    }

    fn take(&mut self, frame: &Frame) -> Result<(), String> {
        let taken = self.frame(frame);
        self.note();
        taken.map_err(|error| error.to_string())
    }

    /// Makes room for the next one when this node has acknowledged its list and has nothing more to report, or takes
    /// too long over it.
    fn come_in(&mut self) {
        if self.place.is_none() {
            return;
        }
        let done = self.session.acked().is_some() && self.session.report_bytes() == 0;
        if done || self.now() > COMING_IN {
            self.place = None;
        }
    }

    /// Asks for a turn to send large objects, and gives it back when the node has them or is too slow.
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
            // Its window keeps it from more than one at a time.
            Large::Held { .. } if wants => self.session.allow_large(),
            _ => {}
        }
    }

    /// Tells how it goes to whoever asks.
    fn note(&self) {
        let pulse = Pulse {
            heard: Some(SystemTime::now()),
            acked: self.session.acked(),
            down_bytes: self.session.in_flight(),
            up_bytes: self.session.report_bytes(),
            rtt_ms: self.session.rtt_ms(),
        };
        self.node.note(self.session.session(), pulse);
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let now = self.now();
        match frame {
            Frame::Text(text) => self.session.handle(&mut self.node.state(), text, now)?,
            Frame::Binary(bytes) => self.session.handle_binary(&mut self.node.state(), bytes, now)?,
        }
        if self.session.is_welcome() && self.renewal.due(now) {
            self.renew(Duration::ZERO);
        }
        Ok(())
    }

    /// Renews the node's lease for a frame that came `ago`.
    fn renew(&mut self, ago: Duration) {
        let heard = self.now().saturating_sub(ago);
        let then = Timestamp::now() - SignedDuration::try_from(ago).unwrap_or_default();
        if self.shared.clients.renew(&self.node.name, &lease::micro_time(then)) {
            return self.renewal.done(self.now(), heard, true);
        }
        let (requests, name) = (self.requests.clone(), self.node.name.clone());
        let gate = Arc::clone(&self.shared.leases);
        let renew = async move {
            // Never closed: it lives as long as the bridge.
            let _slot = gate.acquire_owned().await;
            Done::Lease(heard, lease::renew(&requests, &name, then).await)
        };
        self.work.push(renew.boxed());
    }

    fn take_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                BridgeEvent::Connected { hello, resumed } => {
                    let how = if resumed { "resumed" } else { "full list" };
                    log::info!(
                        "node {}: connected ({}, protocol {}..{}, {how})",
                        self.node.name,
                        printable(&hello.agent),
                        hello.protocol.min,
                        hello.protocol.max
                    );
                    self.shared.connected(&self.node.name, self.session.session(), resumed);
                }
                BridgeEvent::Acked { .. } => {}
                BridgeEvent::Nacked { key, uid, reason } => self.nacked(&key, &uid, &reason),
                BridgeEvent::Report { id, report } => {
                    self.lanes.push(id, report);
                    self.begin();
                }
                BridgeEvent::Unlisted(objects) => {
                    for object in objects {
                        self.shared.look_up(&self.node.name, self.session.session(), object.key, object.uid);
                    }
                }
                BridgeEvent::TokenRequest { id, request } => self.token(id, request),
                BridgeEvent::Renew(csr) => {
                    let (shared, name, credential) =
                        (Arc::clone(&self.shared), self.node.name.clone(), self.credential.clone());
                    let renew =
                        async move { Done::Renewed(shared.renew_certificate(&name, &credential, &csr.0).await) };
                    self.work.push(renew.boxed());
                }
                BridgeEvent::Stream(event) => self.streams.event(&mut self.session, event),
            }
        }
    }

    /// Starts every attempt that may run.
    fn begin(&mut self) {
        while let Some(attempt) = self.lanes.begin() {
            let slots = if let Lane::Events(_) = attempt.lane { &self.event_slots } else { &self.slots };
            let (reports, slots, gate) =
                (Arc::clone(&self.reports), Arc::clone(slots), Arc::clone(&self.shared.writes));
            let attempt = async move {
                if !attempt.pause.is_zero() {
                    tokio::time::sleep(attempt.pause).await;
                    // Time has passed: what is old by now must not replace what a newer connection has written.
                    match reports.is_newest().await {
                        Ok(true) => {}
                        Ok(false) => return Done::Fenced,
                        Err(error) => return Done::Report(attempt, Outcome::Retry(error.to_string())),
                    }
                }
                // Never closed: the semaphores live as long as this future.
                let _slot = slots.acquire_owned().await;
                let _turn = gate.acquire_owned().await;
                let outcome = reports.write(&attempt.report).await;
                Done::Report(attempt, outcome)
            };
            self.work.push(attempt.boxed());
        }
    }

    fn finish(&mut self, done: Done) -> Result<(), String> {
        match done {
            Done::Fenced => return Err(self.supersede()),
            Done::Report(attempt, outcome) => {
                let what = format!("node {}: {}", self.node.name, describe(&attempt.report));
                match &outcome {
                    Outcome::Written => log::debug!("{what}: written"),
                    Outcome::Refused(reason) => log::warn!("{what}: refused: {}", printable(reason)),
                    Outcome::Retry(reason) | Outcome::Later(reason) => {
                        log::warn!("{what}: will be tried again: {}", printable(reason));
                    }
                }
                let registered = matches!((&outcome, &attempt.report), (Outcome::Written, Report::Node { .. }));
                // A new node's lease waited for this, and the next frame may be ten seconds away.
                if registered && self.renewal.first_due(self.now()) {
                    self.renew(Duration::ZERO);
                }
                for answer in self.lanes.finish(attempt, outcome) {
                    match answer {
                        Answer::Reported(id) => self.session.reported(id),
                        Answer::Refused(id, reason) => self.session.refuse_report(id, reason),
                    }
                }
                self.begin();
            }
            Done::Lease(heard, outcome) => {
                let now = self.now();
                self.renewal.done(now, heard, outcome.is_ok());
                match outcome {
                    Ok(()) => {}
                    // Its first report is still on the way; the lease belongs to the object that makes.
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        log::debug!("node {}: no lease before its object: {}", self.node.name, status.message);
                    }
                    Err(error) => log::warn!("node {}: its lease was not renewed: {error}", self.node.name),
                }
            }
            Done::Token(id, answer) => self.session.token(id, answer),
            Done::Renewed(answer) => self.session.renewed(answer),
            Done::Large(turn) => {
                self.large = Large::held(turn, self.now());
                self.session.allow_large();
            }
            Done::Quiet => {}
        }
        Ok(())
    }

    fn supersede(&mut self) -> String {
        self.session.refuse(RefuseReason::Superseded, "a newer connection of this node has taken over").to_string()
    }

    fn token(&mut self, id: u64, request: TokenRequest) {
        let (requests, name, slots) = (self.requests.clone(), self.node.name.clone(), Arc::clone(&self.slots));
        let ask = async move {
            // Never closed: the semaphore lives as long as this future.
            let _slot = slots.acquire_owned().await;
            Done::Token(id, super::tokens::answer(&requests, &name, &request).await)
        };
        self.work.push(ask.boxed());
    }

    fn nacked(&mut self, key: &ObjectKey, uid: &str, reason: &str) {
        let what = printable(format_args!("{} {}/{}", key.kind, key.namespace, key.name)).to_string();
        // A node speaks of what it was given, and of nothing else.
        if !self.node.state().holds(key) {
            log::debug!("node {}: cannot apply {what}, which is not its own", self.node.name);
            return;
        }
        let words = printable(reason);
        let Some(quiet) = self.nacks.tell(uid, reason, self.now()) else {
            log::debug!("node {}: cannot apply {what}: {words}", self.node.name);
            return;
        };
        let more = if quiet > 0 { format!(" (and {quiet} more refusals since the last)") } else { String::new() };
        log::warn!("node {}: cannot apply {what}: {words}{more}", self.node.name);
        let event = Report::Event { event: refusal_event(&self.node.name, key, uid, reason, Timestamp::now()) };
        let reports = Arc::clone(&self.reports);
        let write = async move {
            if let Outcome::Refused(reason) | Outcome::Retry(reason) | Outcome::Later(reason) =
                reports.write(&event).await
            {
                log::warn!("an event was lost: {}", printable(reason));
            }
            Done::Quiet
        };
        self.work.push(write.boxed());
    }

    fn command(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Superseded => return Err(self.supersede()),
            Command::SendAway(why) => return Err(self.session.refuse(RefuseReason::Forbidden, why).to_string()),
            Command::Close => return Err("the bridge ends".to_owned()),
            Command::RewriteNode => {
                let (reports, name) = (Arc::clone(&self.reports), self.node.name.clone());
                let rewrite = async move {
                    if let Outcome::Refused(reason) | Outcome::Retry(reason) | Outcome::Later(reason) =
                        reports.rewrite_node().await
                    {
                        log::warn!("node {name}: its object was not written again: {}", printable(reason));
                    }
                    Done::Quiet
                };
                self.work.push(rewrite.boxed());
            }
            Command::Open(open) => {
                let Open { request, answer } = *open;
                self.streams.open(&mut self.session, request, answer);
            }
            Command::Send { stream, data } => self.streams.send(&mut self.session, stream, data),
            Command::Consumed { stream, bytes } => self.session.stream_consumed(stream, bytes),
            Command::EndStream { stream } => self.streams.end(&mut self.session, stream),
        }
        Ok(())
    }
}
