//! How much storage CSI drivers offer to nodes: CSIStorageCapacities, found by the labels of a node. A driver of local
//! disks has one for each node. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::pod::PodKey;
use apimachinery::json::{present, text, text_entries};
use apimachinery::quantity::Quantity;
use apimachinery::selector::selects;

/// A CSIStorageCapacity.
#[derive(Debug)]
struct Capacity {
    class: String,
    topology: Value,
    /// Maximum size of a volume, in bytes.
    limit: i64,
}

impl Capacity {
    /// The class, and a label that a node must have; without one, all capacities of the class are looked at.
    fn place(&self) -> Place {
        let label = text_entries(&self.topology, "matchLabels").next();
        (self.class.clone(), label.map(|(key, value)| (key.to_owned(), value.to_owned())))
    }
}

/// Class, and key and value of a label.
type Place = (String, Option<(String, String)>);

#[derive(Debug, Default)]
pub(super) struct Capacities {
    all: HashMap<PodKey, Capacity>,
    places: BTreeMap<Place, BTreeSet<PodKey>>,
    /// How many capacities of a class name a node by the label with this key.
    keys: BTreeMap<String, BTreeMap<String, usize>>,
    /// Drivers that want their capacity to be considered.
    drivers: BTreeSet<String>,
}

impl Capacities {
    /// Adds or changes a driver; true if that may give a pod a node.
    pub(super) fn driver(&mut self, name: &str, driver: &Value) -> bool {
        if driver["spec"]["storageCapacity"] == true {
            self.drivers.insert(name.to_owned());
            return false;
        }
        self.drivers.remove(name)
    }

    pub(super) fn driver_gone(&mut self, name: &str) -> bool {
        self.drivers.remove(name)
    }

    /// Adds or changes a capacity; true if that may give a pod a node.
    pub(super) fn put(&mut self, key: PodKey, object: &Value) -> bool {
        let before = self.remove(&key).map_or(-1, |before| before.limit);
        let amount = present(object, "maximumVolumeSize").or_else(|| present(object, "capacity"));
        let (Some(topology), Some(limit)) = (present(object, "nodeTopology"), amount.and_then(Quantity::from_value))
        else {
            return false;
        };
        let class = text(object, "storageClassName").to_owned();
        let capacity = Capacity { class, topology: topology.clone(), limit: limit.units() };
        let more = capacity.limit > before;
        let place = capacity.place();
        if let (class, Some((label, _))) = &place {
            *self.keys.entry(class.clone()).or_default().entry(label.clone()).or_default() += 1;
        }
        self.places.entry(place).or_default().insert(key.clone());
        self.all.insert(key, capacity);
        more
    }

    pub(super) fn gone(&mut self, key: &PodKey) {
        self.remove(key);
    }

    fn remove(&mut self, key: &PodKey) -> Option<Capacity> {
        let capacity = self.all.remove(key)?;
        let place = capacity.place();
        if let Some(keys) = self.places.get_mut(&place) {
            keys.remove(key);
            if keys.is_empty() {
                self.places.remove(&place);
            }
        }
        if let (class, Some((label, _))) = &place
            && let Some(keys) = self.keys.get_mut(class)
            && let Some(count) = keys.get_mut(label)
        {
            *count -= 1;
            if *count == 0 {
                keys.remove(label);
            }
            if keys.is_empty() {
                self.keys.remove(class);
            }
        }
        Some(capacity)
    }

    pub(super) fn driver_names(&self) -> impl Iterator<Item = &String> {
        self.drivers.iter()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.all.keys()
    }

    /// Whether the scheduler considers the capacity of a driver.
    pub(super) fn are_checked_for(&self, driver: &str) -> bool {
        self.drivers.contains(driver)
    }

    /// Whether a volume of this class and size can be made for a node with these labels.
    pub(super) fn suffice(&self, class: &str, size: i64, labels: &Value) -> bool {
        let at = |label: Option<(String, String)>| {
            let keys = self.places.get(&(class.to_owned(), label));
            let mut found = keys.into_iter().flatten().filter_map(|key| self.all.get(key));
            found.any(|one| one.limit >= size && selects(&one.topology, labels))
        };
        let own = self.keys.get(class).into_iter().flat_map(BTreeMap::keys);
        let mut labelled = own.filter_map(|key| Some((key.clone(), labels.get(key)?.as_str()?.to_owned())));
        at(None) || labelled.any(|label| at(Some(label)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> PodKey {
        ("ns".to_owned(), name.to_owned())
    }

    fn capacity(topology: Value, amount: &str) -> Value {
        json!({"storageClassName": "fast", "nodeTopology": topology, "capacity": amount})
    }

    #[test]
    fn capacity_is_found_by_the_labels_of_a_node() {
        let mut all = Capacities::default();
        let of = |node: &str| json!({"matchLabels": {"topology/node": node}});
        assert!(all.put(key("a"), &capacity(of("a"), "1Gi")));
        assert!(all.put(key("b"), &capacity(of("b"), "0")));
        let labels = |node: &str| json!({"topology/node": node, "zone": "z"});
        let gib = 1 << 30;
        assert!(all.suffice("fast", gib, &labels("a")) && !all.suffice("fast", gib + 1, &labels("a")));
        assert!(!all.suffice("fast", 1, &labels("b")) && !all.suffice("slow", 1, &labels("a")));
        assert!(!all.put(key("a"), &capacity(of("a"), "1Mi")), "less than before");
        assert!(!all.suffice("fast", gib, &labels("a")));
        assert!(all.put(
            key("zone"),
            &capacity(
                json!({"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["z"]}]}),
                "5Gi"
            )
        ));
        assert!(all.suffice("fast", gib, &labels("c")) && !all.suffice("fast", gib, &json!({})));
        let mut limited = capacity(json!({}), "9Gi");
        limited["maximumVolumeSize"] = "1Ki".into();
        all.put(key("limited"), &limited);
        assert!(all.suffice("fast", 1024, &json!({})) && !all.suffice("fast", 1025, &json!({})));
        for name in ["a", "b", "zone", "limited"] {
            all.gone(&key(name));
        }
        assert!(all.all.is_empty() && all.places.is_empty() && all.keys.is_empty());
    }

    #[test]
    fn capacity_without_a_place_or_an_amount_is_no_capacity() {
        let mut all = Capacities::default();
        assert!(!all.put(key("a"), &json!({"storageClassName": "fast", "capacity": "1Gi"})));
        assert!(!all.put(key("b"), &json!({"storageClassName": "fast", "nodeTopology": {}})));
        assert!(!all.suffice("fast", 0, &json!({})));
    }

    #[test]
    fn driver_opts_in() {
        let mut all = Capacities::default();
        assert!(!all.driver("d", &json!({"spec": {"storageCapacity": true}})) && all.are_checked_for("d"));
        assert!(all.driver("d", &json!({"spec": {"storageCapacity": false}})) && !all.are_checked_for("d"));
    }
}
