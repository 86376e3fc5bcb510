//! A pod that a peer of a NetworkPolicy may select, in a compact form: while a policy has such a peer, the bridge keeps
//! all pods of the cluster. Pure.

use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Maximum number of named ports of a pod. A rule that names a further one does not permit traffic to this pod.
const PORTS: usize = 64;

/// A pod that may be a peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PeerPod {
    pub(super) namespace: String,
    /// Sorted by key.
    labels: Box<[(Box<str>, Box<str>)]>,
    pub(super) node: String,
    pub(super) ips: Vec<String>,
    ports: Box<[NamedPort]>,
}

#[derive(Clone, Debug, PartialEq)]
struct NamedPort {
    name: Box<str>,
    protocol: Protocol,
    number: u16,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl PeerPod {
    /// `None` for a pod without its own address, or that no longer has one.
    pub(super) fn of(pod: &DynamicObject) -> Option<Self> {
        let (spec, status) = (&pod.data["spec"], &pod.data["status"]);
        let over = ["Succeeded", "Failed"].iter().any(|phase| status["phase"] == *phase);
        let ips: Vec<String> = items(&status["podIPs"]).filter_map(|ip| ip["ip"].as_str().map(str::to_owned)).collect();
        if over || ips.is_empty() || spec["hostNetwork"] == true {
            return None;
        }
        let labels = pod.metadata.labels.iter().flatten();
        let text = |text: &String| -> Box<str> { text.as_str().into() };
        let containers = ["initContainers", "containers"].into_iter().flat_map(|field| items(&spec[field]));
        let ports = containers.flat_map(|container| items(&container["ports"]));
        Some(Self {
            namespace: pod.metadata.namespace.clone()?,
            labels: labels.map(|(key, value)| (text(key), text(value))).collect(),
            node: spec["nodeName"].as_str()?.to_owned(),
            ips,
            ports: ports.filter_map(NamedPort::of).take(PORTS).collect(),
        })
    }

    /// Value of a label.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let place = self.labels.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        self.labels.get(place).map(|(_, value)| &**value)
    }

    /// Named ports as nodes get them: name, protocol, number. `None` without any.
    pub(super) fn ports(&self) -> Option<Value> {
        let ports = self.ports.iter().map(|port| json!([port.name, port.protocol.name(), port.number]));
        (!self.ports.is_empty()).then(|| ports.collect())
    }
}

impl NamedPort {
    /// `None` for a port without a name, or that no rule can name.
    fn of(port: &Value) -> Option<Self> {
        let name = port["name"].as_str().filter(|name| !name.is_empty())?;
        let protocol = Protocol::of(port["protocol"].as_str().unwrap_or("TCP"))?;
        let number = u16::try_from(port["containerPort"].as_u64()?).ok()?;
        Some(Self { name: name.into(), protocol, number })
    }
}

impl Protocol {
    fn of(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp].into_iter().find(|protocol| protocol.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn pod(labels: Value, containers: Value) -> PeerPod {
        let pod = json!({"metadata": {"name": "p", "namespace": "shop", "labels": labels},
            "spec": {"nodeName": "n", "containers": containers}, "status": {"podIPs": [{"ip": "10.86.0.2"}]}});
        PeerPod::of(&object(pod)).unwrap()
    }

    #[test]
    fn pods_without_an_address_of_their_own_are_no_peers() {
        let none = [
            json!({"spec": {"nodeName": "n", "hostNetwork": true}}),
            json!({"spec": {}}),
            json!({"status": {"phase": "Failed", "podIPs": [{"ip": "10.86.0.2"}]}}),
            json!({"status": {}}),
            json!({"status": {"podIPs": 7}}),
            json!({"spec": 7}),
        ];
        for more in none {
            let mut pod = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"nodeName": "n"},
                "status": {"podIPs": [{"ip": "10.86.0.2"}]}});
            assert!(PeerPod::of(&object(pod.clone())).is_some());
            more.as_object().unwrap().iter().for_each(|(key, value)| pod[key] = value.clone());
            assert!(PeerPod::of(&object(pod.clone())).is_none(), "{pod}");
        }
    }

    #[test]
    fn labels_are_found_by_key() {
        let labelled = pod(json!({"b": "2", "a": "1", "app.kubernetes.io/name": "", "c": "3"}), json!([]));
        let found = ["a", "app.kubernetes.io/name", "b", "c", "", "aa", "d"].map(|key| labelled.label(key));
        assert_eq!(found, [Some("1"), Some(""), Some("2"), Some("3"), None, None, None]);
        assert_eq!(pod(Value::Null, json!([])).label("a"), None);
    }

    #[test]
    fn named_ports_of_a_pod_are_bounded() {
        let named = |n: usize| json!({"name": format!("p{n}"), "containerPort": n + 1});
        let ports = |ports: Vec<Value>| pod(json!({}), json!([{ "ports": ports }])).ports();
        let many = ports((0..2000).map(named).collect()).unwrap();
        assert_eq!((many.as_array().map(Vec::len), &many[63]), (Some(PORTS), &json!(["p63", "TCP", 64])));
        let unnamed = (0..2000).map(|n| json!({ "containerPort": n + 1 }));
        let dns = json!({"name": "dns", "containerPort": 53, "protocol": "UDP"});
        let wrong = [
            json!({"name": "", "containerPort": 1}),
            json!({"name": "large", "containerPort": 65536}),
            json!({"name": "odd", "containerPort": 1, "protocol": "ICMP"}),
        ];
        assert_eq!(ports(unnamed.chain(wrong.clone()).chain([dns]).collect()), Some(json!([["dns", "UDP", 53]])));
        assert_eq!(ports(wrong.into()), None);
    }
}
