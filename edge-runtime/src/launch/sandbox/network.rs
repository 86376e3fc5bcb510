//! A pod's addresses on the built-in bridge, and the files that tell it its names.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

use super::Sandboxes;
use crate::config::NetworkMode;
use crate::launch::error::SandboxError;
use crate::net::dns_link;
use crate::net::resolv::NodeDns;
use crate::net::{Subnet, address, bandwidth, etc_files, host_addresses, hosts, resolv};
use crate::pod::ports;
use crate::pod::spec::{host_network, uid};
use crate::sys::sort::sort_by_key;

impl Sandboxes {
    /// Looks which addresses the machine has by now; whether that changed. One without any keeps those it had.
    pub fn look_at_addresses(&mut self) -> bool {
        let now = main_family_first(host_addresses::internal_ips(), &self.base.config.network.subnets);
        if now.is_empty() || now == self.host_ips {
            return false;
        }
        log::info!("the node's addresses are {now:?}, and were {:?}", self.host_ips);
        self.host_ips = now;
        true
    }

    pub(super) fn builtin_network(
        &mut self,
        pod: &Pod,
        uid: &str,
        netns: &Path,
        taken: &BTreeSet<IpAddr>,
        keep: &[IpAddr],
    ) -> Result<Vec<IpAddr>, SandboxError> {
        let limits = bandwidth::of_pod(pod).map_err(SandboxError::Other)?;
        let ips = address::assign(&self.teardown.network.settings().subnets, taken, keep, &self.last_addresses)
            .map_err(|subnet| SandboxError::Other(format!("no address is left in the pod subnet {subnet}")))?;
        self.last_addresses.clone_from(&ips);
        self.teardown.network.attach(uid, netns, &ips, limits)?;
        Ok(ips)
    }

    /// Where the node itself answers a pod's questions for names; nowhere if it does not.
    fn own_dns(&self, uid: &str, ips: &[IpAddr]) -> Vec<String> {
        let config = &self.base.config;
        if !config.services.has_dns() {
            return Vec::new();
        }
        if self.teardown.is_attached(uid) {
            return vec![dns_link::address_for(ips).to_string()];
        }
        let subnets = &self.teardown.network.settings().subnets;
        // Without a bridge, a pod on the node's own network also uses this address.
        match config.network.mode {
            NetworkMode::Cni => vec![dns_link::address_for(ips).to_string()],
            _ => subnets.iter().map(|subnet| subnet.gateway().to_string()).collect(),
        }
    }

    /// Where the pod reaches the API, if it uses the local one.
    pub(super) fn local_api(&self, pod: &Pod, ips: &[IpAddr]) -> Option<IpAddr> {
        let config = &self.base.config;
        if !config.local_api.is_used_by(pod) {
            return None;
        }
        if config.network.mode == NetworkMode::Cni || self.teardown.is_attached(uid(pod)) {
            return Some(dns_link::api_address_for(ips));
        }
        let mut gateways = self.teardown.network.settings().subnets.iter().map(|subnet| subnet.gateway());
        let first = gateways.clone().next();
        // A pod of one family on a node of both, and one on the node's own network.
        gateways.find(|gateway| ips.iter().any(|ip| ip.is_ipv4() == gateway.is_ipv4())).or(first)
    }

    pub(super) fn pod_etc_files(&self, pod: &Pod, ips: &[IpAddr]) -> Result<Vec<(&'static str, String)>, SandboxError> {
        let hosts = if host_network(pod) {
            let own = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
            hosts::hosts_file_host_network(pod, &own)
        } else {
            let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
            hosts::hosts_file(pod, &ips, &self.base.config.network.cluster_domain)
        };
        let hostname = self.host_name(pod)?;
        let network = &self.base.config.network;
        let own = self.own_dns(uid(pod), ips);
        let dns = NodeDns {
            // The configured server, otherwise the node itself.
            cluster_dns: if network.cluster_dns.is_empty() { own.clone() } else { network.cluster_dns.clone() },
            cluster_domain: network.cluster_domain.clone(),
            own,
            // Read for each pod: DHCP changes it.
            node_resolv_conf: resolv::read_node_resolv_conf(),
        };
        let resolv = resolv::resolv_conf(pod, &dns);
        let files = etc_files::EtcFiles { hosts, hostname: hostname + "\n", resolv_conf: resolv.content };
        let folder = self.base.paths.pod_files(uid(pod));
        crate::sys::files::private_dir(&folder)?;
        etc_files::write(&folder, &files)?;
        Ok(resolv.warnings)
    }
}

/// Host ports that no rule can forward, each as a Warning event.
pub(super) fn unreachable_ports(pod: &Pod, ips: &[IpAddr]) -> Vec<(&'static str, String)> {
    if host_network(pod) {
        return Vec::new();
    }
    let told = |port: ports::HostPort| {
        let ip = port.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let message =
            format!("host port {} of {ip} cannot be forwarded: the pod has no address of that family", port.port);
        ("HostPortUnreachable", message)
    };
    ports::unreachable(pod, ips).into_iter().map(told).collect()
}

/// The node's main address is of the family of the pods' main address.
pub(super) fn main_family_first(mut ips: Vec<IpAddr>, subnets: &[Subnet]) -> Vec<IpAddr> {
    let main = subnets.first().is_none_or(|subnet| subnet.is_ipv4());
    sort_by_key(&mut ips, |ip| ip.is_ipv4() != main);
    ips
}
