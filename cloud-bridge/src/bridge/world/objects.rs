//! Sends an object that was read to each node that has room for it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edge_protocol::message::{Object, ObjectKey};

use super::room::Place;
use super::shared::{Standing, Value, size};
use super::{Effect, Told, World};
use crate::bridge::pod_references::volume_references;
use crate::bridge::told::kinds::{Kind, LookUp};

impl World {
    /// A ConfigMap or Secret was read. For nodes without room it counts as missing. If no node has room, it is dropped,
    /// and read again as soon as one has.
    pub fn object_present(&mut self, object: Object) -> Vec<Effect> {
        let names = volume_references(&object.digest.key, &object.body);
        let object = Told::new(object);
        let (key, size) = (object.digest.key.clone(), size(&object));
        self.volume_names(&key, names);
        let Some((name, shared)) = self.shared.get_key_value(&key) else { return Vec::new() };
        let rooms = &mut self.rooms;
        // Whether the node has received it, if it existed, and has room for it now.
        let mut place = |node: &String| {
            let told = !rooms.waits(node, &key);
            (node.clone(), (told, rooms.take(node, name, size) == Place::Whole))
        };
        let asked = shared.users.iter().filter(|(_, user)| user.standing != Standing::Unasked);
        let places: BTreeMap<String, (bool, bool)> = asked.map(|(node, _)| place(node)).collect();
        if let Some((node, _)) = places.iter().find(|(_, (_, fits))| !fits) {
            warn_without_room(node, &key);
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
        self.refill(&key.namespace, &mut effects);
        effects
    }

    /// A ConfigMap or Secret does not exist.
    pub fn object_absent(&mut self, key: &ObjectKey) -> Vec<Effect> {
        self.volume_names(key, BTreeSet::new());
        let Some((name, shared)) = self.shared.get_key_value(key) else { return Vec::new() };
        // Its name keeps its room: the watch goes on.
        for (node, _) in shared.users.iter().filter(|(_, user)| user.standing != Standing::Unasked) {
            self.rooms.take(node, name, 0);
        }
        let mut effects = self.resolve(key, |users, old, effects| {
            if let Value::Present(old) = old {
                // Made from other objects, it has a constant uid.
                let made = Kind::of(key).is_some_and(|kind| kind.facts().look_up == LookUp::Made);
                effects.extend(users.admitted().cloned().map(|node| {
                    let (key, uid) = (key.clone(), old.digest.uid.clone());
                    if made { Effect::Withdraw { node, key, uid } } else { Effect::Remove { node, key, uid } }
                }));
            }
            Value::Absent
        });
        self.refill(&key.namespace, &mut effects);
        effects
    }

    /// Sends nodes what had no room there and has it now. The API is asked for names that had none.
    pub(super) fn refill(&mut self, namespace: &str, effects: &mut Vec<Effect>) {
        for (node, key) in self.rooms.fill(namespace) {
            let Some(shared) = self.shared.get_mut(&key) else { continue };
            let unread = shared.is_unread();
            let Some(user) = shared.users.get_mut(&node) else { continue };
            let standing = user.standing;
            if standing == Standing::Unasked {
                user.standing = Standing::Asked;
            }
            match &shared.value {
                _ if unread => shared.read_in_name_of(&node, self.round, &key, effects),
                _ if standing == Standing::Unasked => {
                    effects.push(Effect::Admit { key: ObjectKey::clone(&key), node });
                }
                Value::Present(object) if standing == Standing::Admitted => {
                    effects.push(Effect::Set { node, object: Arc::clone(object) });
                }
                Value::Absent => shared.read_again(self.round, &key, effects),
                _ => {}
            }
        }
    }
}

pub(super) fn warn_without_room(node: &str, key: &ObjectKey) {
    let ObjectKey { kind, namespace, name } = key;
    log::warn!(
        "{kind} {namespace}/{name} is kept from node {node}: what pods of the namespace name exceeds its room, on the node or on all"
    );
}
