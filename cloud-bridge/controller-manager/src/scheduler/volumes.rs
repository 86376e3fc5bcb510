//! Claims and their volumes, as far as they restrict nodes, and claims whose volume is created where their pod will
//! run: kube-scheduler's VolumeBinding. Does not know who creates the volume. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Value, json};

use super::capacity::Capacities;
use super::fit::Node;
use super::limits::Limits;
use super::pod::{Pod, PodKey};
use apimachinery::json::{flag, items, text};
use apimachinery::meta;
use apimachinery::quantity::Quantity;

/// Annotation of a claim: the node where its volume must be made.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The known claims, volumes and classes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    claims: HashMap<PodKey, Claim>,
    volumes: HashMap<String, Volume>,
    /// Classes that wait for a pod before a volume is created.
    waiting: HashMap<String, Class>,
    pub(super) limits: Limits,
    pub(super) capacities: Capacities,
}

#[derive(Debug, PartialEq)]
struct Volume {
    /// Terms of its node affinity; null if it is reachable from every node.
    required: Value,
    /// Its CSI driver; empty without one.
    driver: String,
}

#[derive(Debug, PartialEq)]
struct Class {
    provisioner: String,
    /// Terms of the nodes on which it creates volumes; null for all nodes.
    places: Value,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Claim {
    pub(super) uid: String,
    /// Its volume; empty without one.
    volume: String,
    class: String,
    /// The node where its volume must be made; empty until one is selected.
    selected: String,
    /// The uid of its controller: the pod of an ephemeral volume.
    owner: String,
    /// Requested size, in bytes.
    size: i64,
    deleting: bool,
    /// Whether one pod alone may use it (`ReadWriteOncePod`).
    exclusive: bool,
}

impl Claim {
    pub(super) fn read(uid: &str, selected: &str, claim: &Value) -> Self {
        let spec = &claim["spec"];
        let bound = text(&claim["status"], "phase") == "Bound";
        let owners = items(&claim["metadata"], "ownerReferences").iter();
        let owner = owners.filter(|owner| flag(owner, "controller")).map(|owner| text(owner, "uid")).next();
        let size = Quantity::from_value(&spec["resources"]["requests"]["storage"]);
        Self {
            uid: uid.to_owned(),
            volume: if bound { text(spec, "volumeName") } else { "" }.to_owned(),
            class: text(spec, "storageClassName").to_owned(),
            selected: selected.to_owned(),
            owner: owner.unwrap_or_default().to_owned(),
            size: size.map_or(0, Quantity::units),
            deleting: meta::deleting(claim),
            exclusive: items(spec, "accessModes").iter().any(|mode| mode == "ReadWriteOncePod"),
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
    /// Terms of bound volumes, and of the classes of volumes to make.
    terms: Vec<&'a Value>,
    places: Vec<&'a Value>,
    /// Whether a claim is bound to a volume that does not exist.
    missing: bool,
    /// Drivers and ids of volumes that count against a limit.
    pub(super) counted: Vec<(&'a str, String)>,
    /// Names of the claims that one pod alone may use.
    pub(super) exclusive: Vec<&'a str>,
    /// Classes and sizes of volumes to make, of drivers whose capacity is known.
    sizes: Vec<(&'a str, i64)>,
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
        let read = || Volume {
            required: volume["spec"]["nodeAffinity"]["required"].clone(),
            driver: text(&volume["spec"]["csi"], "driver").to_owned(),
        };
        self.volumes.insert(name.to_owned(), read()) != Some(read())
    }

    pub(super) fn volume_gone(&mut self, name: &str) {
        self.volumes.remove(name);
    }

    /// Adds or changes a class; true if that may give a pod a node.
    pub(super) fn class(&mut self, name: &str, class: &Value) -> bool {
        // The in-tree provisioners of Kubernetes create none: a cloud's driver replaces each of them.
        let provisioner = text(class, "provisioner");
        let made = !provisioner.starts_with("kubernetes.io/");
        if !made || text(class, "volumeBindingMode") != "WaitForFirstConsumer" {
            return self.waiting.remove(name).is_some();
        }
        let read = || {
            let places = places(items(class, "allowedTopologies"));
            Class { provisioner: provisioner.to_owned(), places }
        };
        self.waiting.insert(name.to_owned(), read()) != Some(read())
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

    /// The driver and the id of a claim's volume, as far as it may count against a limit.
    pub(super) fn counted(&self, namespace: &str, name: &str) -> Option<(&str, String)> {
        let claim = self.claims.get(&(namespace.to_owned(), name.to_owned()))?;
        if claim.volume.is_empty() {
            let class = self.waiting.get(&claim.class)?;
            return Some((class.provisioner.as_str(), format!("{namespace}/{name}")));
        }
        self.driver_of(&claim.volume).map(|(volume, driver)| (driver, volume.to_owned()))
    }

    /// The driver of a volume, with the volume's name.
    pub(super) fn driver_of(&self, volume: &str) -> Option<(&str, &str)> {
        let (name, volume) = self.volumes.get_key_value(volume)?;
        (!volume.driver.is_empty()).then_some((name.as_str(), volume.driver.as_str()))
    }

    /// Requirements of a pod's volumes for a node, or the reason why no node fits yet. `is_node`: whether a node of
    /// this name exists.
    pub(super) fn of_pod<'a>(&'a self, pod: &'a Pod, is_node: impl Fn(&str) -> bool) -> Result<Wanted<'a>, Blocked> {
        let mut wanted = Wanted::default();
        let namespace = &pod.key.0;
        for volume in items(&pod.spec, "volumes") {
            let name = text(&volume["persistentVolumeClaim"], "claimName");
            if name.is_empty() {
                continue;
            }
            let claim = self.claims.get(&(namespace.clone(), name.to_owned()));
            let claim = usable(pod, (name, claim), flag(volume, "ephemeral")).map_err(Blocked::Because)?;
            wanted.counted.extend(self.counted(namespace, name));
            wanted.exclusive.extend(Some(name).filter(|_| claim.exclusive));
            if !claim.volume.is_empty() {
                match self.volumes.get(&claim.volume) {
                    Some(volume) => wanted.terms.extend(Some(&volume.required).filter(|required| !required.is_null())),
                    None => wanted.missing = true,
                }
                continue;
            }
            let Some(class) = self.waiting.get(&claim.class) else {
                let why = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Blocked::Because(why.to_owned()));
            };
            // A deleted node cancels the choice: its volume would never be created.
            if is_node(&claim.selected) {
                return Err(Blocked::Making);
            }
            wanted.places.extend(Some(&class.places).filter(|places| !places.is_null()));
            if claim.size > 0 && self.capacities.are_checked_for(&class.provisioner) {
                wanted.sizes.push((&claim.class, claim.size));
            }
            wanted.to_make.push((name, &claim.uid));
        }
        Ok(wanted)
    }

    /// Why volumes cannot be used on a node or made there, in the words of kube-scheduler's VolumeBinding.
    pub(super) fn conflicts(&self, node: &Node, wanted: &Wanted<'_>) -> Vec<Cow<'static, str>> {
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        if !node.reaches(&wanted.terms) {
            reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
        }
        if !node.reaches(&wanted.places) {
            reasons.push("node(s) didn't find available persistent volumes to bind".into());
        } else if !wanted.sizes.iter().all(|(class, size)| self.capacities.suffice(class, *size, &node.labels)) {
            reasons.push("node(s) did not have enough free storage".into());
        }
        if wanted.missing {
            reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into());
        }
        reasons
    }
}

/// A claim that a pod may use, or why it may not (K8s pkg/scheduler/framework/plugins/volumebinding, `podHasPVCs`).
fn usable<'a>(pod: &Pod, (name, claim): (&str, Option<&'a Claim>), ephemeral: bool) -> Result<&'a Claim, String> {
    let (namespace, own) = &pod.key;
    match claim {
        None if ephemeral => {
            Err(format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"))
        }
        None => Err(format!("persistentvolumeclaim {name:?} not found")),
        Some(claim) if claim.deleting => Err(format!("persistentvolumeclaim {name:?} is being deleted")),
        Some(claim) if ephemeral && claim.owner != pod.uid => {
            Err(format!("PVC {namespace}/{name} was not created for pod {namespace}/{own} (pod is not owner)"))
        }
        Some(claim) => Ok(claim),
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
    fn reaches(&self, required: &[&Value]) -> bool {
        required.iter().all(|one| items(one, "nodeSelectorTerms").iter().any(|term| self.matches_term(term)))
    }
}
