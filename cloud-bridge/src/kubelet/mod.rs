//! The kubelet API of each node, served by the bridge because nodes are not reachable: one port per node, so that an
//! unmodified API server finds the right one by the Node object's address and port.
//!
//! Owns those ports and the access to them. Requests are sent to the node over its connection.

pub(crate) mod auth;
mod cache;
pub(crate) mod deed;
mod places;
mod server;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kube::Client;
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::accept::Gate;
use crate::bridge::{AddressType, Bridge, KubeletEndpoint, refused_ports};
use auth::Reviewer;

/// The port of a node. When it is dropped, its listener and its connections end.
#[derive(Debug)]
struct Open {
    port: u16,
    _served: watch::Sender<()>,
}

/// The ports of all nodes.
pub struct Ports {
    kind: AddressType,
    address: IpAddr,
    range: (u16, u16),
    tls: Arc<ServerConfig>,
    bridge: OnceLock<Bridge>,
    gate: Arc<Gate>,
    reviewer: Arc<Reviewer>,
    open: Mutex<HashMap<String, Open>>,
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
        let (reviewer, open) = (Arc::new(Reviewer::new(client)), Mutex::default());
        Arc::new(Self { kind, address, range, tls, bridge: OnceLock::new(), gate, reviewer, open })
    }

    /// Sets the bridge that has the connections. Before this, no port opens.
    pub fn set_bridge(&self, bridge: Bridge) {
        if self.bridge.set(bridge).is_err() {
            log::warn!("the bridge of the kubelet ports was set twice; the first stays");
        }
    }

    /// Address of the kubelet API of this node; opens its port if needed. `None` if no port is free.
    pub fn endpoint(&self, node: &str) -> Option<KubeletEndpoint> {
        let bridge = self.bridge.get()?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Open { port, .. }) = open.get(node) {
            return Some(self.at(*port));
        }
        let listener = candidates(node, self.range).find_map(|port| self.listen(port).ok());
        refused_ports::note(node, listener.is_none());
        let Some((listener, port)) = listener else {
            log::error!("node {node}: no port of {}-{} is free for its kubelet API", self.range.0, self.range.1);
            return None;
        };
        let reviewer = Arc::clone(&self.reviewer);
        let served = server::Served { node: node.to_owned(), bridge: bridge.clone(), reviewer };
        let (sender, closed) = watch::channel(());
        let (tls, gate) = (Arc::clone(&self.tls), Arc::clone(&self.gate));
        tokio::spawn(server::accept(listener, tls, gate, Arc::new(served), closed));
        open.insert(node.to_owned(), Open { port, _served: sender });
        Some(self.at(port))
    }

    fn at(&self, port: u16) -> KubeletEndpoint {
        KubeletEndpoint { kind: self.kind, address: self.address, port }
    }

    /// Closes the port of a deleted node: another node may get it.
    pub fn close(&self, node: &str) {
        refused_ports::note(node, false);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
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
