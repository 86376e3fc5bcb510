//! Which nodes receive NetworkPolicies. Pure.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::{Effect, Node, World};
use crate::bridge::told::groups::{ServiceScope, policy_views};
use crate::bridge::told::kinds::Kind;

impl World {
    /// Applies a change of the node's request. Separate from Services, which differ between sites: policies stay while
    /// a node moves.
    pub(super) fn choose_policies(&mut self, node: &str, effects: &mut Vec<Effect>) {
        let scope = self.service_scope;
        let Some(view) = self.nodes.get_mut(node) else { return };
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let wanted = view.wants.policies;
        for pod in view.pods.values_mut() {
            let (before, mut rest): (Vec<_>, Vec<_>) =
                pod.refs.iter().cloned().partition(|name| Kind::PolicyViews.is(name));
            removed.extend(before);
            if wanted {
                let group = Arc::new(policy_views(&pod.key.namespace, scope));
                rest.push(Arc::clone(&group));
                rest.sort_unstable();
                added.push(group);
            }
            pod.refs = rest.into();
        }
        self.release(node, &removed, effects);
        added.into_iter().for_each(|name| self.need(node, name, effects));
    }
}

impl Node {
    /// The group of policies that a pod of the namespace needs.
    pub(super) fn policies(&self, namespace: &str, scope: ServiceScope) -> Option<ObjectKey> {
        self.wants.policies.then(|| policy_views(namespace, scope))
    }
}
