//! Inputs of Services beside views and pods: the node's addresses, its reachable neighbours, and other programs that
//! serve Services.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::Services;
use crate::net::services::ServiceView;
use crate::net::services::node_ports::NodePorts;
use crate::net::site::Plan;
use crate::sys::gather::Gather;

impl Services {
    /// Sets the pods of other nodes that packets from here reach.
    pub(in crate::node) fn set_reach(&mut self, reach: Plan) {
        if self.here.reach != reach {
            self.here.reach = reach;
            self.dirty.extend(self.others.keys().cloned());
            self.untold.add(self.others.keys().cloned());
            self.names_changed = true;
        }
    }

    /// The node has other addresses now.
    pub(in crate::node) fn set_addresses(&mut self, ips: &[IpAddr]) {
        self.here.ips = ips.to_vec();
        if self.follow_node_ports() {
            self.lost();
        }
        let limited = self.views.iter().filter(|(_, view)| !view.load_balancer_source_ranges.is_empty());
        self.dirty.extend(limited.map(|(name, _)| name.clone()));
    }

    pub(super) fn follow_node_ports(&mut self) -> bool {
        // Checked when the configuration was read.
        let ports = NodePorts::read(&self.node_port_addresses, &self.here.ips).unwrap_or_default();
        self.tables.set_node_ports(ports)
    }

    /// The node's link leads to these addresses from now on: no Service may take its traffic.
    pub(in crate::node) fn set_link(&mut self, addresses: Vec<SocketAddr>) {
        if self.link == addresses {
            return;
        }
        let ports: BTreeSet<u16> = self.link.iter().chain(&addresses).map(SocketAddr::port).into_set();
        let ips: BTreeSet<IpAddr> = self.link.iter().chain(&addresses).map(SocketAddr::ip).into_set();
        self.link = addresses;
        self.look_at_outside(&ips);
        let at_node = |view: &ServiceView| view.ports.iter().any(|port| ports.contains(&port.node_port));
        let names = self.views.iter().filter(|(_, view)| at_node(view)).map(|(name, _)| name.clone());
        self.dirty.extend(names);
    }

    /// Another program that serves Services on this machine.
    pub(in crate::node) fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    /// Sets the other program that serves Services on this machine, if any; returns whether it has changed.
    pub(in crate::node) fn set_elsewhere(&mut self, elsewhere: Option<String>) -> bool {
        if elsewhere == self.elsewhere {
            return false;
        }
        match &elsewhere {
            Some(who) => log::warn!("Services are served by {who}: this node has no rules for them"),
            None => log::info!("nobody else serves Services on this machine any more"),
        }
        self.elsewhere = elsewhere;
        // The state of the kernel is then unknown: the first daemon of the machine may have been another one.
        self.lost();
        true
    }

    /// Addresses of all Services inside the cluster.
    pub(super) fn inside(&self) -> BTreeSet<IpAddr> {
        self.views.values().flat_map(ServiceView::ips).into_set()
    }

    /// Removes outside addresses that the Service must not have. Any Service can claim one (CVE-2020-8554), but not
    /// those of Services inside the cluster, or those at which the node itself answers its pods.
    pub(super) fn without_what_is_others(&self, view: &ServiceView) -> ServiceView {
        let mut view = view.clone();
        let inside = self.inside();
        let free = |ip: &IpAddr| !inside.contains(ip) && !self.tables.is_gateway(*ip) && !ip.is_loopback();
        view.external_ips.retain(free);
        view.ingress_ips.retain(free);
        view
    }

    /// Services that ask for one of these outside addresses may have another answer from now on.
    pub(super) fn look_at_outside(&mut self, ips: &BTreeSet<IpAddr>) {
        let asks = |view: &ServiceView| view.outside().any(|ip| ips.contains(ip));
        let names = self.views.iter().filter(|(_, view)| asks(view)).map(|(name, _)| name.clone());
        self.dirty.extend(names);
    }
}
