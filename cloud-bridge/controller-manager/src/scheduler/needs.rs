//! Requirements of a pod for a node: amounts and host ports. Pure.

use litemap::LiteMap;
use serde_json::Value;

use apimachinery::json::{entries, integer, items, text};
use apimachinery::quantity::Quantity;

/// Amounts by resource name. Few, and three of these for each node of thousands: a leaf of a B-tree has room for eleven.
pub(super) type Amounts = LiteMap<String, Quantity>;

/// A host port of a pod: protocol, address (`0.0.0.0` is all) and number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostPort {
    protocol: String,
    ip: String,
    port: i64,
}

/// What one pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) requests: Amounts,
    pub(super) load: NonZero,
    pub(super) ports: Vec<HostPort>,
}

/// Assumed request of a container without requests, in thousandths of a core and bytes: otherwise a node full of such
/// pods would look empty (K8s pkg/scheduler/util, `GetNonzeroRequests`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NonZero {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

impl NonZero {
    pub(super) fn plus(self, more: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(more.cpu), memory: self.memory.saturating_add(more.memory) }
    }

    pub(super) fn minus(self, less: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(less.cpu), memory: self.memory.saturating_sub(less.memory) }
    }
}

impl Needs {
    pub(super) fn of(spec: &Value) -> Self {
        let assumed = |container: &Value| {
            let mut own = requests_of(container);
            own.entry("cpu".to_owned()).or_insert(Quantity::from_millis(100));
            own.entry("memory".to_owned()).or_insert(Quantity::from_units(200 * 1024 * 1024));
            own
        };
        let assumed = requests(spec, assumed);
        let load = NonZero {
            cpu: assumed.get("cpu").map_or(0, |q| q.millis()),
            memory: assumed.get("memory").map_or(0, |q| q.units()),
        };
        Self { requests: requests(spec, requests_of), load, ports: ports(spec) }
    }
}

/// The requests of a pod's spec. Containers and sidecars add up; an init container runs beside the sidecars started
/// before it, so the largest such sum counts if it exceeds the total. Overhead is added.
fn requests(spec: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut requests = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut requests, &of(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in items(spec, "initContainers") {
        let own = of(container);
        if text(container, "restartPolicy") == "Always" {
            add(&mut requests, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut moment = sidecars.clone();
            add(&mut moment, &own);
            raise(&mut peak, &moment);
        }
    }
    raise(&mut requests, &peak);
    requests.extend(amounts(&spec["resources"], "requests"));
    add(&mut requests, &amounts(spec, "overhead"));
    requests
}

fn ports(spec: &Value) -> Vec<HostPort> {
    items(spec, "containers")
        .iter()
        .flat_map(|container| items(container, "ports"))
        .filter_map(|port| {
            let number = integer(port, "hostPort").filter(|n| *n > 0)?;
            let or = |field: &str, default: &str| match text(port, field) {
                "" => default.to_owned(),
                value => value.to_owned(),
            };
            Some(HostPort { protocol: or("protocol", "TCP"), ip: or("hostIP", "0.0.0.0"), port: number })
        })
        .collect()
}

impl HostPort {
    /// True when both cannot be bound at once.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        let all = |ip: &str| ip == "0.0.0.0" || ip == "::";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || all(&self.ip) || all(&other.ip))
    }
}

/// A resource list of an object.
pub(super) fn amounts(holder: &Value, list: &str) -> Amounts {
    entries(holder, list).filter_map(|(name, value)| Some((name.clone(), Quantity::from_value(value)?))).collect()
}

fn requests_of(container: &Value) -> Amounts {
    amounts(&container["resources"], "requests")
}

/// Adds each amount.
pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    let sum = |name: &String, amount: &Quantity| to.get(name).map_or(*amount, |have| have.plus(*amount));
    // One by one, each would move all that come after it.
    let sums: Vec<_> = more.iter().map(|(name, amount)| (name.clone(), sum(name, amount))).collect();
    to.extend(sums);
}

/// Subtracts each amount.
pub(super) fn subtract(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        if let Some(have) = from.get_mut(name) {
            *have = have.minus(*amount);
        }
    }
}

fn raise(to: &mut Amounts, floor: &Amounts) {
    let higher = floor.iter().filter(|(name, amount)| to.get(*name).is_none_or(|have| have < *amount));
    let higher: Vec<_> = higher.map(|(name, amount)| (name.clone(), *amount)).collect();
    to.extend(higher);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needs(spec: Value) -> String {
        Needs::of(&spec).requests.get("cpu").map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn containers_add_up_and_init_containers_count_at_their_peak() {
        let cpu = |amount: &str| json!({"resources": {"requests": {"cpu": amount}}});
        assert_eq!(needs(json!({"containers": [cpu("100m"), cpu("200m")]})), "300m");
        assert_eq!(needs(json!({"containers": [cpu("100m")], "initContainers": [cpu("1"), cpu("2")]})), "2");
        let mut sidecar = cpu("500m");
        sidecar["restartPolicy"] = "Always".into();
        assert_eq!(needs(json!({"containers": [cpu("100m")], "initContainers": [sidecar, cpu("1")]})), "1500m");
        assert_eq!(needs(json!({"containers": [cpu("100m")], "resources": {"requests": {"cpu": "3"}}})), "3");
    }

    #[test]
    fn host_ports_conflict_by_protocol_and_address() {
        let port = |ip: &str, protocol: &str| HostPort { protocol: protocol.into(), ip: ip.into(), port: 80 };
        assert!(port("0.0.0.0", "TCP").conflicts(&port("10.0.0.1", "TCP")));
        assert!(!port("10.0.0.2", "TCP").conflicts(&port("10.0.0.1", "TCP")));
        assert!(!port("0.0.0.0", "UDP").conflicts(&port("0.0.0.0", "TCP")));
    }
}
