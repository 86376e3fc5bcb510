//! The known objects, indexed so that a change finds the nodes that it concerns, and a node its pods and attachments.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::object::{Attachment, Node, Pod, Volume};

/// Pairs of names, found by the first of each.
#[derive(Debug, Default)]
struct Pairs(BTreeSet<(String, String)>);

impl Pairs {
    fn put(&mut self, first: &str, second: &str, there: bool) {
        let pair = (first.to_owned(), second.to_owned());
        if there {
            self.0.insert(pair);
        } else {
            self.0.remove(&pair);
        }
    }

    fn of<'a>(&'a self, first: &'a str) -> impl Iterator<Item = &'a str> {
        let all = self.0.range((first.to_owned(), String::new())..);
        all.take_while(move |(one, _)| one == first).map(|(_, second)| second.as_str())
    }
}

/// What became of an attachment, for the pods that wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    Attached,
    Failed(String),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) volumes: BTreeMap<String, Volume>,
    /// The volume of a claim.
    by_claim: BTreeMap<String, String>,
    /// Drivers whose volumes need no attachment.
    unattached: BTreeSet<String>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) attachments: BTreeMap<String, Attachment>,
    attachments_on: Pairs,
    attachments_of: Pairs,
    pub(super) pods: BTreeMap<String, Pod>,
    pods_on: Pairs,
    users: Pairs,
    /// Nodes to decide about.
    dirty: BTreeSet<String>,
}

impl State {
    /// The next node to decide about.
    pub(super) fn next(&mut self) -> Option<String> {
        self.dirty.pop_first()
    }

    /// Whether there is a node to decide about.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(super) fn mark(&mut self, node: &str) {
        if !node.is_empty() && !self.dirty.contains(node) {
            self.dirty.insert(node.to_owned());
        }
    }

    /// Adds, changes or removes a pod.
    pub(super) fn pod(&mut self, key: &str, pod: Option<Pod>) {
        if self.pods.get(key) == pod.as_ref() {
            return;
        }
        if let Some(before) = self.pods.remove(key) {
            self.place(key, &before, false);
        }
        if let Some(pod) = pod {
            self.place(key, &pod, true);
            self.pods.insert(key.to_owned(), pod);
        }
    }

    fn place(&mut self, key: &str, pod: &Pod, there: bool) {
        self.pods_on.put(&pod.node, key, there);
        for claim in &pod.claims {
            self.users.put(claim, key, there);
        }
        self.mark(&pod.node);
    }

    /// Adds, changes or removes a volume.
    pub(super) fn volume(&mut self, name: &str, volume: Option<Volume>) {
        if self.volumes.get(name) == volume.as_ref() {
            return;
        }
        self.mark_around(name);
        if let Some(before) = self.volumes.remove(name)
            && self.by_claim.get(&before.claim).is_some_and(|of| of == name)
        {
            self.by_claim.remove(&before.claim);
        }
        if let Some(volume) = volume {
            if !volume.claim.is_empty() {
                self.by_claim.insert(volume.claim.clone(), name.to_owned());
            }
            self.volumes.insert(name.to_owned(), volume);
        }
        self.mark_around(name);
    }

    /// Marks the nodes where a volume is used or attached.
    fn mark_around(&mut self, volume: &str) {
        let claim = self.volumes.get(volume).map(|volume| volume.claim.as_str()).unwrap_or_default();
        let users = self.users.of(claim).filter_map(|pod| self.pods.get(pod)).map(|pod| pod.node.clone());
        let attached = self.attachments_of.of(volume).filter_map(|name| self.attachments.get(name));
        let nodes: BTreeSet<String> = users.chain(attached.map(|one| one.node.clone())).collect();
        nodes.iter().for_each(|node| self.mark(node));
    }

    /// Marks the nodes that may wait for the end of an attachment of this volume. For a volume that many nodes have none
    /// waits: to look at all of them for each would take a minute with thousands.
    pub(super) fn mark_waiting(&mut self, volume: &str) {
        if self.volumes.get(volume).is_some_and(|volume| !volume.shared) {
            self.mark_around(volume);
        }
    }

    /// Adds, changes or removes a driver. `attach`: whether its volumes are attached; so are those of unknown drivers.
    pub(super) fn driver(&mut self, name: &str, attach: bool) {
        let changed = if attach { self.unattached.remove(name) } else { self.unattached.insert(name.to_owned()) };
        if changed {
            self.dirty.extend(self.nodes.keys().cloned());
        }
    }

    /// Adds, changes or removes a node.
    pub(super) fn node(&mut self, name: &str, node: Option<Node>) {
        if self.nodes.get(name) == node.as_ref() {
            return;
        }
        match node {
            Some(node) => drop(self.nodes.insert(name.to_owned(), node)),
            None => drop(self.nodes.remove(name)),
        }
        self.mark(name);
    }

    /// Adds, changes or removes an attachment. Returns news for the pods that wait for it, if it was known before.
    pub(super) fn attachment(&mut self, name: &str, attachment: Option<Attachment>) -> Option<News> {
        if self.attachments.get(name) == attachment.as_ref() {
            return None;
        }
        let before = self.attachments.remove(name);
        if let Some(before) = &before {
            self.attachments_on.put(&before.node, name, false);
            self.attachments_of.put(&before.volume, name, false);
            self.mark(&before.node);
        }
        let Some(now) = attachment else {
            self.mark_waiting(&before?.volume);
            return None;
        };
        self.attachments_on.put(&now.node, name, true);
        self.attachments_of.put(&now.volume, name, true);
        self.mark(&now.node);
        let news = before.filter(|_| !now.deleting).and_then(|before| {
            if now.attached {
                (!before.attached).then_some(News::Attached)
            } else {
                (!now.error.is_empty() && now.error != before.error).then(|| News::Failed(now.error.clone()))
            }
        });
        self.attachments.insert(name.to_owned(), now);
        news
    }

    /// Drivers whose volumes need no attachment.
    pub(super) fn unattached(&self) -> impl Iterator<Item = &String> + Send {
        self.unattached.iter()
    }

    /// The volume of a claim, if it has to be attached: its name and itself.
    pub(super) fn attachable(&self, claim: &str) -> Option<(&str, &Volume)> {
        let (name, volume) = self.volumes.get_key_value(self.by_claim.get(claim)?)?;
        (!self.unattached.contains(&volume.driver)).then_some((name, volume))
    }

    /// The pods on a node, each with its key.
    pub(super) fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a Pod)> {
        self.pods_on.of(node).filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// The pods that use a claim, each with its key.
    pub(super) fn users<'a>(&'a self, claim: &'a str) -> impl Iterator<Item = (&'a str, &'a Pod)> {
        self.users.of(claim).filter_map(|key| Some((key, self.pods.get(key)?)))
    }

    /// The attachments to a node, each with its name.
    pub(super) fn attachments_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a Attachment)> {
        self.attachments_on.of(node).filter_map(|name| Some((name, self.attachments.get(name)?)))
    }

    /// The attachments of a volume.
    pub(super) fn attachments_of<'a>(&'a self, volume: &'a str) -> impl Iterator<Item = &'a Attachment> {
        self.attachments_of.of(volume).filter_map(|name| self.attachments.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str) -> Pod {
        Pod { uid: "u".into(), node: node.into(), claims: vec!["ns/data".into()] }
    }

    fn volume() -> Volume {
        Volume { driver: "d".into(), handle: "h".into(), claim: "ns/data".into(), shared: false }
    }

    fn marked(state: &mut State) -> Vec<String> {
        std::iter::from_fn(|| state.next()).collect()
    }

    #[test]
    fn change_concerns_the_nodes_around_it() {
        let mut state = State::default();
        state.pod("ns/a", Some(pod("n1")));
        assert_eq!(marked(&mut state), ["n1"]);
        state.pod("ns/a", Some(pod("n1")));
        assert!(!state.is_dirty(), "nothing has changed");
        state.volume("pv", Some(volume()));
        assert_eq!(marked(&mut state), ["n1"]);
        let on = |node: &str| Attachment { node: node.into(), volume: "pv".into(), ..Attachment::default() };
        state.attachment("csi-2", Some(on("n2")));
        assert_eq!(marked(&mut state), ["n2"]);
        state.attachment("csi-2", None);
        assert_eq!(marked(&mut state), ["n1", "n2"], "the pod may have waited for it");
        state.node("n1", Some(Node::default()));
        assert_eq!(marked(&mut state), ["n1"]);
        state.driver("d", false);
        assert_eq!(marked(&mut state), ["n1"]);
        assert_eq!(state.attachable("ns/data"), None);
        state.driver("d", true);
        assert_eq!(state.attachable("ns/data").map(|(name, _)| name), Some("pv"));
        state.pod("ns/a", None);
        state.volume("pv", None);
        assert!(state.users("ns/data").next().is_none() && state.pods_on("n1").next().is_none());
        assert!(state.by_claim.is_empty() && state.users.0.is_empty() && state.pods_on.0.is_empty());
    }

    #[test]
    fn end_of_a_shared_volumes_attachment_marks_only_its_node() {
        let mut state = State::default();
        state.volume("pv", Some(Volume { shared: true, ..volume() }));
        let on = |node: &str| Attachment { node: node.into(), volume: "pv".into(), ..Attachment::default() };
        for node in ["n1", "n2"] {
            state.pod(&format!("ns/on-{node}"), Some(pod(node)));
            state.attachment(&format!("csi-{node}"), Some(on(node)));
        }
        marked(&mut state);
        state.attachment("csi-n2", None);
        assert_eq!(marked(&mut state), ["n2"]);
        state.mark_waiting("pv");
        state.mark_waiting("unknown");
        assert!(!state.is_dirty());
    }

    #[test]
    fn pods_hear_of_a_change_of_their_attachment() {
        let mut state = State::default();
        let one = |attached: bool, error: &str| {
            Some(Attachment { node: "n".into(), attached, error: error.into(), ..Attachment::default() })
        };
        assert_eq!(state.attachment("csi-1", one(true, "")), None, "it was so before this program started");
        assert_eq!(state.attachment("csi-1", one(false, "no")), Some(News::Failed("no".into())));
        assert_eq!(state.attachment("csi-1", one(false, "no")), None);
        assert_eq!(state.attachment("csi-1", one(true, "")), Some(News::Attached));
    }
}
