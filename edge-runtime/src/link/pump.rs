//! The link's task: dials the bridges in turn, moves frames between the socket and the session, waits, again.
//!
//! Decides nothing about what the frames mean. While the node loop is busy and its channel full, nothing is
//! read from the socket, so that the bridge feels it; writing and heartbeats go on.

mod frames;

use super::backoff::{Backoff, GOOD};
use super::dial::{self, DialError};
use super::status::{LinkStatus, ago};
use super::{LinkEvent, LinkSettings, Shared, Wakers, tls};
use async_tungstenite::tungstenite;
use async_tungstenite::tungstenite::protocol::CloseFrame;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use edge_protocol::SessionError;
use edge_protocol::compress::UnpackError;
use edge_protocol::edge::EdgeSession;
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::RefuseReason;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use smol::channel::Sender;
use smol::{Timer, future};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The node loop reads its store for the facts; if it takes longer, the bridge hangs up anyway.
const FACTS: Duration = Duration::from_secs(30);

/// The status is written again after this long: a little less than a heartbeat, whose timer wakes the link.
const STATUS: Duration = Duration::from_secs(10);

/// For the websocket's goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

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
    #[error("a binary frame came, where only text was agreed on")]
    Binary,
    #[error(transparent)]
    Packed(#[from] UnpackError),
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
    let link = Link {
        shared: &shared,
        config,
        events: &events,
        wakers: &wakers,
        clock: Instant::now(),
        file: settings.status.as_deref(),
        // What a daemon before this one heard is still true.
        status: RefCell::new(
            settings.status.as_deref().and_then(|file| LinkStatus::read(file).ok()).unwrap_or_default(),
        ),
        told: Cell::default(),
    };
    if settings.bridges().is_empty() {
        log::error!("the link cannot start: the identity of node {} names no bridge", settings.identity.node);
    }
    let mut backoff = Backoff::default();
    for bridge in settings.bridges().iter().cycle() {
        let started = Instant::now();
        link.status.borrow_mut().bridge = bridge.to_string();
        let Err(error) = link.connection(bridge).await;
        link.tell_down(&error.to_string());
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

struct Link<'a> {
    shared: &'a Shared,
    config: Arc<ClientConfig>,
    events: &'a Sender<LinkEvent>,
    wakers: &'a Wakers,
    /// Zero of the session's time.
    clock: Instant,
    file: Option<&'a Path>,
    status: RefCell<LinkStatus>,
    /// When the status was written last on this connection.
    told: Cell<Option<Duration>>,
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

    /// Writes the status of a connection that goes well: at its begin, and then with the heartbeat.
    fn tell_up(&self, now: Duration) {
        let session = self.shared.session.borrow();
        let Some(session) = session.as_ref().filter(|session| session.is_welcome()) else { return };
        let Some(file) = self.file else { return };
        if self.told.get().is_some_and(|told| now < told + STATUS) {
            return;
        }
        let mut status = self.status.borrow_mut();
        if self.told.replace(Some(now)).is_none() {
            (status.connected, status.since) = (true, ago(Duration::ZERO));
            status.why.clear();
        }
        status.last_seen = Some(ago(now.saturating_sub(session.last_heard())));
        status.epoch = session.session();
        status.rtt_ms = session.rtt().and_then(|rtt| u64::try_from(rtt.as_millis()).ok());
        status.compressed = session.compresses();
        status.write(file);
    }

    fn tell_down(&self, why: &str) {
        let Some(file) = self.file else { return };
        let mut status = self.status.borrow_mut();
        if self.told.take().is_some() || status.connected || status.since.is_empty() {
            (status.connected, status.since) = (false, ago(Duration::ZERO));
        }
        let session = self.shared.session.borrow();
        if let Some(session) = session.as_ref().filter(|session| session.is_welcome()) {
            status.last_seen = Some(ago(self.clock.elapsed().saturating_sub(session.last_heard())));
        }
        why.clone_into(&mut status.why);
        status.write(file);
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
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the wait is the longest: it loses the jitter, not the pause.
    if SystemRandom::new().fill(&mut bytes).is_ok() { u32::from_ne_bytes(bytes) } else { u32::MAX }
}
