//! The link's task: dials the bridges in turn, moves frames between the socket and the session, waits, again.
//!
//! Decides nothing about what the frames mean. While the node loop is busy and its channel full, nothing is
//! read from the socket, so that the bridge feels it; writing and heartbeats go on.

use super::backoff::{Backoff, GOOD};
use super::dial::{self, DialError, Socket};
use super::{LinkEvent, LinkSettings, Shared, Wakers, tls};
use async_tungstenite::tungstenite::protocol::CloseFrame;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use async_tungstenite::tungstenite::{self, Message};
use edge_protocol::SessionError;
use edge_protocol::edge::{EdgeEvent, EdgeSession};
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::RefuseReason;
use futures_sink::Sink;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use smol::channel::{Sender, TrySendError};
use smol::stream::Stream;
use smol::{Timer, future};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The node loop reads its store for the facts; if it takes longer, the bridge hangs up anyway.
const FACTS: Duration = Duration::from_secs(30);

/// For the websocket's goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Frames handled before the node loop gets a turn, and changes given to it at once.
const BATCH: usize = 64;

#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("websocket: {0}")]
    Websocket(Box<tungstenite::Error>),
    #[error("closed by the bridge{0}")]
    Closed(String),
    #[error("a binary frame came; this protocol has only text")]
    Binary,
    #[error("the node was not ready in time")]
    NoFacts,
    /// The node loop is gone: so is the link.
    #[error("stopped")]
    Stopped,
}

pub(super) async fn run(shared: Rc<Shared>, settings: LinkSettings, events: Sender<LinkEvent>, wakers: Wakers) {
    let config = match tls::node_config(&settings.identity, settings.time_floor) {
        Ok(config) => Arc::new(config),
        Err(error) => {
            log::error!("the link cannot start: {error}");
            // Nobody listening is the same as stopping.
            let _ = events.send(LinkEvent::Disconnected(error.to_string())).await;
            return;
        }
    };
    let link = Link { shared: &shared, config, events: &events, wakers: &wakers, clock: Instant::now() };
    if settings.bridges().is_empty() {
        log::error!("the link cannot start: the identity of node {} names no bridge", settings.identity.node);
    }
    let mut backoff = Backoff::default();
    for bridge in settings.bridges().iter().cycle() {
        let started = Instant::now();
        let Err(error) = link.connection(bridge).await;
        let streams = shared.session.take().map_or_else(Vec::new, |s| s.open_streams());
        if matches!(error, LinkError::Stopped) || link.bye(&error, streams).await.is_err() {
            return;
        }
        if started.elapsed() >= GOOD {
            backoff.reset();
        }
        if let LinkError::Session(SessionError::Refused { reason, .. }) = error
            && reason != RefuseReason::Superseded
        {
            backoff.refused();
        }
        let wait = backoff.next(random());
        log::debug!("next attempt in {wait:?}");
        let network = async {
            // Never closed: the handle keeps the other end.
            let _ = wakers.network_changes.recv().await;
        };
        let pause = async {
            Timer::after(wait).await;
        };
        future::or(pause, network).await;
    }
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), LinkError>> + 'a>>;

struct Link<'a> {
    shared: &'a Shared,
    config: Arc<ClientConfig>,
    events: &'a Sender<LinkEvent>,
    wakers: &'a Wakers,
    /// Zero of the session's time.
    clock: Instant,
}

impl Link<'_> {
    /// One connection from dial to its end.
    async fn connection(&self, bridge: &super::BridgeAddress) -> Result<Infallible, LinkError> {
        let tls = dial::connect(bridge, Arc::clone(&self.config)).await?;
        let mut socket = dial::upgrade(bridge, tls).await?;
        self.shared.facts.take();
        self.send(LinkEvent::NeedFacts).await?;
        let answer = async {
            loop {
                if let Some(facts) = self.shared.facts.take() {
                    return Ok(facts);
                }
                self.wakers.woken.recv().await.map_err(|_| LinkError::Stopped)?;
            }
        };
        let timeout = async {
            Timer::after(FACTS).await;
            Err(LinkError::NoFacts)
        };
        let facts = future::or(answer, timeout).await?;
        *self.shared.session.borrow_mut() = Some(EdgeSession::new(facts, self.clock.elapsed()));
        let Err(error) = self.pump(&mut socket).await;
        if let LinkError::Session(reason) = &error {
            let text = reason.to_string();
            // RFC 6455, 5.5: a control frame holds 125 bytes, two of them the code.
            let reason = text[..text.floor_char_boundary(120)].to_owned().into();
            let goodbye = async {
                // The peer may be gone already; the reason is for its log only.
                let _ = socket.close(Some(CloseFrame { code: CloseCode::Policy, reason })).await;
            };
            let limit = async {
                Timer::after(GOODBYE).await;
            };
            future::or(goodbye, limit).await;
        }
        Err(error)
    }

    async fn pump(&self, socket: &mut Socket) -> Result<Infallible, LinkError> {
        let mut pending = VecDeque::new();
        let mut timer = Timer::never();
        // Lives over many polls: a listener that is dropped hears nothing.
        let mut woken = std::pin::pin!(self.wakers.woken.clone());
        let mut armed = None;
        // A send that has to wait keeps its event, and is polled along with everything else.
        let mut sending: Option<Sending<'_>> = None;
        loop {
            while sending.is_none()
                && let Some(event) = pending.pop_front()
            {
                match self.events.try_send(event) {
                    Ok(()) => {}
                    Err(TrySendError::Full(event)) => sending = Some(Box::pin(self.send(event))),
                    Err(TrySendError::Closed(_)) => return Err(LinkError::Stopped),
                }
            }
            future::poll_fn(|cx| {
                let mut progress = false;
                if let Some(send) = &mut sending
                    && let Poll::Ready(result) = send.as_mut().poll(cx)
                {
                    sending = None;
                    result?;
                    progress = true;
                }
                let now = self.clock.elapsed();
                self.time(now, sending.is_some())?;
                self.write(socket, cx, now)?;
                if sending.is_none() {
                    self.read(socket, cx, now, &mut pending)?;
                    // What was read may have to be answered at once (acks of nothing, pings, stream ends).
                    self.write(socket, cx, now)?;
                }
                progress |= woken.as_mut().poll_next(cx).is_ready();
                let next = self.with(|s| s.next_timeout());
                if armed != Some(next) {
                    armed = Some(next);
                    timer.set_at(self.clock + next);
                }
                progress |= Pin::new(&mut timer).poll(cx).is_ready();
                if progress || !pending.is_empty() { Poll::Ready(Ok::<(), LinkError>(())) } else { Poll::Pending }
            })
            .await?;
            if armed.is_some_and(|at| at <= self.clock.elapsed()) {
                armed = None;
            }
        }
    }

    fn time(&self, now: Duration, paused: bool) -> Result<(), LinkError> {
        self.with(|session| {
            if paused {
                // It is this side that does not listen: no reason to hold the bridge for dead.
                session.heard(now);
            }
            if now >= session.next_timeout() { Ok(session.on_timeout(now)?) } else { Ok(()) }
        })
    }

    fn write(&self, socket: &mut Socket, cx: &mut Context<'_>, now: Duration) -> Result<(), LinkError> {
        let failed = |e| LinkError::Websocket(Box::new(e));
        loop {
            // A frame is taken from the session only when the socket has room: until then it may coalesce.
            match Sink::poll_ready(Pin::new(&mut *socket), cx) {
                Poll::Ready(result) => result.map_err(failed)?,
                Poll::Pending => return Ok(()),
            }
            let Some(frame) = self.with(|s| s.poll_transmit(now)) else { break };
            Sink::start_send(Pin::new(&mut *socket), Message::text(frame)).map_err(failed)?;
        }
        match Sink::poll_flush(Pin::new(socket), cx) {
            Poll::Ready(result) => result.map_err(failed),
            Poll::Pending => Ok(()),
        }
    }

    fn read(
        &self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        now: Duration,
        pending: &mut VecDeque<LinkEvent>,
    ) -> Result<(), LinkError> {
        for _ in 0..BATCH {
            match Stream::poll_next(Pin::new(&mut *socket), cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(Message::Text(text)))) => {
                    let result = self.with(|s| s.handle(&text, now));
                    self.collect(pending);
                    result?;
                }
                Poll::Ready(Some(Ok(Message::Binary(_)))) => return Err(LinkError::Binary),
                Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                    let reason = frame.map(|f| format!(": {} ({})", f.reason, f.code)).unwrap_or_default();
                    return Err(LinkError::Closed(reason));
                }
                Poll::Ready(Some(Ok(_))) => {} // websocket pings: the library answers
                Poll::Ready(Some(Err(e))) => return Err(LinkError::Websocket(Box::new(e))),
                Poll::Ready(None) => return Err(LinkError::Closed(String::new())),
            }
        }
        Ok(())
    }

    /// Session events as link events; changes and acknowledgements that follow each other go together.
    fn collect(&self, pending: &mut VecDeque<LinkEvent>) {
        self.with(|session| {
            while let Some(event) = session.poll_event() {
                match (event, pending.back_mut()) {
                    (EdgeEvent::Change(change), Some(LinkEvent::Changes { changes, .. })) if changes.len() < BATCH => {
                        changes.push(change);
                    }
                    (EdgeEvent::Change(change), _) => {
                        let stream = session.stream().to_owned();
                        pending.push_back(LinkEvent::Changes { stream, changes: vec![change] });
                    }
                    (EdgeEvent::UpAcked(id), Some(LinkEvent::UpAcked(ids))) => ids.push(id),
                    (EdgeEvent::UpAcked(id), _) => pending.push_back(LinkEvent::UpAcked(vec![id])),
                    (EdgeEvent::UpRefused(id, reason), _) => pending.push_back(LinkEvent::UpRefused(id, reason)),
                    (EdgeEvent::Welcome(welcome), _) => pending.push_back(LinkEvent::Connected(welcome)),
                    (EdgeEvent::Stream(event), _) => pending.push_back(LinkEvent::Stream(event)),
                }
            }
        });
    }

    /// Tells the node loop how the connection ended.
    async fn bye(&self, error: &LinkError, streams: Vec<u64>) -> Result<(), LinkError> {
        log::info!("link: {error}");
        for stream in streams {
            let error = Some("the link to the bridge broke".to_owned());
            self.send(LinkEvent::Stream(StreamEvent::Closed { stream, error })).await?;
        }
        if let LinkError::Session(SessionError::Refused { reason, message }) = error {
            self.send(LinkEvent::Refused(*reason, message.clone())).await?;
        }
        self.send(LinkEvent::Disconnected(error.to_string())).await
    }

    async fn send(&self, event: LinkEvent) -> Result<(), LinkError> {
        self.events.send(event).await.map_err(|_| LinkError::Stopped)
    }

    fn with<R>(&self, act: impl FnOnce(&mut EdgeSession) -> R) -> R {
        let mut session = self.shared.session.borrow_mut();
        // Set before the pump starts, taken only after it has ended.
        act(session.as_mut().expect("a session while its connection is pumped"))
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the wait is the longest: it loses the jitter, not the pause.
    if SystemRandom::new().fill(&mut bytes).is_ok() { u32::from_ne_bytes(bytes) } else { u32::MAX }
}
