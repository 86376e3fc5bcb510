//! The truth: a Kubernetes API that one bridge watches.

use crate::rng::Rng;
use edge_protocol::message::{Object, ObjectDigest, ObjectKey};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A ConfigMap of this name cannot be applied by the edge.
pub(crate) const POISON: &str = "poison";

#[derive(Clone, Debug)]
pub(crate) struct ApiObject {
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Whether the node may see it (a pod always, a ConfigMap while a pod names it).
    pub(crate) used: bool,
    pad: usize,
}

#[derive(Debug)]
pub(crate) enum Watch {
    Set(Object),
    Deleted(ObjectKey, String),
    Withdrawn(ObjectKey, String),
}

#[derive(Debug, Default)]
pub(crate) struct Api {
    pub(crate) objects: BTreeMap<ObjectKey, ApiObject>,
    /// Uids that will never exist again.
    pub(crate) deleted: HashSet<String>,
    /// Uids that the node had no use for at some time.
    pub(crate) withdrawn: HashSet<String>,
    /// Newest status written per pod uid.
    pub(crate) statuses: HashMap<String, u64>,
    /// What the watch has still to deliver.
    pub(crate) watch: VecDeque<Watch>,
    uids: u64,
}

fn keys() -> [ObjectKey; 7] {
    let key = |kind: &str, name: &str| ObjectKey { kind: kind.into(), namespace: "ns".into(), name: name.into() };
    [
        key("Pod", "a"),
        key("Pod", "b"),
        key("Pod", "c"),
        key("Pod", "d"),
        key("ConfigMap", "e"),
        key("ConfigMap", "f"),
        key("ConfigMap", POISON),
    ]
}

impl ApiObject {
    pub(crate) fn object(&self, key: &ObjectKey) -> Object {
        let digest =
            ObjectDigest { key: key.clone(), uid: self.uid.clone(), digest: format!("{}@{}", self.uid, self.version) };
        Object { digest, body: serde_json::json!({ "version": self.version, "pad": "é\"".repeat(self.pad) }) }
    }
}

impl Api {
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        let keys = keys();
        let key = keys[rng.below(keys.len())].clone();
        match self.objects.get_mut(&key) {
            None => self.create(key, rng),
            Some(_) if rng.once_in(3) => self.delete(&key),
            Some(object) if key.kind == "ConfigMap" && rng.once_in(3) => {
                object.used = !object.used;
                let event = if object.used {
                    Watch::Set(object.object(&key))
                } else {
                    self.withdrawn.insert(object.uid.clone());
                    Watch::Withdrawn(key.clone(), object.uid.clone())
                };
                self.watch.push_back(event);
            }
            Some(object) => {
                object.version += 1;
                if object.used {
                    self.watch.push_back(Watch::Set(object.object(&key)));
                }
            }
        }
    }

    /// Many ConfigMaps at once, more than one frame of digests or keys.
    pub(crate) fn crowd(&mut self, rng: &mut Rng) {
        for n in 0..700 {
            // Names in another order than the sequence of changes.
            let name = format!("{:03}", (n * 37) % 700);
            self.create(ObjectKey { kind: "ConfigMap".into(), namespace: "ns".into(), name }, rng);
        }
    }

    pub(crate) fn create(&mut self, key: ObjectKey, rng: &mut Rng) {
        self.uids += 1;
        // Now and then one that needs slices.
        let pad = if self.objects.len() < 20 && rng.once_in(40) { 60_000 } else { rng.below(200) };
        let object = ApiObject { uid: format!("u{}", self.uids), version: 1, used: true, pad };
        self.watch.push_back(Watch::Set(object.object(&key)));
        self.objects.insert(key, object);
    }

    pub(crate) fn delete(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.remove(key) {
            self.deleted.insert(object.uid.clone());
            self.watch.push_back(Watch::Deleted(key.clone(), object.uid));
        }
    }

    pub(crate) fn delete_all(&mut self) {
        self.keys().iter().for_each(|key| self.delete(key));
    }

    pub(crate) fn created(&self) -> u64 {
        self.uids
    }

    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.objects.keys().cloned().collect()
    }

    /// Writes a status as the bridge does; a newer one is never followed by an older one.
    pub(crate) fn write_status(&mut self, uid: &str, version: u64) {
        let written = self.statuses.entry(uid.to_owned()).or_default();
        assert!(version >= *written, "status {version} of {uid} was written after {written}");
        *written = version;
    }
}
