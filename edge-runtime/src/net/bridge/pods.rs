//! Links of pods at the bridge.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use nix::libc;

use super::{HOST_LINK, Network, link_name, unsupported};
use crate::net::bandwidth::Bandwidth;
use crate::net::netlink::{Socket, address, link, qdisc};
use crate::net::settings::hardware_address;
use crate::net::{NetError, sysctl};
use crate::sys::gather::Gather;

/// The link's name inside the pod.
pub(super) const POD_LINK: &str = "eth0";

impl Network {
    /// Connects the namespace at `netns` as `eth0` with `ips`, one of each subnet at most. A link left by an earlier
    /// attempt is replaced.
    pub fn attach(&mut self, uid: &str, netns: &Path, ips: &[IpAddr], limits: Bandwidth) -> Result<(), NetError> {
        let namespace = File::open(netns).map_err(|source| NetError::path("open", netns, source))?;
        let master = match self.bridge {
            Some(index) => index,
            None => self.ensure_bridge()?,
        };
        self.bridge = Some(master);
        let host = link_name(&self.settings.bridge, uid);
        let failed = |action, source| NetError::Netlink { action, object: format!("link of pod {uid}"), source };
        let pair = link::VethPair {
            host: &host,
            master,
            peer: POD_LINK,
            peer_namespace: namespace.as_fd(),
            peer_address: ips.first().map_or([0x0a, 0x58, 0, 0, 0, 0], |ip| hardware_address(*ip)),
            mtu: self.pods_mtu(),
        };
        if let Err(error) = link::add_veth(&mut self.socket, &pair) {
            if error.raw_os_error() != Some(libc::EEXIST) {
                return Err(unsupported(error, "veth").unwrap_or_else(|source| failed("make", source)));
            }
            link::delete(&mut self.socket, &host).map_err(|source| failed("replace", source))?;
            link::add_veth(&mut self.socket, &pair).map_err(|source| failed("make", source))?;
        }
        let subnets = &self.settings.subnets;
        let of = |ip: &IpAddr| {
            let subnet = subnets.iter().find(|subnet| subnet.contains(*ip))?;
            Some((*ip, subnet.gateway()))
        };
        let addresses: Vec<_> = ips.iter().filter_map(of).collect();
        let inside = self.own.inside(&namespace, || {
            sysctl::in_pod(POD_LINK, addresses.iter().any(|(ip, ..)| ip.is_ipv6()));
            Socket::open()
        })?;
        let mut socket = inside.map_err(|source| failed("open netlink socket for", source))?;
        let eth0 = link::named(&mut socket, POD_LINK).map_err(|source| failed("find", source))?;
        address::configure(&mut socket, eth0.index, &addresses).map_err(|source| failed("set address of", source))?;
        // Each end limits its outgoing packets: this end what the pod receives, the other what it sends.
        if let Some(bits) = limits.egress {
            qdisc::limit(&mut socket, eth0.index, bits).map_err(|source| not_limited(uid, source))?;
        }
        if let Some(bits) = limits.ingress {
            let port = link::named(&mut self.socket, &host).map_err(|source| failed("find", source))?;
            qdisc::limit(&mut self.socket, port.index, bits).map_err(|source| not_limited(uid, source))?;
        }
        Ok(())
    }

    /// Deletes links on this node's bridge that belong to no pod in `known`; returns their number. For the start, when
    /// a crash may have left links whose namespace a stray process holds. Otherwise the kernel deletes a pod's links
    /// with its network namespace, without blocking the daemon.
    pub fn cleanup(&mut self, known: &BTreeSet<String>) -> Result<usize, NetError> {
        let known: BTreeSet<String> = known.iter().map(|uid| link_name(&self.settings.bridge, uid)).into_set();
        let mut deleted = 0;
        for name in self.pod_links()?.into_iter().filter(|name| !known.contains(name)) {
            let failed = |source| NetError::Netlink { action: "delete", object: format!("link {name}"), source };
            link::delete(&mut self.socket, &name).map_err(failed)?;
            deleted += 1;
        }
        Ok(deleted)
    }

    pub(super) fn pod_links(&mut self) -> Result<Vec<String>, NetError> {
        let name = self.settings.bridge.clone();
        let failed = |source| NetError::Netlink { action: "list ports of", object: format!("bridge {name}"), source };
        let Some(bridge) = link::by_name(&mut self.socket, &name).map_err(failed)? else { return Ok(Vec::new()) };
        let ports = link::ports(&mut self.socket, bridge.index).map_err(failed)?;
        Ok(ports.into_iter().map(|port| port.name).filter(|name| name.starts_with(HOST_LINK)).collect())
    }
}

fn not_limited(uid: &str, source: io::Error) -> NetError {
    if source.raw_os_error() == Some(libc::ENOENT) {
        return NetError::NoTokenBucket;
    }
    NetError::Netlink { action: "limit the bandwidth of", object: format!("pod {uid}"), source }
}
