//! The kubelet API of each node, served by the bridge because nodes are not reachable: one port per node, so that an
//! unmodified API server finds the right one by the Node object's address and port.
//!
//! Owns those ports and the access to them. Requests are sent to the node over its connection, or forwarded to the bridge that
//! has it.

pub(crate) mod auth;
pub(crate) mod body;
mod cache;
pub(crate) mod controller;
mod count;
pub(crate) mod deed;
pub mod forward;
mod pipe;
mod places;
pub mod replica;
pub mod replica_port;
mod server;
mod table;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kube::Client;
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::accept::Gate;
use crate::bridge::slim::SlimNode;
use crate::bridge::{AddressType, Bridge, KubeletEndpoint, refused_ports};
use auth::Reviewer;
use forward::Forwarder;
use table::Table;

/// Time after which a port that was closed for another node is opened for it: its listener ends in a task.
const CLOSING: Duration = Duration::from_secs(1);

/// Ports and their listeners.
#[derive(Debug, Default)]
struct State {
    table: Table,
    /// Open ports by node. When one is dropped, its listener and its connections end.
    served: HashMap<String, watch::Sender<()>>,
}

impl State {
    fn close(&mut self, node: &str) {
        self.table.closed(node);
        self.served.remove(node);
    }
}

/// The ports of all nodes.
pub struct Ports {
    kind: AddressType,
    address: IpAddr,
    range: (u16, u16),
    tls: Arc<ServerConfig>,
    bridge: OnceLock<(Bridge, Option<Arc<Forwarder>>)>,
    gate: Arc<Gate>,
    reviewer: Arc<Reviewer>,
    state: Mutex<State>,
}

impl Ports {
    /// Starts without open ports. `(kind, address)`: the address at which the API server reaches this process, and its
    /// type in Node objects; `client` is asked about users.
    pub fn new(
        (kind, address): (AddressType, IpAddr),
        range: (u16, u16),
        tls: Arc<ServerConfig>,
        client: Client,
        gate: Arc<Gate>,
    ) -> Arc<Self> {
        let (reviewer, state) = (Arc::new(Reviewer::new(client)), Mutex::default());
        Arc::new(Self { kind, address, range, tls, bridge: OnceLock::new(), gate, reviewer, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the bridge that has the connections, and the client for other bridges. Before this, no port opens.
    pub fn set_bridge(&self, bridge: Bridge, forwarder: Option<Arc<Forwarder>>) {
        if self.bridge.set((bridge, forwarder)).is_err() {
            log::warn!("the bridge of the kubelet ports was set twice; the first stays");
        }
    }

    /// Address of the kubelet API of this node, which is connected here; opens its port if needed. `None` if no port is free.
    pub fn endpoint(&self, node: &str) -> Option<KubeletEndpoint> {
        let mut state = self.state();
        if let Some(port) = state.table.open(node) {
            return Some(self.at(port));
        }
        // A write for a node that has just been deleted opens no port.
        if !self.bridge.get()?.0.is_connected(node) {
            return None;
        }
        let ports = state.table.named(node).into_iter().chain(candidates(node, self.range));
        let listener = ports.filter(|port| state.table.is_free(*port, node)).find_map(|port| self.listen(port).ok());
        let was_refused = refused_ports::has(node);
        refused_ports::note(node, listener.is_none());
        let Some((listener, port)) = listener else {
            // Each write of the Node asks again.
            if !was_refused {
                log::error!("node {node}: no port of {}-{} is free for its kubelet API", self.range.0, self.range.1);
            }
            return None;
        };
        self.open(&mut state, node, listener, port);
        Some(self.at(port))
    }

    fn open(&self, state: &mut State, node: &str, listener: tokio::net::TcpListener, port: u16) {
        let Some((bridge, forwarder)) = self.bridge.get() else { return };
        let (bridge, forwarder, reviewer) = (bridge.clone(), forwarder.clone(), Arc::clone(&self.reviewer));
        let served = server::Served { node: node.to_owned(), bridge, forwarder, reviewer };
        let (sender, closed) = watch::channel(());
        let (tls, gate) = (Arc::clone(&self.tls), Arc::clone(&self.gate));
        tokio::spawn(server::accept(listener, tls, gate, Arc::new(served), closed));
        state.table.opened(node, port);
        state.served.insert(node.to_owned(), sender);
    }

    /// Takes what a Node object says of its kubelet port. If it is at the address of this bridge, because several bridges share
    /// that, the port is opened for a node of another bridge, too.
    pub fn seen(self: &Arc<Self>, node: &SlimNode) {
        let port = node.kubelet_port(self.kind.as_str(), self.address);
        let port = port.filter(|port| (self.range.0..=self.range.1).contains(port));
        self.state().table.seen(node.name(), port);
        self.settle(node.name());
    }

    /// Opens the port that the Node object names, if it is another one than the open one.
    fn settle(self: &Arc<Self>, node: &str) {
        let Some((bridge, _)) = self.bridge.get() else { return };
        let is_connected = bridge.is_connected(node);
        let mut state = self.state();
        let Some(due) = state.table.due(node, is_connected) else { return };
        let Some(holder) = due.holder else {
            match self.listen(due.port) {
                Ok((listener, port)) => self.open(&mut state, node, listener, port),
                Err(error) if state.table.refused(node, due.port) => {
                    log::warn!("node {node}: port {} of its kubelet API is not open here: {error}", due.port);
                }
                Err(_) => {}
            }
            return;
        };
        log::info!("nodes {node} and {holder} have the same kubelet port {}: {holder} gets another", due.port);
        state.close(&holder);
        drop(state);
        bridge.rewrite(&holder);
        let (ports, node) = (Arc::clone(self), node.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(CLOSING).await;
            ports.settle(&node);
        });
    }

    fn at(&self, port: u16) -> KubeletEndpoint {
        KubeletEndpoint { kind: self.kind, address: self.address, port }
    }

    /// Closes the port of a deleted node: another node may get it.
    pub fn close(&self, node: &str) {
        refused_ports::note(node, false);
        let mut state = self.state();
        state.table.seen(node, None);
        state.close(node);
    }

    fn listen(&self, port: u16) -> io::Result<(tokio::net::TcpListener, u16)> {
        let any: IpAddr =
            if self.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let listener = match TcpListener::bind(SocketAddr::new(self.address, port)) {
            // The address belongs to a service or a router in front of the bridge.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                TcpListener::bind(SocketAddr::new(any, port))
            }
            other => other,
        }?;
        listener.set_nonblocking(true)?;
        Ok((tokio::net::TcpListener::from_std(listener)?, port))
    }
}

/// All ports of the range in the order in which to try them for a node, beginning at one that is derived from its name.
/// So a node usually has the same port after a restart, without stored state.
fn candidates(node: &str, (first, last): (u16, u16)) -> impl Iterator<Item = u16> {
    let count = u32::from(last - first) + 1;
    // FNV-1a: stable over builds, unlike the standard library's hash.
    let hash = node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (0..count).filter_map(move |step| u16::try_from(u32::from(first) + (hash % count + step) % count).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_tries_every_port_once_and_always_in_the_same_order() {
        let ports: Vec<u16> = candidates("edge-1", (10_000, 10_009)).collect();
        assert_eq!(ports, candidates("edge-1", (10_000, 10_009)).collect::<Vec<_>>());
        let mut sorted = ports.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (10_000..=10_009).collect::<Vec<_>>());
        assert_eq!(candidates("x", (65_535, 65_535)).collect::<Vec<_>>(), [65_535]);
        assert_eq!(candidates("x", (1, 65_535)).count(), 65_535);
    }
}
