//! Input of a plugin on its standard input, with the requests of pods (`runtimeConfig`). Pure.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::conf::{NetworkList, Plugin};
use crate::net::Subnet;
use crate::net::bandwidth::Bandwidth;
use crate::pod::ports::host_ports;

/// Burst of a limit, in bits: as the kubelet's and containerd's, large enough never to matter.
const BURST_BITS: u64 = i32::MAX as u64;

/// The configuration of one plugin: the list's name and version, the parts of `arguments` it is capable of, and the
/// result so far.
pub fn config(list: &NetworkList, plugin: &Plugin, arguments: &Map<String, Value>, previous: Option<&Value>) -> Value {
    let mut config = plugin.config.clone();
    config.insert("name".into(), list.name.clone().into());
    config.insert("cniVersion".into(), list.version.clone().into());
    // A `.conf` may carry what only a list uses.
    config.remove("cniVersions");
    let wanted: Map<String, Value> = arguments
        .iter()
        .filter(|(key, _)| plugin.wants(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !wanted.is_empty() {
        config.insert("runtimeConfig".into(), wanted.into());
    }
    if let Some(previous) = previous {
        config.insert("prevResult".into(), previous.clone());
    }
    Value::Object(config)
}

/// All that plugins may be capable of, for one pod: `portMappings`, `bandwidth`, `ipRanges`.
pub fn arguments(pod: &Pod, bandwidth: Bandwidth, subnets: &[Subnet]) -> Map<String, Value> {
    let mut all = Map::new();
    let ports: Vec<Value> = host_ports(pod)
        .iter()
        .map(|port| {
            let ip = port.ip.map(|ip| ip.to_string()).unwrap_or_default();
            json!({"hostPort": port.port, "containerPort": port.container_port, "hostIP": ip,
                "protocol": port.protocol.to_string()})
        })
        .collect();
    if !ports.is_empty() {
        all.insert("portMappings".into(), ports.into());
    }
    let mut limits = Map::new();
    for (direction, rate) in [("ingress", bandwidth.ingress), ("egress", bandwidth.egress)] {
        if let Some(bits) = rate {
            limits.insert(format!("{direction}Rate"), bits.into());
            limits.insert(format!("{direction}Burst"), BURST_BITS.into());
        }
    }
    if !limits.is_empty() {
        all.insert("bandwidth".into(), limits.into());
    }
    let ranges: Vec<Value> = subnets.iter().map(|subnet| json!([{"subnet": subnet.to_string()}])).collect();
    if !ranges.is_empty() {
        all.insert("ipRanges".into(), ranges.into());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::conf::parse;
    use super::*;

    #[test]
    fn each_plugin_gets_its_capabilities() {
        let list = parse(br#"{"cniVersion":"0.4.0","name":"n","plugins":[{"type":"a","mtu":7},{"type":"portmap","capabilities":{"portMappings":true,"bandwidth":false}}]}"#).unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c",
            "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}]}]}}))
        .unwrap();
        let bandwidth = Bandwidth { ingress: Some(1_000_000), egress: None };
        let all = arguments(&pod, bandwidth, &["10.1.0.0/24".parse().unwrap()]);
        assert_eq!(all["bandwidth"]["ingressRate"], 1_000_000);
        assert_eq!(all["ipRanges"], json!([[{"subnet": "10.1.0.0/24"}]]));
        let first = config(&list, &list.plugins[0], &all, None);
        assert_eq!(first, json!({"type": "a", "mtu": 7, "name": "n", "cniVersion": "0.4.0"}));
        let second = config(&list, &list.plugins[1], &all, Some(&json!({"ips": []})));
        let mapping = json!([{"hostPort": 8080, "containerPort": 80, "hostIP": "", "protocol": "udp"}]);
        assert_eq!(second["runtimeConfig"], json!({"portMappings": mapping}));
        assert_eq!(second["prevResult"], json!({"ips": []}));
    }
}
