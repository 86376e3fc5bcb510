//! Room of nodes for large objects, in each namespace: objects that pods name are kept here, and on the device. Pure.

use std::collections::{BTreeMap, HashMap};

use edge_protocol::message::ObjectKey;

/// Limit in bytes of large objects that the pods of one node may name in a namespace.
pub(super) const ROOM: usize = 16 << 20;
/// Size in bytes from which an object counts.
const LARGE: usize = 64 << 10;

/// By node and namespace. Those without large objects have no entry.
#[derive(Debug, Default)]
pub(super) struct Rooms(HashMap<String, BTreeMap<String, Room>>);

/// Large objects that the pods of one node name in a namespace, with their sizes in bytes.
#[derive(Debug, Default)]
struct Room {
    placed: BTreeMap<ObjectKey, usize>,
    /// Sum of the sizes of those.
    used: usize,
    waiting: BTreeMap<ObjectKey, usize>,
}

impl Rooms {
    /// Gives an object room by its size, replacing its previous room. False if there is too little: it waits.
    pub(super) fn take(&mut self, node: &str, key: &ObjectKey, size: usize) -> bool {
        self.leave(node, key);
        if size < LARGE {
            return true;
        }
        let rooms = self.0.entry(node.to_owned()).or_default();
        rooms.entry(key.namespace.clone()).or_default().place(key.clone(), size)
    }

    /// Gives back the room of an object, or ends its waiting.
    pub(super) fn leave(&mut self, node: &str, key: &ObjectKey) {
        let Some(rooms) = self.0.get_mut(node) else { return };
        let Some(room) = rooms.get_mut(&key.namespace) else { return };
        room.waiting.remove(key);
        room.used -= room.placed.remove(key).unwrap_or_default();
        if room.placed.is_empty() && room.waiting.is_empty() {
            rooms.remove(&key.namespace);
        }
        if rooms.is_empty() {
            self.0.remove(node);
        }
    }

    /// Forgets a node.
    pub(super) fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Whether an object waits for room at this node.
    pub(super) fn waits(&self, node: &str, key: &ObjectKey) -> bool {
        let room = self.0.get(node).and_then(|rooms| rooms.get(&key.namespace));
        room.is_some_and(|room| room.waiting.contains_key(key))
    }

    /// Gives room to those that wait in a namespace, as far as there is some, and returns them.
    pub(super) fn fill(&mut self, node: &str, namespace: &str) -> Vec<ObjectKey> {
        let room = self.0.get_mut(node).and_then(|rooms| rooms.get_mut(namespace));
        let Some(room) = room.filter(|room| !room.waiting.is_empty()) else { return Vec::new() };
        let waiting = std::mem::take(&mut room.waiting);
        let placed = waiting.into_iter().filter(|(key, size)| room.place(key.clone(), *size));
        placed.map(|(key, _)| key).collect()
    }
}

impl Room {
    /// Places an object, or lets it wait.
    fn place(&mut self, key: ObjectKey, size: usize) -> bool {
        let fits = self.used + size <= ROOM;
        if fits {
            self.used += size;
            self.placed.insert(key, size);
        } else {
            self.waiting.insert(key, size);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind: "ConfigMap".into(), namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn room_is_of_each_node_and_namespace() {
        let mut rooms = Rooms::default();
        assert!(rooms.take("a", &key("n", "all"), ROOM));
        assert!(!rooms.take("a", &key("n", "more"), LARGE));
        assert!(rooms.take("a", &key("n", "small"), LARGE - 1), "it does not count");
        assert!(rooms.take("a", &key("m", "more"), LARGE) && rooms.take("b", &key("n", "more"), LARGE));
        assert!(rooms.waits("a", &key("n", "more")) && !rooms.waits("b", &key("n", "more")));
    }

    #[test]
    fn room_that_comes_back_is_filled() {
        let mut rooms = Rooms::default();
        assert!(rooms.take("a", &key("n", "all"), ROOM));
        for (name, size) in [("v", ROOM / 2), ("w", ROOM), ("x", ROOM / 2), ("y", LARGE)] {
            assert!(!rooms.take("a", &key("n", name), size));
        }
        assert!(rooms.fill("a", "n").is_empty());
        assert!(rooms.take("a", &key("n", "all"), LARGE), "it has shrunk");
        assert_eq!(rooms.fill("a", "n"), [key("n", "v"), key("n", "y")], "the others do not fit beside those");
        rooms.leave("a", &key("n", "v"));
        assert_eq!(rooms.fill("a", "n"), [key("n", "x")]);
        assert!(rooms.fill("a", "n").is_empty() && rooms.waits("a", &key("n", "w")));
    }

    #[test]
    fn nothing_stays_of_objects_that_went() {
        let mut rooms = Rooms::default();
        assert!(rooms.take("a", &key("n", "all"), ROOM) && !rooms.take("a", &key("n", "more"), ROOM));
        rooms.leave("a", &key("n", "more"));
        assert!(rooms.take("a", &key("n", "all"), 0));
        rooms.leave("b", &key("n", "all"));
        assert!(rooms.0.is_empty());
        assert!(rooms.take("a", &key("n", "all"), ROOM));
        rooms.forget("a");
        assert!(rooms.0.is_empty());
    }
}
