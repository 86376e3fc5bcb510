//! Which nodes want to be told of Services. Pure.

use std::sync::Arc;

use super::{Effect, World};
use crate::bridge::pod_references::{SERVICE_VIEWS, service_views};

impl World {
    /// Whether the node wants to be told of Services, as it says when it connects.
    pub fn wants_services(&mut self, node: &str, wanted: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(view) = self.nodes.get_mut(node).filter(|view| view.services != wanted) else { return effects };
        view.services = wanted;
        let mut changed = Vec::new();
        for pod in view.pods.values_mut() {
            let (groups, mut rest): (Vec<_>, Vec<_>) =
                pod.refs.iter().cloned().partition(|name| name.kind == SERVICE_VIEWS);
            if wanted {
                let groups: Vec<_> =
                    service_views(&pod.key.namespace, self.service_scope).into_iter().map(Arc::new).collect();
                rest.extend(groups.iter().cloned());
                rest.sort_unstable();
                changed.extend(groups);
            } else {
                changed.extend(groups);
            }
            pod.refs = rest.into();
        }
        if wanted {
            changed.into_iter().for_each(|name| self.need(node, name, &mut effects));
        } else {
            self.release(node, &changed, &mut effects);
        }
        self.settle(node, &mut effects);
        effects
    }
}
