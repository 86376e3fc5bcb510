//! Assignment of outside addresses to Services. A user who may write a Service can name any address (CVE-2020-8554); of
//! several Services that name one, the oldest gets it. Pure, so the result is the same after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::item::{Element, Item, What};
use super::table::ServiceName;
use super::view::ServiceView;
use crate::pod::ports::Protocol;

/// Where packets are sent to.
type Place = (IpAddr, Protocol, u16);

/// The holder of each place, and the address of the node's own link.
#[derive(Debug, Default)]
pub struct Outside<'a> {
    holders: BTreeMap<Place, Holder<'a>>,
    link: &'a [SocketAddr],
}

/// Sorted by priority: Services without a creation time come last.
type Holder<'a> = (bool, &'a str, &'a ServiceName);

impl<'a> Outside<'a> {
    /// Assigns the addresses of all Services; `inside` are the Services' own addresses, which no other Service can
    /// have, and `link` is where the node's bridge answers.
    pub fn new(
        services: impl Iterator<Item = (&'a ServiceName, &'a ServiceView)>,
        inside: &BTreeSet<IpAddr>,
        link: &'a [SocketAddr],
    ) -> Self {
        let mut holders: BTreeMap<Place, Holder<'a>> = BTreeMap::new();
        for (name, view) in services {
            let holder = (view.created.is_empty(), view.created.as_str(), name);
            for ip in view.outside().filter(|ip| !inside.contains(ip)) {
                for port in &view.ports {
                    let Some(protocol) = port.protocol() else { continue };
                    let first = holders.entry((*ip, protocol, port.port)).or_insert(holder);
                    *first = holder.min(*first);
                }
            }
        }
        Self { holders, link }
    }

    /// Takes from the items of a Service what leads other Services' addresses to it, and the node's own link. The latter
    /// also at ports of the node, where its bridge may answer: `node` are its addresses.
    pub fn keep_own(&self, name: &ServiceName, node: &[IpAddr], items: &mut BTreeMap<Item, String>) {
        let is_link = |ip: IpAddr, port: u16| self.link.contains(&SocketAddr::new(ip, port));
        items.retain(|item, _| match item.what {
            What::Element(
                Element::Service(ip, protocol, port)
                | Element::NoEndpoints(ip, protocol, port)
                | Element::Firewall(ip, protocol, port),
            ) => {
                let others = self.holders.get(&(ip, protocol, port)).is_some_and(|(_, _, holder)| *holder != name);
                !(others || protocol == Protocol::Tcp && is_link(ip, port))
            }
            What::Element(Element::NodePort(Protocol::Tcp, port) | Element::NoNodeEndpoints(Protocol::Tcp, port)) => {
                !node.iter().any(|ip| is_link(*ip, port))
            }
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rules::of_service;
    use super::super::{EndpointView, Here};
    use super::*;

    fn service(name: &str, spec: serde_json::Value) -> (ServiceName, ServiceView) {
        (("ns".to_owned(), name.to_owned()), ServiceView::read(&json!({ "spec": spec })).unwrap())
    }

    /// Elements that are left to each Service, as nft has their keys.
    fn left(services: &[(ServiceName, ServiceView)], link: &[SocketAddr], node: &[IpAddr]) -> Vec<Vec<String>> {
        let inside = services.iter().flat_map(|(_, view)| view.ips()).collect();
        let outside = Outside::new(services.iter().map(|(name, view)| (name, view)), &inside, link);
        let of = |(name, view): &(ServiceName, ServiceView)| {
            let id = (name.0.as_str(), name.1.as_str());
            let mut items = of_service(id, view, &[], &EndpointView::default(), &Here::default(), &[false]);
            outside.keep_own(name, node, &mut items);
            let keys = items.into_keys().filter_map(|item| match item.what {
                What::Element(Element::ClusterIp(_)) | What::Set(_) | What::Chain(_) => None,
                What::Element(element) => Some(element.key()),
            });
            keys.collect()
        };
        services.iter().map(of).collect()
    }

    fn asks(cluster: &str, created: Option<&str>, port: u16) -> serde_json::Value {
        let mut spec = json!({"clusterIPs": [cluster], "externalIPs": ["192.0.2.1"], "ports": [{"port": port}]});
        if let Some(created) = created {
            spec["created"] = created.into();
        }
        spec
    }

    #[test]
    fn the_oldest_service_has_an_outside_address() {
        let services = [
            service("aaa", asks("10.96.0.1", Some("2026-02-01T00:00:00Z"), 80)),
            service("old", asks("10.96.0.2", Some("2025-02-01T00:00:00Z"), 80)),
            service("bbb", asks("10.96.0.3", None, 80)),
            service("ccc", asks("10.96.0.4", None, 81)),
        ];
        let expected = [
            vec!["10.96.0.1 . tcp . 80"],
            vec!["10.96.0.2 . tcp . 80", "192.0.2.1 . tcp . 80"],
            vec!["10.96.0.3 . tcp . 80"],
            vec!["10.96.0.4 . tcp . 81", "192.0.2.1 . tcp . 81"],
        ];
        assert_eq!(left(&services, &[], &[]), expected);
    }

    #[test]
    fn no_service_has_the_cluster_address_of_another() {
        let mut thief = asks("10.96.0.1", Some("2025-01-01T00:00:00Z"), 80);
        thief["externalIPs"] = json!(["10.96.0.2"]);
        let services = [service("aaa", thief), service("web", asks("10.96.0.2", Some("2026-01-01T00:00:00Z"), 80))];
        assert!(left(&services, &[], &[])[1].contains(&"10.96.0.2 . tcp . 80".to_owned()));
    }

    #[test]
    fn no_service_takes_the_traffic_of_the_nodes_link() {
        let node: IpAddr = "192.0.2.1".parse().unwrap();
        let mut spec = asks("10.96.0.1", None, 443);
        spec["ports"] = json!([{"name": "a", "port": 443, "nodePort": 30443}, {"name": "b", "port": 80},
            {"name": "u", "port": 443, "protocol": "UDP", "nodePort": 30443}]);
        let services = [service("a", spec)];
        let link = ["192.0.2.1:443".parse().unwrap()];
        let all = left(&services, &[], &[node]).remove(0);
        let without = |gone: &str| all.iter().filter(|key| *key != gone).cloned().collect::<Vec<_>>();
        assert!(all.contains(&"192.0.2.1 . tcp . 443".to_owned()) && all.contains(&"tcp . 30443".to_owned()));
        assert_eq!(left(&services, &link, &[node]), [without("192.0.2.1 . tcp . 443")]);
        let link = ["192.0.2.1:30443".parse().unwrap()];
        assert_eq!(left(&services, &link, &[node]), [without("tcp . 30443")]);
        assert_eq!(left(&services, &link, &[]), std::slice::from_ref(&all));
    }
}
