//! Cluster addresses and node ports in use, from the stored Services and IPAddresses. Updated by writes of the storage:
//! an allocation reads no Services, of which a tenant may have many large ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::kinds::ip_address;
use crate::storage::{Store, StoreError};
use apimachinery::json::{integer, items, text};
use apimachinery::key::ObjectKey;

const SERVICES: &str = "services";
const FOLLOWED: [&str; 2] = [SERVICES, ip_address::STORAGE];

/// Addresses and ports in use, while the storage is open.
#[derive(Debug, Default)]
pub(crate) struct Held(Arc<Mutex<Taken>>);

/// The user of each. IPAddresses are cluster-scoped.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    addresses: BTreeMap<Ipv4Addr, BTreeSet<ObjectKey>>,
    /// Holders by port number and protocol.
    ports: BTreeMap<(i64, String), BTreeSet<ObjectKey>>,
}

impl Held {
    /// Reads all existing objects, one at a time, and follows later writes.
    pub(crate) fn follow(&self, store: &mut Store) -> Result<(), StoreError> {
        for storage in FOLLOWED {
            let mut after = None;
            while let Some(stored) = store.list(storage, None, after.as_ref(), Some(1))?.pop() {
                self.taken().change(storage, &stored.key, None, Some(stored.value()));
                after = Some(stored.key.clone());
            }
        }
        let taken = Arc::clone(&self.0);
        store.observe(Box::new(move |storage, written| {
            if FOLLOWED.contains(&storage) {
                let before = written.before.as_ref().map(|before| before.value());
                let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.change(storage, &written.object.key, before, written.after());
            }
        }));
        Ok(())
    }

    pub(crate) fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn change(&mut self, storage: &str, key: &ObjectKey, before: Option<&Value>, after: Option<&Value>) {
        if let Some(address) = before.and_then(|before| address(storage, key, before)) {
            give_back(&mut self.addresses, &address, key);
        }
        for port in before.into_iter().flat_map(|before| ports(storage, before)) {
            give_back(&mut self.ports, &port, key);
        }
        if let Some(address) = after.and_then(|after| address(storage, key, after)) {
            self.addresses.entry(address).or_default().insert(key.clone());
        }
        for port in after.into_iter().flat_map(|after| ports(storage, after)) {
            self.ports.entry(port).or_default().insert(key.clone());
        }
    }

    /// Whether a Service other than `own` has the address.
    pub(crate) fn has_address(&self, address: Ipv4Addr, own: &ObjectKey) -> bool {
        self.addresses.get(&address).is_some_and(|holders| holders.iter().any(|holder| holder != own))
    }

    /// Whether a Service other than `own` has the port of this protocol, or of any.
    pub(super) fn has_port(&self, port: i64, protocol: Option<&str>, own: &ObjectKey) -> bool {
        let mut all = self.ports.range((port, String::new())..).take_while(|((number, _), _)| *number == port);
        all.any(|((_, of), holders)| {
            protocol.is_none_or(|protocol| protocol == of) && holders.iter().any(|holder| holder != own)
        })
    }

    /// The addresses that Services have.
    pub(crate) fn of_services(&self) -> impl Iterator<Item = Ipv4Addr> {
        let has_service = |holders: &BTreeSet<ObjectKey>| holders.iter().any(|holder| !holder.namespace.is_empty());
        self.addresses.iter().filter(move |(_, holders)| has_service(holders)).map(|(address, _)| *address)
    }
}

fn address(storage: &str, key: &ObjectKey, object: &Value) -> Option<Ipv4Addr> {
    let shown = if storage == SERVICES { text(&object["spec"], "clusterIP") } else { &key.name };
    shown.parse().ok()
}

fn ports(storage: &str, object: &Value) -> impl Iterator<Item = (i64, String)> {
    let spec = (storage == SERVICES).then_some(&object["spec"]);
    spec.into_iter().flat_map(node_ports).map(|(protocol, port)| (port, protocol))
}

/// The node ports that a Service has, with their protocols. Health checks are TCP.
pub(super) fn node_ports(spec: &Value) -> impl Iterator<Item = (String, i64)> {
    let ports =
        items(spec, "ports").iter().filter_map(|port| Some((text(port, "protocol").to_owned(), node_port(port)?)));
    let check = integer(spec, "healthCheckNodePort").filter(|port| *port != 0);
    ports.chain(check.map(|port| ("TCP".to_owned(), port)))
}

/// The node port of one port of a Service, allocated or requested.
pub(super) fn node_port(port: &Value) -> Option<i64> {
    integer(port, "nodePort").filter(|port| *port != 0)
}

fn give_back<T: Ord>(taken: &mut BTreeMap<T, BTreeSet<ObjectKey>>, what: &T, holder: &ObjectKey) {
    if let Some(holders) = taken.get_mut(what) {
        holders.remove(holder);
        if holders.is_empty() {
            taken.remove(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "n".to_owned(), name: name.to_owned() }
    }

    fn service(address: &str, ports: &[(&str, i64)]) -> Value {
        let ports: Vec<Value> =
            ports.iter().map(|(protocol, port)| json!({"protocol": protocol, "nodePort": port})).collect();
        json!({"spec": {"clusterIP": address, "ports": ports, "healthCheckNodePort": 30_009}})
    }

    #[test]
    fn what_services_take_and_give_back_is_known() {
        let (mut taken, address) = (Taken::default(), Ipv4Addr::new(10, 0, 0, 7));
        let web = service("10.0.0.7", &[("UDP", 30_001), ("TCP", 0)]);
        taken.change(SERVICES, &key("web"), None, Some(&web));
        assert!(taken.has_address(address, &key("other")) && !taken.has_address(address, &key("web")));
        let has = |taken: &Taken, port, protocol| taken.has_port(port, protocol, &key("other"));
        assert!(has(&taken, 30_001, Some("UDP")) && has(&taken, 30_001, None) && has(&taken, 30_009, Some("TCP")));
        assert!(!has(&taken, 30_001, Some("TCP")) && !has(&taken, 30_000, None) && !has(&taken, 0, None));
        assert!(!taken.has_port(30_001, None, &key("web")));
        taken.change(SERVICES, &key("web"), Some(&web), Some(&service("None", &[])));
        assert!(!taken.has_address(address, &key("other")) && !has(&taken, 30_001, None));
        taken.change(SERVICES, &key("web"), Some(&service("None", &[])), None);
        assert!(taken.addresses.is_empty() && taken.ports.is_empty());
    }

    #[test]
    fn addresses_of_others_are_taken_and_no_services() {
        let (mut taken, address) = (Taken::default(), Ipv4Addr::new(10, 0, 0, 7));
        taken.change(ip_address::STORAGE, &ObjectKey::cluster("10.0.0.7"), None, Some(&json!({})));
        assert!(taken.has_address(address, &key("web")) && taken.of_services().next().is_none());
        taken.change(SERVICES, &key("web"), None, Some(&service("10.0.0.7", &[])));
        assert_eq!(taken.of_services().collect::<Vec<_>>(), [address]);
        taken.change(ip_address::STORAGE, &ObjectKey::cluster("10.0.0.7"), Some(&json!({})), None);
        assert!(taken.has_address(address, &key("other")), "the Service has it still");
    }
}
