//! Claims and the volumes they are bound to, as far as they say where a pod can be: kube-scheduler's VolumeBinding
//! where nothing is provisioned. Pure.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::fit::Node;
use super::pod::PodKey;
use apimachinery::json::{items, text};

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// The volume of each claim; empty while it has none.
    claims: HashMap<PodKey, String>,
    /// The terms of each volume's node affinity; null when it is to be had everywhere.
    volumes: HashMap<String, Value>,
}

impl Volumes {
    /// A claim came or changed; true when that may give a pod a node.
    pub(super) fn claim(&mut self, key: PodKey, claim: &Value) -> bool {
        let bound = text(&claim["status"], "phase") == "Bound";
        let volume = if bound { text(&claim["spec"], "volumeName") } else { "" }.to_owned();
        self.claims.insert(key, volume.clone()) != Some(volume)
    }

    pub(super) fn claim_gone(&mut self, key: &PodKey) {
        self.claims.remove(key);
    }

    /// A volume came or changed; true when that may give a pod a node.
    pub(super) fn volume(&mut self, name: &str, volume: &Value) -> bool {
        let required = volume["spec"]["nodeAffinity"]["required"].clone();
        self.volumes.insert(name.to_owned(), required.clone()) != Some(required)
    }

    pub(super) fn volume_gone(&mut self, name: &str) {
        self.volumes.remove(name);
    }

    /// Forgets what fresh lists do not contain.
    pub(super) fn retain_claims(&mut self, listed: &HashSet<PodKey>) {
        self.claims.retain(|key, _| listed.contains(key));
    }

    pub(super) fn retain_volumes(&mut self, listed: &HashSet<PodKey>) {
        self.volumes.retain(|name, _| listed.contains(&(String::new(), name.clone())));
    }

    /// The terms that a node must meet for the volumes of a pod, or why no node will do yet.
    pub(super) fn of_pod(&self, namespace: &str, spec: &Value) -> Result<Vec<&Value>, String> {
        let mut terms = Vec::new();
        for volume in items(spec, "volumes") {
            let name = text(&volume["persistentVolumeClaim"], "claimName");
            if name.is_empty() {
                continue;
            }
            let Some(bound) = self.claims.get(&(namespace.to_owned(), name.to_owned())) else {
                return Err(format!("persistentvolumeclaim {name:?} not found"));
            };
            if bound.is_empty() {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            terms.extend(self.volumes.get(bound).filter(|required| !required.is_null()));
        }
        Ok(terms)
    }
}

impl Node {
    /// Whether volumes with these terms are to be had here.
    pub(super) fn reaches(&self, required: &[&Value]) -> bool {
        required.iter().all(|one| items(one, "nodeSelectorTerms").iter().any(|term| self.matches_term(term)))
    }
}
