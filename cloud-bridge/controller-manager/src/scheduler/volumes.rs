//! Claims and their volumes, as far as they restrict nodes, and claims whose volume is created where their pod will
//! run: kube-scheduler's VolumeBinding. Does not know who creates the volume. Pure.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::fit::Node;
use super::pod::PodKey;
use apimachinery::json::{items, text};

/// Annotation of a claim: the node where its volume must be made.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The known claims, volumes and classes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    claims: HashMap<PodKey, Claim>,
    /// Terms of each volume's node affinity; null if it is reachable from every node.
    volumes: HashMap<String, Value>,
    /// Classes that wait for a pod before a volume is created, and the terms of the nodes on which they create volumes;
    /// null for all nodes.
    waiting: HashMap<String, Value>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Claim {
    pub(super) uid: String,
    /// Its volume; empty without one.
    volume: String,
    class: String,
    /// The node where its volume must be made; empty until one is selected.
    selected: String,
}

impl Claim {
    pub(super) fn read(uid: &str, selected: &str, claim: &Value) -> Self {
        let spec = &claim["spec"];
        let bound = text(&claim["status"], "phase") == "Bound";
        Self {
            uid: uid.to_owned(),
            volume: if bound { text(spec, "volumeName") } else { "" }.to_owned(),
            class: text(spec, "storageClassName").to_owned(),
            selected: selected.to_owned(),
        }
    }
}

/// Why no node will do yet for the volumes of a pod.
#[derive(Debug)]
pub(super) enum Blocked {
    /// One is being made.
    Making,
    Because(String),
}

/// Requirements of a pod's volumes for a node.
#[derive(Debug, Default, Clone)]
pub(super) struct Wanted<'a> {
    pub(super) terms: Vec<&'a Value>,
    /// Names and uids of the claims whose volume is created on the pod's node after they name it.
    pub(super) to_make: Vec<(&'a str, &'a str)>,
}

impl Volumes {
    /// Adds or changes a claim; true if that may give a pod a node.
    pub(super) fn claim(&mut self, key: PodKey, claim: Claim) -> bool {
        if self.claims.get(&key) == Some(&claim) {
            return false;
        }
        self.claims.insert(key, claim);
        true
    }

    pub(super) fn claim_gone(&mut self, key: &PodKey) {
        self.claims.remove(key);
    }

    /// Adds or changes a volume; true if that may give a pod a node.
    pub(super) fn volume(&mut self, name: &str, volume: &Value) -> bool {
        let required = volume["spec"]["nodeAffinity"]["required"].clone();
        self.volumes.insert(name.to_owned(), required.clone()) != Some(required)
    }

    pub(super) fn volume_gone(&mut self, name: &str) {
        self.volumes.remove(name);
    }

    /// Adds or changes a class; true if that may give a pod a node.
    pub(super) fn class(&mut self, name: &str, class: &Value) -> bool {
        // The in-tree provisioners of Kubernetes create none: a cloud's driver replaces each of them.
        let made = !text(class, "provisioner").starts_with("kubernetes.io/");
        if !made || text(class, "volumeBindingMode") != "WaitForFirstConsumer" {
            return self.waiting.remove(name).is_some();
        }
        let terms = places(items(class, "allowedTopologies"));
        self.waiting.insert(name.to_owned(), terms.clone()) != Some(terms)
    }

    pub(super) fn class_gone(&mut self, name: &str) {
        self.waiting.remove(name);
    }

    pub(super) fn claim_keys(&self) -> impl Iterator<Item = &PodKey> {
        self.claims.keys()
    }

    pub(super) fn volume_names(&self) -> impl Iterator<Item = &String> {
        self.volumes.keys()
    }

    pub(super) fn class_names(&self) -> impl Iterator<Item = &String> {
        self.waiting.keys()
    }

    /// Requirements of a pod's volumes for a node, or the reason why no node fits yet. `is_node`: whether a node of
    /// this name exists.
    pub(super) fn of_pod<'a>(
        &'a self,
        namespace: &str,
        spec: &'a Value,
        is_node: impl Fn(&str) -> bool,
    ) -> Result<Wanted<'a>, Blocked> {
        let mut wanted = Wanted::default();
        for volume in items(spec, "volumes") {
            let name = text(&volume["persistentVolumeClaim"], "claimName");
            if name.is_empty() {
                continue;
            }
            let Some(claim) = self.claims.get(&(namespace.to_owned(), name.to_owned())) else {
                return Err(Blocked::Because(format!("persistentvolumeclaim {name:?} not found")));
            };
            if !claim.volume.is_empty() {
                wanted.terms.extend(self.volumes.get(&claim.volume).filter(|required| !required.is_null()));
                continue;
            }
            let Some(places) = self.waiting.get(&claim.class) else {
                let why = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Blocked::Because(why.to_owned()));
            };
            // A deleted node cancels the choice: its volume would never be created.
            if is_node(&claim.selected) {
                return Err(Blocked::Making);
            }
            wanted.terms.extend(Some(places).filter(|places| !places.is_null()));
            wanted.to_make.push((name, &claim.uid));
        }
        Ok(wanted)
    }
}

/// The allowed topologies of a class as terms that a node meets.
fn places(topologies: &[Value]) -> Value {
    let expression = |one: &Value| json!({"key": one["key"], "operator": "In", "values": one["values"]});
    let term = |term: &Value| {
        let all: Vec<Value> = items(term, "matchLabelExpressions").iter().map(expression).collect();
        json!({"matchExpressions": all})
    };
    if topologies.is_empty() {
        return Value::Null;
    }
    json!({"nodeSelectorTerms": topologies.iter().map(term).collect::<Vec<Value>>()})
}

impl Node {
    /// Whether volumes with these terms are reachable from this node.
    pub(super) fn reaches(&self, required: &[&Value]) -> bool {
        required.iter().all(|one| items(one, "nodeSelectorTerms").iter().any(|term| self.matches_term(term)))
    }
}
