//! The link's task: dials the bridges in turn, moves frames between the socket and the session, waits, again.
//!
//! Does not interpret frames. While the node loop is busy and its channel full, nothing is read from the socket, so
//! that the bridge is slowed down; writes and heartbeats continue.

mod error;
mod frames;

use super::address::BridgeAddress;
use super::backoff::{Backoff, GOOD};
use super::dial::{self, DialError};
use super::network::Network;
use super::status::{LinkStatus, ago};
use super::{LinkEvent, News, Shared, Wakers, renew, tls};
use crate::sys::random::random;
use crate::sys::time::within;
use async_tungstenite::tungstenite::protocol::CloseFrame;
use async_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use edge_protocol::edge::EdgeSession;
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::RefuseReason;
use error::{LinkError, sent_away};
use smol::channel::Sender;
use smol::{Timer, future};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The node loop reads its store for the facts; if it takes longer, the bridge hangs up anyway.
const FACTS: Duration = Duration::from_secs(30);

/// The status is written again after this long: a little less than a heartbeat, whose timer wakes the link.
const STATUS: Duration = Duration::from_secs(10);
/// A node that was refused looks this often for an identity that a join has made.
const LOOK: Duration = Duration::from_secs(5);

/// Timeout for the first message over a connection whose route may be gone.
const DOUBT: Duration = Duration::from_secs(3);

/// Timeout for the websocket's close handshake.
const GOODBYE: Duration = Duration::from_secs(1);

pub(super) async fn run(shared: Rc<Shared>, status: Option<PathBuf>, events: Sender<LinkEvent>, wakers: Wakers) {
    let identity = shared.identity.borrow().clone();
    match tls::node_config(&identity, shared.time.clone()) {
        Ok(config) => *shared.config.borrow_mut() = Some(Arc::new(config)),
        Err(error) => {
            log::error!("the link cannot start: {error}");
            // A missing receiver means stopping.
            let _ = events.send(LinkEvent::Disconnected(error.to_string())).await;
            return;
        }
    }
    let network = Network::new(&wakers);
    let clock = Instant::now();
    let link = Link {
        shared: &shared,
        events: &events,
        wakers: &wakers,
        network: &network,
        clock,
        file: status.as_deref(),
        // The last state of an earlier daemon is still valid.
        status: RefCell::new(status.as_deref().and_then(|file| LinkStatus::read(file).ok()).unwrap_or_default()),
        told: Cell::default(),
    };
    let mut backoff = Backoff::default();
    for turn in 0_usize.. {
        // A join may have named others meanwhile.
        let bridges = shared.identity.borrow().bridges.clone();
        let Some(bridge) = turn.checked_rem(bridges.len()).and_then(|index| bridges.get(index)) else {
            log::error!("the link cannot start: the identity of node {} names no bridge", identity.node);
            return;
        };
        let started = clock.elapsed();
        link.status.borrow_mut().bridge = bridge.to_string();
        let Err(error) = link.connection(bridge).await;
        link.tell_down(&error.to_string());
        let session = shared.session.take();
        let welcome = session.as_ref().is_some_and(EdgeSession::is_welcome);
        let streams = session.map_or_else(Vec::new, |s| s.open_streams());
        if matches!(error, LinkError::Stopped) || link.bye(&error, streams).await.is_err() {
            return;
        }
        let ended = clock.elapsed();
        let _ = shared.renewal.try_send(News::Ended);
        let refused = sent_away(&error).is_some_and(|(reason, _)| reason != RefuseReason::Superseded);
        let has_other_authority = matches!(error, LinkError::Dial(DialError::OtherAuthority { .. }));
        match error {
            // Whatever kept us from the bridge so far, this way is a new one.
            LinkError::Moved => {
                backoff.reset();
                continue;
            }
            _ if refused => backoff.refused(),
            _ if welcome && ended.saturating_sub(started) >= GOOD => backoff.reset(),
            _ if welcome => backoff.brief(),
            _ => {}
        }
        let wait = backoff.next(random(), ended);
        log::debug!("next attempt in {wait:?}");
        if link.pause(wait, refused || has_other_authority).await {
            log::debug!("{}, dialling at once", LinkError::Moved);
            backoff.reset();
        }
    }
}

struct Link<'a> {
    shared: &'a Shared,
    events: &'a Sender<LinkEvent>,
    wakers: &'a Wakers,
    network: &'a Network<'a>,
    /// Zero of the session's time.
    clock: Instant,
    file: Option<&'a Path>,
    status: RefCell<LinkStatus>,
    /// When the status was written last on this connection.
    told: Cell<Option<Duration>>,
}

impl Link<'_> {
    /// Until the next attempt; whether the way to the bridge has changed before.
    async fn pause(&self, wait: Duration, identity_is_void: bool) -> bool {
        let moved = async {
            self.network.changed().await;
            true
        };
        let pause = async {
            let end = Instant::now() + wait;
            // Looks for a new identity meanwhile.
            loop {
                if identity_is_void && renew::change_over(self.shared) {
                    return false;
                }
                let look = Instant::now() + LOOK;
                if !identity_is_void || look >= end {
                    break;
                }
                Timer::at(look).await;
            }
            Timer::at(end).await;
            false
        };
        future::or(pause, moved).await
    }

    /// One connection from dial to its end.
    async fn connection(&self, bridge: &BridgeAddress) -> Result<Infallible, LinkError> {
        // Set before the first connection.
        let Some(config) = self.shared.config.borrow().clone() else { return Err(LinkError::Stopped) };
        let dial = async {
            let proxy = &self.shared.proxy;
            let addresses = dial::addresses(bridge, proxy).await?;
            self.send(LinkEvent::Resolved(addresses.clone())).await?;
            let tls = dial::connect(bridge, proxy, addresses, config).await?;
            let peer = tls.get_ref().0.get_ref().peer_addr();
            let socket = dial::upgrade(bridge, tls).await?;
            Ok((socket, peer))
        };
        let moved = async {
            self.network.changed().await;
            Err(LinkError::Moved)
        };
        let dialled = future::or(dial, moved).await;
        if let Err(LinkError::Dial(DialError::Connect { address, .. })) = &dialled {
            self.network.aim(address.ip());
        }
        let (mut socket, peer) = dialled?;
        if let Ok(peer) = peer {
            self.network.aim(peer.ip());
        }
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
        let facts = within(FACTS, answer).await.unwrap_or(Err(LinkError::NoFacts))?;
        *self.shared.session.borrow_mut() = Some(EdgeSession::new(facts, self.clock.elapsed()));
        let Err(error) = self.pump(&mut socket).await;
        if let LinkError::Session(reason) = &error {
            let text = reason.to_string();
            // RFC 6455, 5.5: a control frame holds 125 bytes, two of them the code.
            let reason = text[..text.floor_char_boundary(120)].to_owned().into();
            // The peer may be gone already; the reason is for its log only.
            let _ = within(GOODBYE, socket.close(Some(CloseFrame { code: CloseCode::Policy, reason }))).await;
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
        if let Some((reason, message)) = sent_away(error) {
            self.send(LinkEvent::Refused(reason, message)).await?;
        }
        self.send(LinkEvent::Disconnected(error.to_string())).await
    }

    async fn send(&self, event: LinkEvent) -> Result<(), LinkError> {
        self.events.send(event).await.map_err(|_| LinkError::Stopped)
    }
}
