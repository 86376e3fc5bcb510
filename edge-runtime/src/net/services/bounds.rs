//! Bounds of the Services that a node serves: a Service can have any number of ports, endpoints and outside addresses,
//! which must not fill the kernel, the daemon or the DNS helper. Beyond a bound a Service keeps its names and its
//! addresses inside the cluster, where connections are refused. Pure.

use std::collections::BTreeMap;

use super::endpoints::LocalPod;
use super::table::ServiceName;
use super::view::{EndpointView, PORTS_OF_A_SERVICE, ServiceView};
use crate::sys::sort::sort;

/// Endpoints, over all ports, of one Service with session affinity: the kernel has a set and a chain for each.
const REMEMBERED: usize = 500;
/// Parts of all Services, and of one, see [`Weight`]: `nft` writes those of one in one transaction, for which it takes a
/// second on a board (Cortex-A53).
const PARTS: (usize, usize) = (20_000, 3_000);

/// Resources that a Service needs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    ports: usize,
    /// Number of entries per port: endpoints, outside addresses, ranges of clients.
    each: usize,
    /// Endpoints of all ports whose clients are remembered.
    remembered: usize,
}

impl Weight {
    pub fn of<'a>(
        namespace: &str,
        view: &ServiceView,
        pods: impl Iterator<Item = &'a LocalPod>,
        others: &EndpointView,
    ) -> Self {
        let own: usize = pods.filter(|pod| pod.is_selected(namespace, view)).map(|pod| pod.ips.len()).sum();
        let endpoints = own + others.slices.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
        let ports = view.ports.len();
        Self {
            ports,
            each: endpoints + view.outside().count() + view.load_balancer_source_ranges.len(),
            remembered: view.affinity_seconds.map_or(0, |_| ports.saturating_mul(endpoints)),
        }
    }

    fn parts(self) -> usize {
        self.ports.max(1).saturating_mul(1 + self.each)
    }

    /// Why no node takes it, whatever else there is.
    fn too_large(self) -> Option<String> {
        if self.ports > PORTS_OF_A_SERVICE {
            return Some(format!("it has more than {PORTS_OF_A_SERVICE} ports"));
        }
        let (parts, most) = (self.parts(), PARTS.1);
        if parts > most {
            return Some(format!("it has {parts} ports at endpoints and outside addresses, more than {most}"));
        }
        (self.remembered > REMEMBERED).then(|| {
            format!("with session affinity it has {} endpoints over all ports, more than {REMEMBERED}", self.remembered)
        })
    }
}

/// Services that are beyond a bound, and why. Where all together are too many, the largest are left out first.
pub fn beyond<'a>(weights: impl Iterator<Item = (&'a ServiceName, Weight)>) -> BTreeMap<ServiceName, String> {
    let mut beyond = BTreeMap::new();
    let mut by_size = Vec::new();
    for (name, weight) in weights {
        match weight.too_large() {
            Some(why) => drop(beyond.insert(name.clone(), why)),
            None => by_size.push((weight.parts(), name)),
        }
    }
    if by_size.iter().fold(0_usize, |sum, (parts, _)| sum.saturating_add(*parts)) <= PARTS.0 {
        return beyond;
    }
    sort(&mut by_size);
    let mut sum = 0_usize;
    for (parts, name) in by_size {
        sum = sum.saturating_add(parts);
        if sum > PARTS.0 {
            let why = format!(
                "it has {parts} ports at endpoints and outside addresses, and with the smaller Services of this node \
                 that is more than {}",
                PARTS.0
            );
            beyond.insert(name.clone(), why);
        }
    }
    beyond
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn weight(ports: usize, endpoints: usize, more: serde_json::Value) -> Weight {
        let all: Vec<_> = (1..=ports).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        let mut spec = json!({"clusterIPs": ["10.96.0.1"], "ports": all});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let endpoint = |index: usize| json!({"addresses": [format!("192.0.2.{}", index % 250)]});
        let endpoints: Vec<_> = (0..endpoints).map(endpoint).collect();
        let others = EndpointView::read(&json!({"slices": [{"endpoints": endpoints}]})).unwrap();
        Weight::of("ns", &ServiceView::read(&json!({ "spec": spec })).unwrap(), std::iter::empty(), &others)
    }

    fn left_out(weights: &[Weight]) -> Vec<usize> {
        let name = |index: usize| ("ns".to_owned(), format!("{index:04}"));
        let names: Vec<ServiceName> = (0..weights.len()).map(name).collect();
        beyond(names.iter().zip(weights.iter().copied())).keys().map(|(_, name)| name.parse().unwrap()).collect()
    }

    #[test]
    fn only_a_huge_service_is_left_out() {
        let small = weight(2, 3, json!({}));
        assert!(left_out(&vec![small; 1000]).is_empty());
        let huge = [
            weight(25_000, 8, json!({})),
            weight(1, 19_999, json!({})),
            weight(100, 6, json!({"affinitySeconds": 7})),
            weight(100, 1, json!({"externalIPs": vec!["192.0.2.1"; 500]})),
            weight(100, 1, json!({"loadBalancerSourceRanges": vec!["192.0.2.0/24"; 500]})),
        ];
        for huge in huge {
            assert_eq!(left_out(&[small, huge, small]), [1], "{huge:?}");
        }
        assert!(left_out(&[weight(250, 11, json!({})), weight(1, 2_999, json!({}))]).is_empty());
        assert_eq!(left_out(&[weight(250, 12, json!({})), weight(1, 3_000, json!({}))]), [0, 1]);
    }

    #[test]
    fn largest_services_are_left_out_first_with_a_reason() {
        let all: Vec<Weight> = [30, 20, 30, 30, 30, 1, 30, 30, 30].map(|ports| weight(ports, 99, json!({}))).to_vec();
        assert_eq!(left_out(&all), [7, 8]);
        let web = ("shop".to_owned(), "web".to_owned());
        let named = std::iter::once((&web, weight(251, 1, json!({}))));
        assert_eq!(beyond(named).into_values().next().unwrap(), "it has more than 250 ports");
    }
}
