//! Groups of objects that a node is told of as one: the Services of a namespace. Which nodes want them, and what changes in
//! a group. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::shared::Value;
use super::{Effect, Told, World};
use crate::bridge::pod_references::{SERVICE_VIEWS, service_views};

/// The objects of a group, by their keys.
pub type Group = BTreeMap<ObjectKey, Arc<Told>>;

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
                let groups = service_views(&pod.key.namespace).map(Arc::new);
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

    /// All objects of a group were read, or some of them have changed.
    pub fn group_present(&mut self, key: &ObjectKey, group: Group) -> Vec<Effect> {
        self.resolve(key, |users, old, effects| {
            let empty = Group::new();
            let old = if let Value::Group(old) = old { old } else { &empty };
            for node in users.admitted() {
                let gone = old
                    .iter()
                    .filter(|(key, had)| group.get(*key).is_none_or(|object| object.digest.uid != had.digest.uid));
                effects.extend(gone.map(|(key, had)| Effect::Remove {
                    node: node.clone(),
                    key: key.clone(),
                    uid: had.digest.uid.clone(),
                }));
                let news = group.iter().filter(|(key, object)| old.get(*key).is_none_or(|had| had != *object));
                effects.extend(news.map(|(_, object)| Effect::Set { node: node.clone(), object: Arc::clone(object) }));
            }
            Value::Group(group)
        })
    }
}
