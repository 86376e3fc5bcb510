//! Pods that a peer selects: pods of this node by the node's own records, pods of other nodes by the bridge's. Pure.
//!
//! Ignores the bridge's records of this node's own pods, and of addresses that this node assigns: only its own pods
//! have them here, whatever other nodes report.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::view::{PodPeer, RemotePod};
use crate::net::Subnet;
use crate::net::services::view::protocol;
use crate::pod::ports::Protocol;
use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;

/// A pod of this node with addresses of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalPod {
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    pub ips: Vec<IpAddr>,
    /// Name, protocol, number.
    pub ports: Vec<(String, Protocol, u16)>,
    /// Its link on the node's bridge; `None` if another program has connected it, which then guards it.
    pub link: Option<Link>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Name of the host's end.
    pub name: String,
    /// Hardware address of the pod's end.
    pub mac: [u8; 6],
}

/// Pods of other nodes, by the ids of the peers that they are.
pub struct Others<'a>(VecMap<&'a str, Vec<&'a RemotePod>>);

impl<'a> Others<'a> {
    pub fn new(pods: impl Iterator<Item = &'a RemotePod> + Clone, here: &str) -> Self {
        let pods = pods.filter(|pod| pod.node != here);
        // Ids are digests, in no order, and one policy can have thousands: sorted first, each goes to the map's end.
        let ids = pods.clone().flat_map(|pod| &pod.peers).map(String::as_str).into_set();
        let mut by_id: VecMap<&str, Vec<&RemotePod>> = ids.into_iter().map(|id| (id, Vec::new())).collect();
        for pod in pods {
            pod.peers.iter().for_each(|id| by_id.get_or_default(id).push(pod));
        }
        Self(by_id)
    }

    fn of(&self, peer: &PodPeer) -> impl Iterator<Item = &'a RemotePod> {
        self.0.get(peer.id.as_str()).into_iter().flatten().copied()
    }
}

impl PodPeer {
    fn is(&self, pod: &LocalPod) -> bool {
        self.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(&pod.namespace))
            && self.pod_selector.selects(&pod.labels)
    }

    /// The peer's addresses of one family.
    pub fn addresses(&self, pods: &[LocalPod], others: &Others<'_>, subnets: &[Subnet], v6: bool) -> BTreeSet<IpAddr> {
        let own = pods.iter().filter(|pod| self.is(pod)).flat_map(|pod| &pod.ips);
        let far = others.of(self).flat_map(|pod| &pod.ips).filter(|ip| is_far(**ip, subnets));
        own.chain(far).filter(|ip| ip.is_ipv6() == v6).copied().into_set()
    }

    /// Returns the addresses, each with the number that the named port has there.
    pub fn named(
        &self,
        (name, wanted): (&str, Protocol),
        pods: &[LocalPod],
        others: &Others<'_>,
        (subnets, v6): (&[Subnet], bool),
    ) -> BTreeSet<(IpAddr, u16)> {
        let own = pods.iter().filter(|pod| self.is(pod)).flat_map(|pod| {
            let found = pod.ports.iter().filter(|(other, protocol, _)| other == name && *protocol == wanted);
            found.flat_map(|(_, _, number)| pod.ips.iter().map(|ip| (*ip, *number)))
        });
        let far = others.of(self).flat_map(|pod| {
            let found = pod.ports.iter().filter(|(other, of, _)| other == name && protocol(of) == Some(wanted));
            found.flat_map(|(_, _, number)| pod.ips.iter().map(|ip| (*ip, *number)))
        });
        let far = far.filter(|(ip, _)| is_far(*ip, subnets));
        own.chain(far).filter(|(ip, number)| ip.is_ipv6() == v6 && *number != 0).into_set()
    }
}

fn is_far(ip: IpAddr, subnets: &[Subnet]) -> bool {
    !subnets.iter().any(|subnet| subnet.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::policy::selector::Selector;

    #[test]
    fn peers_in_any_order_find_the_pods_of_other_nodes() {
        let pod = |node: &str, ids: &[&str]| RemotePod {
            node: node.to_owned(),
            peers: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..RemotePod::default()
        };
        let pods = [pod("b", &["y", "x"]), pod("here", &["x", "z"]), pod("c", &["x"])];
        let others = Others::new(pods.iter(), "here");
        let nodes = |id: &str| -> Vec<&str> {
            let peer = PodPeer { id: id.to_owned(), namespaces: None, pod_selector: Selector::default() };
            others.of(&peer).map(|pod| pod.node.as_str()).collect()
        };
        assert_eq!([nodes("x"), nodes("y"), nodes("z")], [vec!["b", "c"], vec!["b"], vec![]]);
    }

    #[test]
    fn many_peers_do_not_hold_up_the_node() {
        let ids = (0..100_000).rev().map(|number| format!("{number:06}"));
        let pod = RemotePod { node: "b".into(), peers: ids.collect(), ..RemotePod::default() };
        assert_eq!(Others::new(std::iter::once(&pod), "here").0.len(), 100_000);
        // Inserted as they come, they would move 200 GB, which takes longer than a suite may.
    }
}
