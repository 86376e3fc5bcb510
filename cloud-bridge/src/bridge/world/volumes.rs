//! What the volumes of pods name: CSIDrivers, and Secrets of PersistentVolumes. Only for nodes that mount volumes of
//! CSI drivers. A pod's specification does not say: the claim has to be read first. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::shared::Standing;
use super::{Effect, Pod, World, without};
use crate::bridge::told::kinds::Kind;

/// Maximum number of CSIDrivers that are watched. A cluster has some tens; inline volumes of pods may name any.
const MOST_DRIVERS: usize = 256;

impl World {
    /// Whether the node mounts volumes of CSI drivers.
    pub fn takes_csi(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|view| view.wants.csi)
    }

    /// Whether a node mounts volumes of CSI drivers.
    pub fn any_takes_csi(&self) -> bool {
        self.csi_nodes > 0
    }

    /// Stores what the volume of a claim names.
    pub(super) fn volume_names(&mut self, claim: &ObjectKey, names: BTreeSet<ObjectKey>) {
        let known = |name: ObjectKey| match self.shared.get_key_value(&name) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(name),
        };
        let names = names.into_iter().map(known).collect();
        if let Some(shared) = self.shared.get_mut(claim) {
            shared.names = names;
        }
    }

    /// Applies what the volume of a claim names to all pods with the claim.
    pub(super) fn choose_volumes_of_claim(&mut self, claim: &ObjectKey, effects: &mut Vec<Effect>) {
        if self.any_takes_csi() && Kind::Claim.is(claim) {
            for node in self.users_of(claim) {
                self.choose_volumes(&node, Some(claim), effects);
            }
        }
    }

    /// Applies what volumes name to the pods of a node: to those with this claim, or to all.
    pub(super) fn choose_volumes(&mut self, node: &str, claim: Option<&ObjectKey>, effects: &mut Vec<Effect>) {
        if claim.is_some_and(|claim| !Kind::Claim.is(claim)) {
            return;
        }
        let Some(view) = self.nodes.get(node) else { return };
        let has = |pod: &Pod| claim.is_none_or(|claim| pod.refs.iter().any(|name| **name == *claim));
        let pods: Vec<String> = view.pods.iter().filter(|(_, pod)| has(pod)).map(|(uid, _)| uid.clone()).collect();
        for uid in pods {
            self.choose_volumes_of_pod(node, &uid, effects);
        }
    }

    /// Applies what volumes name to one pod.
    pub(super) fn choose_volumes_of_pod(&mut self, node: &str, uid: &str, effects: &mut Vec<Effect>) {
        let Some(view) = self.nodes.get(node) else { return };
        let Some(pod) = view.pods.get(uid) else { return };
        let names = if view.wants.csi { self.named_by_volumes(node, pod) } else { Box::default() };
        if names == pod.volumes {
            return;
        }
        let Some(pod) = self.nodes.get_mut(node).and_then(|view| view.pods.get_mut(uid)) else { return };
        let old = std::mem::replace(&mut pod.volumes, names.clone());
        let added = without(&names, &old);
        let namespaces: BTreeSet<String> = added.iter().map(|name| name.namespace.clone()).collect();
        for name in added {
            self.need(node, name, effects);
        }
        self.release(node, &without(&old, &names), effects);
        // A node that is new in a namespace adds to its room.
        namespaces.iter().for_each(|namespace| self.refill(namespace, effects));
    }

    /// The CSIDrivers of the pod's inline volumes, and what the volumes of its claims name, as far as the API lets the
    /// node read those claims.
    fn named_by_volumes(&self, node: &str, pod: &Pod) -> Box<[Arc<ObjectKey>]> {
        let claims = pod.refs.iter().filter(|name| Kind::Claim.is(name)).filter_map(|name| self.shared.get(name));
        let readable = claims.filter(|claim| claim.standing(node) == Some(Standing::Admitted));
        let names = pod.drivers.iter().chain(readable.flat_map(|claim| &claim.names)).cloned();
        let mut names: BTreeSet<Arc<ObjectKey>> = names.collect();
        let mut watched = None;
        names.retain(|name| {
            if !Kind::CsiDriver.is(name) || self.shared.contains_key(name) {
                return true;
            }
            let count = || self.shared.keys().filter(|key| Kind::CsiDriver.is(key)).count();
            let watched = watched.get_or_insert_with(count);
            *watched += 1;
            let has_room = *watched <= MOST_DRIVERS;
            if !has_room {
                log::warn!("CSIDriver {} is kept from node {node}: pods name too many drivers", name.name);
            }
            has_room
        });
        names.into_iter().collect()
    }
}
