//! State of one node at the bridge, connected or not, and the channel to its present connection.

mod command;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use edge_protocol::state::NodeState;
use futures::channel::mpsc::UnboundedSender;
use tokio::sync::Notify;

use super::node_access::NotAdmitted;
pub(super) use command::{Asked, Command, Open, OpenStream};

/// State of the present connection, for users and monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkStats {
    /// When a frame arrived last.
    pub heard: Option<SystemTime>,
    /// Last change that the node has committed on this connection.
    pub acked: Option<u64>,
    /// Bytes of changes that were sent and not acknowledged.
    pub down_bytes: usize,
    /// Bytes of reports that are not in the API yet.
    pub up_bytes: usize,
    /// Round trip time, as the node measured it.
    pub rtt_ms: Option<u32>,
}

/// The present connection of a node.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Its fencing number.
    pub session: u64,
    /// When its certificate was issued.
    pub issued: SystemTime,
    /// Not tokio's, whose queues reserve 32 entries each from the start. Unbounded, but readers of streams, credit and
    /// room limit its content.
    pub commands: UnboundedSender<Command>,
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub name: String,
    state: Mutex<NodeState>,
    /// Notifies of a changed state.
    pub changed: Notify,
    presence: Mutex<Presence>,
}

#[derive(Debug, Default)]
struct Presence {
    link: Option<Link>,
    newest: u64,
    last_seen: Option<SystemTime>,
    since: Option<SystemTime>,
    link_stats: LinkStats,
    /// Fencing number of the newest connection to this bridge.
    own: u64,
    /// Whether it takes Devices, as sent on its present connection.
    takes_devices: Option<bool>,
    /// Whether it takes orders of jobs, as sent on its present connection.
    takes_orders: Option<bool>,
}

impl Node {
    /// `stream` is random text.
    pub(super) fn new(name: &str, stream: String) -> Self {
        Self {
            name: name.to_owned(),
            state: Mutex::new(NodeState::new(stream)),
            changed: Notify::new(),
            presence: Mutex::default(),
        }
    }

    /// The objects that the node should hold.
    pub(super) fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present connection.
    pub(super) fn link(&self) -> Option<Link> {
        self.presence().link.clone()
    }

    /// When a frame last arrived at this bridge, for a node that is not connected now.
    pub(super) fn last_seen(&self) -> Option<SystemTime> {
        self.presence().last_seen
    }

    /// A new connection replaces any other. `elsewhere` is the highest fencing number that other bridges are known to have
    /// given.
    pub(super) fn attach(
        &self,
        commands: UnboundedSender<Command>,
        issued: SystemTime,
        elsewhere: u64,
        now: SystemTime,
    ) -> Link {
        let mut presence = self.presence();
        presence.newest = next_session(presence.newest.max(elsewhere), now);
        let link = Link { session: presence.newest, issued, commands };
        if let Some(old) = presence.link.replace(link.clone()) {
            // The connection may be ending already.
            let _ = old.commands.unbounded_send(Command::Superseded);
        }
        presence.own = presence.newest;
        presence.last_seen = Some(now);
        presence.since = Some(now);
        presence.link_stats = LinkStats::default();
        (presence.takes_devices, presence.takes_orders) = (None, None);
        link
    }

    /// Stores whether the node takes Devices and orders, as sent on this connection.
    pub(super) fn set_takes(&self, session: u64, devices: bool, orders: bool) {
        let mut presence = self.presence();
        if presence.link.as_ref().is_some_and(|link| link.session == session) {
            (presence.takes_devices, presence.takes_orders) = (Some(devices), Some(orders));
        }
    }

    /// Whether it takes orders of jobs; `None` before it is connected and has said hello.
    pub(super) fn takes_orders(&self) -> Option<bool> {
        let presence = self.presence();
        presence.takes_orders.filter(|_| presence.link.is_some())
    }

    /// Whether it takes Devices; `None` if it is not connected.
    pub(super) fn takes_devices(&self) -> Option<bool> {
        let presence = self.presence();
        presence.takes_devices.filter(|_| presence.link.is_some())
    }

    /// Stores the state of this connection.
    pub(super) fn note(&self, session: u64, link_stats: LinkStats) {
        let mut presence = self.presence();
        if presence.link.as_ref().is_some_and(|link| link.session == session) {
            presence.last_seen = link_stats.heard.or(presence.last_seen);
            presence.link_stats = link_stats;
        }
    }

    /// Fencing number of the newest connection, the time since which it is connected, and the state of the connection.
    pub(super) fn look(&self) -> (u64, Option<SystemTime>, LinkStats) {
        let presence = self.presence();
        let since = presence.since.filter(|_| presence.link.is_some());
        (presence.newest, since, presence.link_stats)
    }

    /// Time since which it is connected, time of the last frame, and whether another bridge has connected it since.
    pub(super) fn glance(&self) -> (Option<SystemTime>, Option<SystemTime>, bool) {
        let presence = self.presence();
        let since = presence.since.filter(|_| presence.link.is_some());
        (since, presence.last_seen, presence.newest > presence.own)
    }

    /// Another bridge has given the node this fencing number: an older connection here is invalid.
    pub(super) fn superseded(&self, session: u64) {
        let mut presence = self.presence();
        let old = presence.link.as_ref().filter(|link| link.session < session);
        if let Some(old) = old {
            // The connection may be ending already.
            let _ = old.commands.unbounded_send(Command::Superseded);
        }
        presence.newest = presence.newest.max(session);
        drop(presence);
        // From now on nothing is accepted on the old connection.
        self.state().fence(session);
    }

    /// Notes the end of this connection.
    pub(super) fn detach(&self, session: u64, now: SystemTime) {
        let mut presence = self.presence();
        if presence.link.as_ref().is_some_and(|link| link.session == session) {
            presence.link = None;
            presence.last_seen = Some(now);
        }
    }

    /// Ends the node's connection, if there is one, with this reason.
    pub(super) fn disconnect(&self, reason: &NotAdmitted) {
        if let Some(link) = self.link() {
            // The connection may have ended already.
            let _ = link.commands.unbounded_send(Command::Disconnect(reason.to_string()));
        }
    }

    /// Requests that the node's object is written again, if the node is connected. False if it is not.
    pub(super) fn rewrite(&self) -> bool {
        self.link().is_some_and(|link| link.commands.unbounded_send(Command::RewriteNode).is_ok())
    }
}

/// Fencing number of a connection after one with this number. It grows with the clock, so that it also grows over
/// replicas and restarts.
fn next_session(newest: u64, now: SystemTime) -> u64 {
    let millis = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    // Any client with rights on Nodes may have written the largest number.
    u64::try_from(millis).unwrap_or(u64::MAX).max(newest.saturating_add(1))
}

#[cfg(test)]
mod tests;
