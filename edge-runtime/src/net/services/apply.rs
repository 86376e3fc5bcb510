//! Runs `nft` with what was decided.

use std::path::PathBuf;

use super::super::{NetError, firewall};
use super::table::{self, Change};

/// Runs a change, in one transaction.
///
/// # Errors
/// [`NetError::Firewall`]; the kernel holds what it held.
pub async fn run(nft: PathBuf, change: Change) -> Result<(), NetError> {
    firewall::run(&nft, &change.script).await
}

/// Whether all these chains are there, each with its family.
pub fn has(bridge: &str, marks: &[(&'static str, String)]) -> bool {
    let chains = marks.iter().map(|(family, mark)| (*family == "ip6", mark.as_str()));
    firewall::has_chains(&super::item::table(bridge), chains)
}

/// Deletes the tables, also those of a family that the node no longer has. Does not run `nft` without such tables.
///
/// # Errors
/// [`NetError::Firewall`].
pub async fn remove(nft: PathBuf, bridge: String) -> Result<(), NetError> {
    if firewall::has_no(&super::item::table(&bridge)) {
        return Ok(());
    }
    if let Err(error) = firewall::run(&nft, &table::remove(&bridge, &[true])).await {
        log::debug!("no table of IPv6 to delete: {error}");
    }
    firewall::run(&nft, &table::remove(&bridge, &[false])).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::node_ports::NodePorts;
    use super::super::rules::of_service;
    use super::super::table::{Tables, Wanted};
    use super::super::{EndpointView, Here, LocalPod, ServiceView};
    use super::*;
    use crate::net::namespaces::tests::isolate;

    /// Services with every possible setting, including malformed ones: the kernel accepts them all in one transaction.
    #[test]
    fn kernel_accepts_all_objects_of_services() {
        if !isolate() {
            return;
        }
        let subnets = ["10.85.0.0/24".parse().unwrap(), "fd00:85::/64".parse().unwrap()];
        let here = Here { ips: vec!["192.0.2.1".parse().unwrap()], subnets: subnets.to_vec(), ..Here::default() };
        let pods: Vec<LocalPod> = (2..5)
            .map(|index| LocalPod {
                namespace: "shop".into(),
                labels: [("app".to_owned(), "web".to_owned())].into(),
                ips: vec![format!("10.85.0.{index}").parse().unwrap(), format!("fd00:85::{index}").parse().unwrap()],
                ready: true,
                ..LocalPod::default()
            })
            .collect();
        let many: Vec<_> = (1..2000).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
        let ports = json!([{"name": "t", "port": 80, "nodePort": 30080}, {"name": "u", "port": 80, "protocol": "UDP"},
            {"name": "s", "port": 80, "protocol": "SCTP", "nodePort": 30081}, {"port": 65_535}, {"port": 0},
            {"name": "t", "port": 80, "nodePort": 30080}, {"name": "last", "port": 443, "targetPort": 65_535}]);
        let outside = json!(["192.0.2.1", "203.0.113.7", "2001:db8::7", "224.0.0.1", "::ffff:192.0.2.9"]);
        let ranges = json!(["203.0.113.0/24", "192.0.2.0/24", "192.0.2.0/28", "fd00::/8", "0.0.0.0/33"]);
        let full = json!({"clusterIPs": ["10.96.0.7", "fd00:96::7"], "selector": {"app": "web"}, "ports": ports,
            "externalIPs": outside, "ingressIPs": outside, "loadBalancerSourceRanges": ranges});
        let with = |more: serde_json::Value| {
            let mut spec = full.clone();
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let specs = [
            full.clone(),
            with(json!({"externalTrafficPolicy": "Local", "affinitySeconds": 0})),
            with(
                json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "affinitySeconds": u32::MAX}),
            ),
            with(json!({"selector": {"app": "nobody"}})),
            with(json!({"loadBalancerSourceRanges": ["nonsense"]})),
            json!({"clusterIPs": ["10.96.0.8"], "selector": {"app": "web"}, "ports": many}),
        ];
        let mut services = BTreeMap::new();
        for (index, spec) in specs.iter().enumerate() {
            let name = format!("s{index}");
            let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
            let items = of_service(("shop", &name), &view, &pods, &EndpointView::default(), &here, &[false, true]);
            services.insert(("shop".to_owned(), name), items);
        }
        let pods = pods.iter().flat_map(|pod| pod.ips.iter().map(|ip| (*ip, true))).collect();
        let wanted = Wanted { services, pods };
        for entries in [&[][..], &["primary"], &["192.0.2.0/24", "10.0.0.0/8", "10.1.0.0/16", "fd00::/8"]] {
            let mut tables = Tables::new("b0", &subnets);
            let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
            tables.set_node_ports(NodePorts::read(&entries, &here.ips).unwrap());
            let change = tables.replace(&wanted);
            smol::block_on(run("nft".into(), change)).unwrap();
            assert!(has("b0", &tables.marks()));
            // Then all of it is removed again.
            let none = wanted.services.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
            while let Some(change) = tables.change(&none, &BTreeMap::new()) {
                smol::block_on(run("nft".into(), change)).unwrap();
            }
            smol::block_on(run("nft".into(), tables.sweep().unwrap())).unwrap();
            assert!(has("b0", &tables.marks()));
        }
        smol::block_on(remove("nft".into(), "b0".into())).unwrap();
        assert!(!has("b0", &Tables::new("b0", &subnets).marks()));
        smol::block_on(remove("/nowhere/nft".into(), "b0".into())).expect("nothing is left to delete");
    }
}
