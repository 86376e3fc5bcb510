//! CSI drivers as a node reports them, within what a node may say, and what follows for its CSINode. Pure.
//!
//! The rules are those of the API (K8s pkg/apis/storage/validation, `validateCSINodeDriver`) and of the kubelet
//! (pkg/volume/csi/nodeinfomanager). A driver that breaks one is left out; the others are written.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::names::dns_subdomain;
use edge_protocol::node_labels;
use sampan_json::SetField;
use serde_json::{Map, Value, json};

/// Annotation of a Node with the ids that drivers give it, as JSON by driver.
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";
/// Maximum length of a driver's name, in bytes.
const LONGEST_NAME: usize = 63;
/// Maximum length of a node's id, in bytes.
const LONGEST_ID: usize = 256;
/// Largest number of volumes of a driver that the API takes.
const MOST_VOLUMES: u64 = 0x7fff_ffff;
/// Maximum number of topology keys of one driver.
const MOST_KEYS: usize = 32;
/// Number of labels of a Node beyond which no topology is added: labels of drivers that have gone stay.
const MOST_LABELS: usize = 256;
/// Maximum length of a label's key and its value, in bytes.
const LONGEST_LABEL: (usize, usize) = (317, 63);

/// The drivers that are written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Drivers {
    /// Items of `spec.drivers` by name.
    entries: BTreeMap<String, Value>,
    /// Labels of the Node: the topology of all drivers.
    labels: BTreeMap<String, String>,
    /// Problems of drivers that are left out.
    pub(super) problems: Vec<String>,
}

/// What to do about the CSINode.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Nothing,
    Create(Vec<Value>),
    Delete,
    /// It is of an earlier Node of this name, and ends with that one: it is deleted, and then created.
    Replace,
    /// The lists to write one after the other: the API changes no driver in a list, but takes one away and adds one
    /// (K8s pkg/apis/storage/validation, `ValidateCSINodeUpdate`).
    Update(Vec<Vec<Value>>),
}

impl Drivers {
    /// `node`: the Node as it is in the API. A label that it has with another value is not changed.
    pub(super) fn read(reported: &Value, node: &Value) -> Self {
        let mut drivers = Self::default();
        for item in reported.as_array().into_iter().flatten() {
            if let Err(problem) = drivers.add(item, &node["metadata"]["labels"]) {
                drivers.problems.push(problem);
            }
        }
        drivers
    }

    fn add(&mut self, item: &Value, present: &Value) -> Result<(), String> {
        let name = item["name"].as_str().unwrap_or_default();
        if name.len() > LONGEST_NAME || !dns_subdomain(&name.to_lowercase()).is_empty() {
            let shown: String = name.chars().take(LONGEST_NAME).collect();
            return Err(format!("{shown:?} is not a name of a driver"));
        }
        if self.entries.contains_key(name) {
            return Err(format!("driver {name} is listed twice"));
        }
        let id = item["nodeID"].as_str().unwrap_or_default();
        if id.is_empty() || id.len() > LONGEST_ID || id.chars().any(char::is_control) {
            return Err(format!("driver {name}: its nodeID is empty, too long or not printable"));
        }
        let topology = self.topology(name, &item["labels"], present)?;
        let keys: Vec<&String> = topology.keys().collect();
        let mut entry = json!({"name": name, "nodeID": id, "topologyKeys": keys});
        // Zero means no limit (CSI specification, `NodeGetInfoResponse`).
        let count = item["allocatable"]["count"].as_u64().filter(|count| *count > 0);
        if let Some(count) = count {
            entry.set("allocatable", json!({"count": count.min(MOST_VOLUMES)}));
        }
        self.entries.insert(name.to_owned(), entry);
        self.labels.extend(topology);
        Ok(())
    }

    /// The topology of a driver, if all of it can be labels of the Node.
    fn topology(&self, name: &str, topology: &Value, present: &Value) -> Result<BTreeMap<String, String>, String> {
        let mut labels = BTreeMap::new();
        let all = match topology {
            Value::Null => return Ok(labels),
            Value::Object(all) if all.len() <= MOST_KEYS => all,
            _ => return Err(format!("driver {name}: its topology is not an object of at most {MOST_KEYS} keys")),
        };
        for (key, value) in all {
            let short = |value: &&str| key.len() <= LONGEST_LABEL.0 && value.len() <= LONGEST_LABEL.1;
            let Some(value) = value.as_str().filter(short) else {
                return Err(format!("driver {name}: a topology key or its value is too long, or not text"));
            };
            if let Some(problem) = node_labels::problem(key, value) {
                return Err(format!("driver {name}: {problem}"));
            }
            let other = self.labels.get(key).map(String::as_str).or_else(|| present[key.as_str()].as_str());
            if other.is_some_and(|other| other != value) {
                return Err(format!("driver {name}: its topology {key}={value} differs from the label of the Node"));
            }
            let count = present.as_object().map_or(0, Map::len) + self.labels.len() + labels.len();
            if other.is_none() && count >= MOST_LABELS {
                return Err(format!("driver {name}: the Node has {count} labels"));
            }
            labels.insert(key.clone(), value.to_owned());
        }
        Ok(labels)
    }

    /// The patch of the Node with topology and ids; `None` if it has them. Labels stay when a driver has gone, as with
    /// a kubelet: volumes that were provisioned for the topology still name them.
    pub(super) fn metadata(&self, node: &Value) -> Option<Value> {
        let present = &node["metadata"];
        let missing = self.labels.iter().filter(|(key, _)| present["labels"].get(*key).is_none());
        let labels: Map<String, Value> = missing.map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        let ids = self.entries.iter().map(|(name, entry)| (name.clone(), entry["nodeID"].clone()));
        let ids = Value::Object(ids.collect());
        let wanted = if self.entries.is_empty() { Value::Null } else { ids.to_string().into() };
        let held = present["annotations"][NODE_IDS].as_str();
        let same = match held.map(serde_json::from_str::<Value>) {
            None => wanted.is_null(),
            Some(held) => !wanted.is_null() && held.is_ok_and(|held| held == ids),
        };
        (!same || !labels.is_empty())
            .then(|| json!({"metadata": {"labels": labels, "annotations": {NODE_IDS: wanted}}}))
    }

    /// What to do about the CSINode; `held`: as it is in the API, `node_uid`: the uid of the Node.
    pub(super) fn plan(&self, held: Option<&Value>, node_uid: &str) -> Plan {
        let all = || self.entries.values().cloned().collect::<Vec<_>>();
        let Some(held) = held else {
            return if self.entries.is_empty() { Plan::Nothing } else { Plan::Create(all()) };
        };
        if self.entries.is_empty() {
            return Plan::Delete;
        }
        let owners = held["metadata"]["ownerReferences"].as_array();
        if !owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == node_uid)) {
            return Plan::Replace;
        }
        let held: Vec<&Value> = held["spec"]["drivers"].as_array().into_iter().flatten().collect();
        let wanted = |entry: &Value| entry["name"].as_str().and_then(|name| self.entries.get(name));
        let is_kept = |entry: &Value| wanted(entry).is_some_and(|wanted| is_same(entry, wanted));
        let kept: Vec<Value> = held.iter().filter(|entry| is_kept(entry)).map(|entry| Value::clone(entry)).collect();
        if kept.len() == held.len() && kept.len() == self.entries.len() {
            return Plan::Nothing;
        }
        let changes = held.iter().any(|entry| wanted(entry).is_some() && !is_kept(entry));
        let new = all().into_iter().filter(|entry| kept.iter().all(|kept| kept["name"] != entry["name"]));
        let complete: Vec<Value> = kept.iter().cloned().chain(new).collect();
        Plan::Update(if changes { vec![kept, complete] } else { vec![complete] })
    }
}

/// Whether the Node says that it has drivers.
pub(super) fn has_drivers(node: &Value) -> bool {
    node["metadata"]["annotations"].get(NODE_IDS).is_some()
}

/// Whether two items of `spec.drivers` say the same. The API writes null for no keys.
fn is_same(one: &Value, other: &Value) -> bool {
    let keys = |entry: &Value| {
        let keys = entry["topologyKeys"].as_array().into_iter().flatten();
        keys.filter_map(Value::as_str).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let count = |entry: &Value| entry["allocatable"]["count"].as_u64();
    one["nodeID"] == other["nodeID"] && keys(one) == keys(other) && count(one) == count(other)
}

#[cfg(test)]
mod tests;
