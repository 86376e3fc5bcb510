//! EndpointSlices by their Service, and Services by the nodes where they have ready endpoints. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::object::Slice;

/// Namespace and name.
pub(super) type Key = (String, String);

/// All slices. A change of one affects only its own Service, and a change of a node the Services there.
#[derive(Debug, Default)]
pub(super) struct Slices {
    all: BTreeMap<Key, Slice>,
    of_service: BTreeMap<Key, BTreeSet<Key>>,
    /// Services by node, each with the slice that names the node.
    on_node: BTreeMap<String, BTreeSet<(Key, Key)>>,
}

impl Slices {
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.all.keys()
    }

    /// Stores or removes a slice. Returns the Services that it belonged to and belongs to.
    pub(super) fn put(&mut self, key: &Key, slice: Option<Slice>) -> Vec<Key> {
        let mut services = Vec::new();
        if let Some(old) = self.all.remove(key)
            && let Some(service) = old.service()
        {
            remove(&mut self.of_service, &service, key);
            for node in old.nodes() {
                remove(&mut self.on_node, node, &(service.clone(), key.clone()));
            }
            services.push(service);
        }
        let Some(new) = slice else { return services };
        if let Some(service) = new.service() {
            self.of_service.entry(service.clone()).or_default().insert(key.clone());
            for node in new.nodes() {
                self.on_node.entry(node.to_owned()).or_default().insert((service.clone(), key.clone()));
            }
            services.push(service);
        }
        self.all.insert(key.clone(), new);
        services
    }

    /// The slices of a Service.
    pub(super) fn of(&self, service: &Key) -> impl Iterator<Item = &Slice> {
        self.of_service.get(service).into_iter().flatten().filter_map(|key| self.all.get(key))
    }

    /// The Services with a ready endpoint on a node.
    pub(super) fn services_on(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.on_node.get(node).into_iter().flatten().map(|(service, _)| service)
    }
}

fn remove<K: Ord + std::borrow::Borrow<Q>, Q: Ord + ?Sized, V: Ord>(
    map: &mut BTreeMap<K, BTreeSet<V>>,
    place: &Q,
    value: &V,
) {
    if let Some(values) = map.get_mut(place) {
        values.remove(value);
        if values.is_empty() {
            map.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    fn slice(service: &str, endpoints: Value) -> Option<Slice> {
        let labels = json!({"kubernetes.io/service-name": service});
        let metadata = json!({"namespace": "ns", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "endpoints": endpoints})).unwrap()
    }

    fn on(slices: &Slices, node: &str) -> Vec<String> {
        slices.services_on(node).map(|(_, name)| name.clone()).collect()
    }

    #[test]
    fn node_leads_to_services_with_ready_endpoints_there() {
        let mut slices = Slices::default();
        let at = |nodes: &[&str]| nodes.iter().map(|node| json!({"nodeName": node})).collect::<Value>();
        assert_eq!(slices.put(&key("web-1"), slice("web", at(&["a", "b"]))), [key("web")]);
        assert_eq!(slices.put(&key("web-2"), slice("web", at(&["b"]))), [key("web")]);
        let unready = json!([{"nodeName": "a", "conditions": {"ready": false}}, {"nodeName": "c"}]);
        slices.put(&key("db-1"), slice("db", unready));
        assert_eq!([on(&slices, "a"), on(&slices, "c")], [["web"], ["db"]]);
        assert_eq!((slices.of(&key("web")).count(), slices.of(&key("db")).count()), (2, 1));
        // A slice that changes its Service, and one that is deleted.
        assert_eq!(slices.put(&key("web-1"), slice("api", at(&["a"]))), [key("web"), key("api")]);
        assert_eq!([on(&slices, "a"), on(&slices, "b")], [["api"], ["web"]]);
        assert_eq!(slices.put(&key("web-2"), None), [key("web")]);
        assert!(on(&slices, "b").is_empty() && slices.of(&key("web")).next().is_none());
    }
}
