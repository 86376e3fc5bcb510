//! Which pods name which shared objects, and what nodes receive when an object or its users change. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::objects::warn_without_room;
use super::room::Place;
use super::shared::{Shared, Standing, User, Users, Value, is_guarded};
use super::{Effect, Group, Round, Told, World};

impl World {
    /// Whether a pod of this node names the object.
    pub fn uses(&self, node: &str, key: &ObjectKey) -> bool {
        self.shared.get(key).is_some_and(|shared| shared.users.contains_key(node))
    }

    /// The node holds this object, which the bridge made itself, and no list names it: the node does not need it,
    /// unless it was sent since. It may be sent again while its source exists.
    pub fn unlisted(&self, node: &str, key: &ObjectKey, uid: &str) -> Vec<Effect> {
        let is_it = |object: &Arc<Told>| object.digest.key == *key && object.digest.uid == uid;
        let tells = |shared: &Shared| shared.users.contains_key(node) && shared.value.objects().any(is_it);
        let view = self.nodes.get(node);
        let groups = view.into_iter().flat_map(|view| view.groups(&key.namespace, self.service_scope));
        let policies = view.and_then(|view| view.policies(&key.namespace, self.service_scope));
        let behind = view.into_iter().flat_map(|view| &view.behind).map(|group| ObjectKey::clone(group));
        if groups
            .chain(policies)
            .chain(behind)
            .chain([key.clone()])
            .any(|name| self.shared.get(&name).is_some_and(tells))
        {
            return Vec::new();
        }
        if self.orders.has(node, key, uid) {
            return Vec::new();
        }
        vec![Effect::Withdraw { node: node.to_owned(), key: key.clone(), uid: uid.to_owned() }]
    }

    /// All objects of a group were read, or some of them have changed.
    pub fn group_present(&mut self, key: &ObjectKey, group: Group) -> Vec<Effect> {
        self.resolve(key, |users, old, effects| {
            let empty = Group::new();
            let old = if let Value::Group(old) = old { old } else { &empty };
            for node in users.admitted() {
                for (key, had) in old {
                    let (node, key, uid) = (node.clone(), key.clone(), had.digest.uid.clone());
                    match group.get(&key) {
                        Some(now) if now.digest.uid == uid => {}
                        Some(_) => effects.push(Effect::Remove { node, key, uid }),
                        // Objects made from a Service may be sent again while the Service exists: its endpoints, or all
                        // of it when another proxy no longer serves it.
                        None => effects.push(Effect::Withdraw { node, key, uid }),
                    }
                }
                let news = group.iter().filter(|(key, object)| old.get(*key).is_none_or(|had| had != *object));
                effects.extend(news.map(|(_, object)| Effect::Set { node: node.clone(), object: Arc::clone(object) }));
            }
            Value::Group(group)
        })
    }

    /// The API did not answer whether a ConfigMap or Secret exists. The known state stays.
    pub fn object_failed(&mut self, key: &ObjectKey) -> Vec<Effect> {
        let Some(shared) = self.shared.get_mut(key) else { return Vec::new() };
        if !matches!(shared.value, Value::Pending) {
            return Vec::new();
        }
        shared.value = Value::Failed;
        // The request was made in the reader's name, which does not wait for it any longer either.
        if let Some(reader) = shared.users.get_mut(&shared.reader).filter(|user| user.standing == Standing::Asked) {
            reader.standing = Standing::Refused;
        }
        self.settle_users(key, Vec::new())
    }

    pub(super) fn resolve<F>(&mut self, key: &ObjectKey, change: F) -> Vec<Effect>
    where
        F: FnOnce(&Users<'_>, &Value, &mut Vec<Effect>) -> Value,
    {
        let mut effects = Vec::new();
        let Some(shared) = self.shared.get_mut(key) else { return effects };
        // The answer was to the reader's name.
        if let Some(reader) = shared.users.get_mut(&shared.reader) {
            reader.standing = Standing::Admitted;
        }
        shared.value = change(&Users(&shared.users), &shared.value, &mut effects);
        shared.told = shared.started;
        self.choose_volumes_of_claim(key, &mut effects);
        self.settle_users(key, effects)
    }

    pub(super) fn settle_users(&mut self, key: &ObjectKey, mut effects: Vec<Effect>) -> Vec<Effect> {
        for node in self.users_of(key) {
            self.settle(&node, &mut effects);
        }
        effects
    }

    /// The nodes whose pods name an object.
    pub(super) fn users_of(&self, key: &ObjectKey) -> Vec<String> {
        self.shared.get(key).into_iter().flat_map(|shared| shared.users.keys().cloned()).collect()
    }

    /// A pod of the node names the object. Without room for the name, nothing is asked of the API.
    pub(super) fn need(&mut self, node: &str, name: Arc<ObjectKey>, effects: &mut Vec<Effect>) {
        let known = self.shared.get_mut(&name);
        if let Some(user) = known.and_then(|shared| shared.users.get_mut(node)) {
            user.pods += 1;
            return;
        }
        let text = self.rooms.text(&name);
        let short = self.rooms.is_short(node, &name.namespace);
        let standing = match self.rooms.take(node, &name, text) {
            Place::Nowhere => Standing::Unasked,
            _ if is_guarded(&name) => Standing::Asked,
            _ => Standing::Admitted,
        };
        if standing == Standing::Unasked && !short {
            warn_without_room(node, &name);
        }
        let (key, started) = (ObjectKey::clone(&name), self.round);
        let shared = self.shared.entry(name).or_insert_with(|| {
            let reader = node.to_owned();
            let (users, told) = (BTreeMap::new(), Round::default());
            Shared { value: Value::Absent, users, reader, started, told, names: Box::default() }
        });
        let unread = shared.is_unread();
        shared.users.insert(node.to_owned(), User { pods: 1, standing });
        match standing {
            Standing::Unasked => {}
            // For the first user, the watch itself is the check.
            _ if unread => shared.read_in_name_of(node, started, &key, effects),
            Standing::Asked => effects.push(Effect::Admit { key, node: node.to_owned() }),
            _ => {
                let set = |object: &Arc<Told>| Effect::Set { node: node.to_owned(), object: Arc::clone(object) };
                effects.extend(shared.value.objects().map(set));
            }
        }
    }

    /// Requests everything again that the list of this node needs and that was last read before its round. Also what is
    /// needed only since its pods were read, for example because its site became known: other nodes may have it already.
    ///
    /// A watch that has not answered yet is not started again: while nodes connect one after the other, it would never
    /// answer. Its answer leads here again.
    pub(super) fn freshen(&mut self, node: &str, effects: &mut Vec<Effect>) {
        let Some(view) = self.nodes.get(node).filter(|view| view.seeded && !view.listed) else { return };
        if self.orders.are_stale(view.takes_orders, view.round, self.round) {
            effects.push(Effect::ReadJobs);
        }
        for key in view.pods.values().flat_map(|pod| pod.names()).chain(&view.own).chain(&view.behind) {
            if let Some(shared) = self.shared.get_mut(key)
                && shared.started < view.round
                && shared.told == shared.started
                && !shared.is_unread()
            {
                shared.started = self.round;
                effects.push(Effect::Watch { key: ObjectKey::clone(key), node: shared.reader.clone() });
            }
        }
    }

    pub(super) fn release(&mut self, node: &str, refs: &[Arc<ObjectKey>], effects: &mut Vec<Effect>) {
        for key in refs {
            let Some(shared) = self.shared.get_mut(key) else { continue };
            let left = match shared.users.get_mut(node) {
                Some(user) if user.pods > 1 => {
                    user.pods -= 1;
                    continue;
                }
                _ => shared.users.remove(node),
            };
            let told = !self.rooms.waits(node, key);
            self.rooms.leave(node, key);
            if told && left.is_some_and(|user| user.standing == Standing::Admitted) {
                let withdraw = |object: &Arc<Told>| {
                    let digest = object.digest.clone();
                    Effect::Withdraw { node: node.to_owned(), key: digest.key, uid: digest.uid }
                };
                effects.extend(shared.value.objects().map(withdraw));
            }
            if shared.users.is_empty() {
                self.shared.remove(key);
                effects.push(Effect::Unwatch { key: ObjectKey::clone(key) });
                continue;
            }
            if matches!(shared.value, Value::Present(_)) && shared.users.keys().all(|user| self.rooms.waits(user, key))
            {
                shared.value = Value::Absent;
            }
            if shared.is_unread() {
                shared.value = Value::Absent;
                effects.push(Effect::Unwatch { key: ObjectKey::clone(key) });
                continue;
            }
            if shared.reader == node {
                // The API server lets a node read only what its own pods name: continue in another node's name.
                shared.read_by_another(self.round, key, effects);
            }
        }
        let namespaces: BTreeSet<&str> = refs.iter().map(|key| key.namespace.as_str()).collect();
        namespaces.into_iter().for_each(|namespace| self.refill(namespace, effects));
    }
}
