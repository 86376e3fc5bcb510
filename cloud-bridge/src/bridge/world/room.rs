//! Room of a namespace for the ConfigMaps, Secrets and claims that its pods name: the bridge keeps and watches them, and
//! the device stores them. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::shared::is_guarded;

/// Limit in bytes of what the pods of one node name in a namespace.
pub(super) const NODE: usize = 16 << 20;
/// Limit in bytes of what all pods of a namespace name, and what each node with such pods adds to it.
const ALL: (usize, usize) = (24 << 20, 128 << 10);
/// Bytes that a name counts, whether its object exists or not: a watch has a task, a client and an open request (12 KiB),
/// and [`SMALL`].
const NAME: usize = 14 << 10;
/// Bytes of text that count with the name. All names of a namespace have their room before the first text is read, for
/// example after a restart. If they took all of it, no object would have room, not even `kube-root-ca.crt`.
const SMALL: usize = 2 << 10;

/// Room that an object has on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The object is watched and sent: name and text have room.
    Whole,
    /// The object is watched, and its text waits for room.
    Name,
    /// Name and text wait for room. The object is not watched for this node.
    Nowhere,
}

/// By namespace. Those whose pods name nothing have no entry.
#[derive(Debug, Default)]
pub(super) struct Rooms(HashMap<String, Namespace>);

#[derive(Debug, Default)]
struct Namespace {
    /// Nodes whose pods name objects.
    nodes: BTreeMap<String, Room>,
    /// Objects with room on a node. Each counts once, however many nodes have it.
    placed: HashMap<Arc<ObjectKey>, Placed>,
    /// Sum of the sizes of those.
    used: usize,
    /// Number of entries that wait at the nodes.
    waiting: usize,
    /// Whether a node or the namespace has more room than at the last fill. Otherwise nothing that waits can fit, and
    /// thousands of nodes need not be looked through.
    freed: bool,
}

/// An object that some nodes have room for.
#[derive(Debug, Default)]
struct Placed {
    /// Nodes with room for its name, and those of them with room for its text.
    named: usize,
    whole: usize,
    /// Size of its text in bytes.
    text: usize,
}

/// What the pods of one node name in a namespace.
#[derive(Debug, Default)]
struct Room {
    /// Objects with room, and the bytes that count for them.
    placed: BTreeMap<Arc<ObjectKey>, usize>,
    /// Sum of those bytes.
    used: usize,
    /// Objects whose text or name waits, with the sizes of their texts.
    waiting: BTreeMap<Arc<ObjectKey>, usize>,
}

impl Rooms {
    /// Gives an object room by the size of its text, replacing its previous room. What has too little waits. Objects
    /// that every node may read do not count.
    pub(super) fn take(&mut self, node: &str, key: &Arc<ObjectKey>, text: usize) -> Place {
        if !is_guarded(key) {
            return Place::Whole;
        }
        let namespace = self.0.entry(key.namespace.clone()).or_default();
        let nodes = namespace.nodes.len();
        namespace.nodes.entry(node.to_owned()).or_default();
        namespace.freed |= namespace.nodes.len() > nodes;
        namespace.place(node, key, text)
    }

    /// Gives back the room of an object, or ends its waiting.
    pub(super) fn leave(&mut self, node: &str, key: &ObjectKey) {
        let Some(namespace) = self.0.get_mut(&key.namespace) else { return };
        namespace.give_back(node, key);
        namespace.freed = true;
        if namespace.nodes.get(node).is_some_and(|room| room.placed.is_empty() && room.waiting.is_empty()) {
            namespace.nodes.remove(node);
        }
        if namespace.nodes.is_empty() {
            self.0.remove(&key.namespace);
        }
    }

    /// Whether an object waits for room at this node.
    pub(super) fn waits(&self, node: &str, key: &ObjectKey) -> bool {
        self.room(node, &key.namespace).is_some_and(|room| room.waiting.contains_key(key))
    }

    /// Whether anything of a namespace waits for room at this node.
    pub(super) fn is_short(&self, node: &str, namespace: &str) -> bool {
        self.room(node, namespace).is_some_and(|room| !room.waiting.is_empty())
    }

    /// Size in bytes of the text of an object, as far as a node has room for it. The object may still be read.
    pub(super) fn text(&self, key: &ObjectKey) -> usize {
        self.0.get(&key.namespace).map_or(0, |namespace| namespace.text(key))
    }

    fn room(&self, node: &str, namespace: &str) -> Option<&Room> {
        self.0.get(namespace).and_then(|namespace| namespace.nodes.get(node))
    }

    /// Gives room to those that wait in a namespace, as far as there is some. Returns nodes and objects with more room
    /// than before.
    pub(super) fn fill(&mut self, namespace: &str) -> Vec<(String, Arc<ObjectKey>)> {
        let Some(namespace) = self.0.get_mut(namespace).filter(|namespace| namespace.may_fill()) else {
            return Vec::new();
        };
        namespace.freed = false;
        let short = namespace.nodes.iter().filter(|(_, room)| !room.waiting.is_empty());
        let short: Vec<String> = short.map(|(node, _)| node.clone()).collect();
        let mut filled = Vec::new();
        for node in short {
            filled.extend(namespace.fill(&node).into_iter().map(|key| (node.clone(), key)));
        }
        filled
    }
}

impl Namespace {
    /// Places an object on a node that has an entry, or lets it wait there.
    fn place(&mut self, node: &str, key: &Arc<ObjectKey>, text: usize) -> Place {
        // A limit that has shrunk takes nothing away.
        let limit = self.limit().max(self.used);
        let before = self.in_use(node);
        self.give_back(node, key);
        let others = self.used - self.counted(key);
        let Some(room) = self.nodes.get_mut(node) else { return Place::Nowhere };
        let used = room.used;
        let fits = |size: usize| used + size <= NODE && others + size <= limit;
        let place = if fits(size(text)) {
            Place::Whole
        } else if fits(NAME) {
            Place::Name
        } else {
            Place::Nowhere
        };
        if place != Place::Whole {
            room.waiting.insert(Arc::clone(key), text);
            self.waiting += 1;
        }
        if place != Place::Nowhere {
            let size = if place == Place::Whole { size(text) } else { NAME };
            room.placed.insert(Arc::clone(key), size);
            room.used += size;
            let placed = self.placed.entry(Arc::clone(key)).or_default();
            placed.named += 1;
            if place == Place::Whole {
                (placed.whole, placed.text) = (placed.whole + 1, text);
            }
            self.used = others + placed.size();
        }
        let after = self.in_use(node);
        self.freed |= after.0 < before.0 || after.1 < before.1;
        place
    }

    fn give_back(&mut self, node: &str, key: &ObjectKey) {
        let Some(room) = self.nodes.get_mut(node) else { return };
        let waited = room.waiting.remove(key).is_some();
        self.waiting -= usize::from(waited);
        let (Some(size), Some(placed)) = (room.placed.remove(key), self.placed.get_mut(key)) else { return };
        room.used -= size;
        self.used -= placed.size();
        placed.named -= 1;
        placed.whole -= usize::from(!waited);
        self.used += placed.size();
        if placed.named == 0 {
            self.placed.remove(key);
        }
    }

    /// Gives room to those that wait at a node.
    fn fill(&mut self, node: &str) -> Vec<Arc<ObjectKey>> {
        let mut filled = Vec::new();
        if self.is_full(node) {
            return filled;
        }
        let waiting = self.nodes.get(node).map(|room| room.waiting.clone()).unwrap_or_default();
        for (key, text) in waiting {
            if self.is_full(node) {
                break;
            }
            let Some(room) = self.nodes.get(node) else { break };
            let named = room.placed.contains_key(&key);
            // A quick answer: thousands of large objects may wait for more than there is.
            if named && room.used - NAME + size(text) > NODE {
                continue;
            }
            // A name that waited comes with the text that counts already.
            let text = if named { text } else { self.text(&key) };
            let place = self.place(node, &key, text);
            if place == Place::Whole || (place == Place::Name && !named) {
                filled.push(key);
            }
        }
        filled
    }

    /// Whether anything waits that may fit since room came back.
    fn may_fill(&self) -> bool {
        self.freed && self.waiting > 0 && self.used + NAME <= self.limit()
    }

    /// Bytes in use at a node, and in the namespace.
    fn in_use(&self, node: &str) -> (usize, usize) {
        (self.nodes.get(node).map_or(0, |room| room.used), self.used)
    }

    /// Whether there is less than the room of a name: thousands that wait are not looked through for it.
    fn is_full(&self, node: &str) -> bool {
        self.used + NAME > self.limit() || self.nodes.get(node).is_none_or(|room| room.used + NAME > NODE)
    }

    fn limit(&self) -> usize {
        ALL.0 + self.nodes.len() * ALL.1
    }

    /// Bytes that an object counts in the namespace.
    fn counted(&self, key: &ObjectKey) -> usize {
        self.placed.get(key).map_or(0, Placed::size)
    }

    /// Size in bytes of the text of an object, as far as a node has room for it.
    fn text(&self, key: &ObjectKey) -> usize {
        self.placed.get(key).filter(|placed| placed.whole > 0).map_or(0, |placed| placed.text)
    }
}

impl Placed {
    fn size(&self) -> usize {
        match (self.named, self.whole) {
            (0, _) => 0,
            (_, 0) => NAME,
            _ => size(self.text),
        }
    }
}

/// Bytes that an object with a text of this size counts.
fn size(text: usize) -> usize {
    NAME + text.saturating_sub(SMALL)
}

#[cfg(test)]
mod tests;
