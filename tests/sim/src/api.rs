//! A Kubernetes API with pods bound to one node, ConfigMaps, and the Node object's fencing number; and the invariants
//! of everything that is written into it.

use std::collections::{BTreeMap, HashMap, HashSet};

use cloud_bridge::bridge::ServiceScope;
use serde_json::{Value, json};

use crate::rng::Rng;
use crate::twins::Devices;

pub const NODE: &str = "node";
const PODS: [&str; 4] = ["a", "b", "c", "d"];
const MAPS: [&str; 4] = ["e", "f", "g", "h"];
/// Namespace and name: in the pods' namespace, in another, and the two that every pod may use.
const SERVICES: [(&str, &str); 5] =
    [("ns", "db"), ("ns", "web"), ("other", "web"), ("default", "kubernetes"), ("kube-system", "kube-dns")];

#[derive(Clone, Debug)]
pub struct Pod {
    pub uid: String,
    pub rv: u64,
    pub generation: i64,
    pub maps: Vec<String>,
    pub deleting: bool,
    /// Whether no build can read its spec.
    pub poison: bool,
    image: u64,
}

#[derive(Clone, Debug)]
pub struct Map {
    pub uid: String,
    pub version: u64,
    size: usize,
}

/// A Service, or its slices: the content of either is its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub uid: String,
    pub version: u64,
    /// Whether another proxy serves it: nodes do not receive it.
    pub elsewhere: bool,
}

/// Services by namespace and name.
pub type Services = BTreeMap<(&'static str, &'static str), Service>;
/// Versions of endpoints that are not pods, by their Service's namespace and name; they outlive it for a while.
pub type Slices = BTreeMap<(&'static str, &'static str), u64>;

/// What a watch of pods delivers.
#[derive(Clone, Debug)]
pub enum Event {
    Applied(Value),
    Deleted(Value),
}

#[derive(Debug, Default)]
pub struct Api {
    pub pods: BTreeMap<String, Pod>,
    pub maps: BTreeMap<String, Map>,
    pub services: Services,
    pub slices: Slices,
    /// Fencing number of the newest connection, as the Node object has it.
    pub session: u64,
    /// All events of pods.
    pub log: Vec<Event>,
    /// Uids that will never exist again.
    pub deleted: HashSet<String>,
    /// Newest status written per pod uid, by the node's own count.
    pub statuses: HashMap<String, u64>,
    /// Whether no request is answered.
    pub down: bool,
    pub nacks: u64,
    /// Scope of the Services that a bridge sends to nodes; `None`: without Services.
    pub scope: Option<ServiceScope>,
    pub devices: Devices,
    counter: u64,
}

impl Api {
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// The version of a list made now.
    pub fn version(&self) -> u64 {
        self.counter
    }

    /// One random change by a user.
    pub fn change(&mut self, rng: &mut Rng) {
        if self.scope.is_some() && rng.once_in(3) {
            return self.change_services(rng);
        }
        if rng.once_in(3) {
            let name = MAPS[rng.below(MAPS.len())];
            match self.maps.get(name) {
                Some(_) if rng.once_in(4) => self.delete_map(name),
                Some(_) => self.update_map(name),
                None => self.create_map(name, if rng.once_in(60) { 150_000 } else { rng.below(200) }),
            }
            return;
        }
        let name = PODS[rng.below(PODS.len())];
        match self.pods.get(name) {
            None => {
                let maps = MAPS.iter().filter(|_| rng.once_in(3)).map(|m| (*m).to_owned()).collect();
                self.create_pod(name, maps);
            }
            Some(_) if rng.once_in(6) => self.delete_pod(name),
            Some(pod) if rng.once_in(4) && !pod.deleting => self.update_pod(name, |pod| pod.deleting = true),
            Some(_) => {
                let (poison, image) = (rng.once_in(8), rng.once_in(4));
                self.update_pod(name, |pod| {
                    pod.poison = poison;
                    pod.image += u64::from(image);
                });
            }
        }
    }

    /// One random change of a Service or its endpoints.
    fn change_services(&mut self, rng: &mut Rng) {
        if rng.once_in(12) {
            // Without a pod a node does not need Services.
            return PODS.iter().for_each(|name| self.delete_pod(name));
        }
        let at = SERVICES[rng.below(SERVICES.len())];
        match rng.below(8) {
            0 => self.delete_service(at),
            1 => self.serve_elsewhere(at),
            2 | 3 => self.delete_slices(at),
            4 | 5 => self.set_slices(at),
            _ => self.set_service(at),
        }
    }

    /// Creates or changes it.
    pub fn set_service(&mut self, at: (&'static str, &'static str)) {
        let version = self.next();
        let new = || Service { uid: format!("s{version}"), version, elsewhere: false };
        self.services.entry(at).or_insert_with(new).version = version;
    }

    pub fn delete_service(&mut self, at: (&'static str, &'static str)) {
        self.services.remove(&at);
    }

    /// Lets another proxy serve it from now on, or no longer.
    pub fn serve_elsewhere(&mut self, at: (&'static str, &'static str)) {
        let version = self.next();
        if let Some(service) = self.services.get_mut(&at) {
            (service.version, service.elsewhere) = (version, !service.elsewhere);
        }
    }

    pub fn set_slices(&mut self, at: (&'static str, &'static str)) {
        let version = self.next();
        self.slices.insert(at, version);
    }

    pub fn delete_slices(&mut self, at: (&'static str, &'static str)) {
        self.slices.remove(&at);
    }

    pub fn create_pod(&mut self, name: &str, maps: Vec<String>) {
        let (uid, rv) = (format!("u{}", self.next()), self.next());
        let pod = Pod { uid, rv, generation: 1, maps, deleting: false, poison: false, image: 0 };
        self.pods.insert(name.to_owned(), pod);
        self.log.push(Event::Applied(self.pod(name)));
    }

    pub fn update_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let rv = self.next();
        let Some(pod) = self.pods.get_mut(name) else { return };
        change(pod);
        pod.generation += 1;
        pod.rv = rv;
        self.log.push(Event::Applied(self.pod(name)));
    }

    pub fn delete_pod(&mut self, name: &str) {
        let last = self.pod(name);
        if let Some(pod) = self.pods.remove(name) {
            self.deleted.insert(pod.uid);
            self.log.push(Event::Deleted(last));
        }
    }

    pub fn create_map(&mut self, name: &str, size: usize) {
        let uid = format!("m{}", self.next());
        self.maps.insert(name.to_owned(), Map { uid, version: 1, size });
    }

    pub fn update_map(&mut self, name: &str) {
        if let Some(map) = self.maps.get_mut(name) {
            map.version += 1;
        }
    }

    pub fn delete_map(&mut self, name: &str) {
        if let Some(map) = self.maps.remove(name) {
            self.deleted.insert(map.uid);
        }
    }

    pub fn delete_all(&mut self) {
        PODS.iter().for_each(|name| self.delete_pod(name));
        MAPS.iter().for_each(|name| self.delete_map(name));
    }

    /// Whether a pod of the node names this ConfigMap: only then may the node read it.
    pub fn is_named(&self, map: &str) -> bool {
        self.pods.values().any(|pod| pod.maps.iter().any(|name| name == map))
    }

    /// A pod as the API shows it.
    pub fn pod(&self, name: &str) -> Value {
        let Some(pod) = self.pods.get(name) else { return Value::Null };
        let volume = |map: &String| json!({"name": map, "configMap": {"name": map, "optional": true}});
        let mut shown = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": pod.uid, "generation": pod.generation,
                "resourceVersion": pod.rv.to_string(),
            },
            "spec": {
                "nodeName": NODE,
                "enableServiceLinks": false,
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 5,
                "volumes": pod.maps.iter().map(volume).collect::<Vec<_>>(),
                "containers": [{"name": "c", "image": format!("img:{}", pod.image)}],
            },
        });
        if pod.poison {
            shown["spec"]["containers"] = "poison".into();
        }
        if pod.deleting {
            shown["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            shown["metadata"]["deletionGracePeriodSeconds"] = 5.into();
        }
        shown
    }

    /// A ConfigMap as the API shows it.
    pub fn map(&self, name: &str) -> Option<Value> {
        let map = self.maps.get(name)?;
        let data = json!({"version": map.version.to_string(), "pad": "é\"".repeat(map.size)});
        Some(json!({"metadata": {"name": name, "namespace": "ns", "uid": map.uid}, "data": data}))
    }

    /// Writes a status if the pod is still as it was when `rv` was read; false if it is not.
    pub fn write_status(&mut self, uid: &str, version: u64, rv: u64) -> bool {
        let next = self.next();
        let Some(pod) = self.pods.values_mut().find(|pod| pod.uid == uid) else { return true };
        if pod.rv != rv {
            return false;
        }
        pod.rv = next;
        let written = self.statuses.entry(uid.to_owned()).or_default();
        assert!(version >= *written, "status {version} of {uid} was written after {written}");
        *written = version;
        true
    }

    pub fn rv_of(&self, uid: &str) -> Option<u64> {
        self.pods.values().find(|pod| pod.uid == uid).map(|pod| pod.rv)
    }

    /// Deletes the object permanently, if it still has this uid: the node reports that nothing of the pod runs.
    pub fn gone(&mut self, uid: &str) {
        let name = self.pods.iter().find(|(_, pod)| pod.uid == uid).map(|(name, _)| name.clone());
        if let Some(name) = name {
            assert!(self.pods[&name].deleting, "pod {uid} was given up by its node though nobody asked for it");
            self.delete_pod(&name);
        }
    }
}
