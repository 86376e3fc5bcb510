//! Sends an object that was read to each node that has room for it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use edge_protocol::message::{Object, ObjectKey};

use super::room::ROOM;
use super::shared::{Standing, Value, size};
use super::{Effect, Told, World};
use crate::bridge::pod_references::SERVICE_LINKS;

impl World {
    /// A ConfigMap or Secret was read. For nodes without room it counts as missing. If no node has room, it is dropped,
    /// and read again as soon as one has.
    pub fn object_present(&mut self, object: Object) -> Vec<Effect> {
        let object = Told::new(object);
        let (key, size) = (object.digest.key.clone(), size(&object));
        let rooms = &mut self.rooms;
        // Whether the node has received it, if it existed, and has room for it now.
        let place = |node: &String| {
            let told = !rooms.waits(node, &key);
            (node.clone(), (told, rooms.take(node, &key, size)))
        };
        let users = self.shared.get(&key).into_iter().flat_map(|shared| shared.users.keys());
        let places: BTreeMap<String, (bool, bool)> = users.map(place).collect();
        if let Some((node, _)) = places.iter().find(|(_, (_, fits))| !fits) {
            let ObjectKey { kind, namespace, name } = &key;
            log::warn!(
                "{kind} {namespace}/{name} is kept from node {node}: pods there name more than {ROOM} bytes of large objects"
            );
        }
        let kept = places.values().any(|(_, fits)| *fits);
        let mut effects = self.resolve(&key, |users, old, effects| {
            let had = old.objects().next().map(|old| old.digest.uid.clone());
            for node in users.admitted() {
                let (told, fits) = places.get(node).copied().unwrap_or_default();
                if let Some(uid) = had.clone().filter(|_| told) {
                    let (node, key) = (node.clone(), key.clone());
                    if uid != object.digest.uid {
                        effects.push(Effect::Remove { node, key, uid });
                    } else if !fits {
                        // It still exists, and may be sent again.
                        effects.push(Effect::Withdraw { node, key, uid });
                    }
                }
                if fits {
                    effects.push(Effect::Set { node: node.clone(), object: Arc::clone(&object) });
                }
            }
            if kept { Value::Present(Arc::clone(&object)) } else { Value::Absent }
        });
        for node in places.keys() {
            self.refill(node, &key.namespace, &mut effects);
        }
        effects
    }

    /// A ConfigMap or Secret does not exist.
    pub fn object_absent(&mut self, key: &ObjectKey) -> Vec<Effect> {
        let users = self.users_of(key);
        users.iter().for_each(|node| self.rooms.leave(node, key));
        let mut effects = self.resolve(key, |users, old, effects| {
            if let Value::Present(old) = old {
                effects.extend(users.admitted().cloned().map(|node| {
                    let (key, uid) = (key.clone(), old.digest.uid.clone());
                    // Derived from other objects, it has a constant uid.
                    match key.kind.as_str() {
                        SERVICE_LINKS => Effect::Withdraw { node, key, uid },
                        _ => Effect::Remove { node, key, uid },
                    }
                }));
            }
            Value::Absent
        });
        users.iter().for_each(|node| self.refill(node, &key.namespace, &mut effects));
        effects
    }

    /// Sends a node what had no room there and has it now.
    pub(super) fn refill(&mut self, node: &str, namespace: &str, effects: &mut Vec<Effect>) {
        for key in self.rooms.fill(node, namespace) {
            let Some(shared) = self.shared.get_mut(&key) else { continue };
            match &shared.value {
                Value::Present(object) if shared.standing(node) == Some(Standing::Admitted) => {
                    effects.push(Effect::Set { node: node.to_owned(), object: Arc::clone(object) });
                }
                Value::Absent => shared.read_again(self.round, &key, effects),
                _ => {}
            }
        }
    }
}
