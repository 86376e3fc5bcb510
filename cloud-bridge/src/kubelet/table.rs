//! Which node has which kubelet port at this bridge, and which ports Node objects name. Pure.
//!
//! Bridges may share one kubelet address, so that the API server may reach any of them. Then all of them open the port that a
//! Node names. Two bridges may choose the same port at the same moment: the first node by name keeps it.

use std::collections::{BTreeSet, HashMap};

/// The ports.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Open ports, by node and by port.
    open: HashMap<String, u16>,
    holders: HashMap<u16, String>,
    /// Ports at this bridge's address that Node objects name, by node and by port.
    named: HashMap<String, u16>,
    claims: BTreeSet<(u16, String)>,
    /// Ports that could not be opened, by node.
    refused: HashMap<String, u16>,
}

/// A port that must be opened for a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) port: u16,
    /// The node that has it here, and must get another.
    pub(super) holder: Option<String>,
}

impl Table {
    /// The open port of a node.
    pub(super) fn open(&self, node: &str) -> Option<u16> {
        self.open.get(node).copied()
    }

    /// The port that the Node names, unless another node keeps it.
    pub(super) fn named(&self, node: &str) -> Option<u16> {
        self.named.get(node).copied().filter(|port| self.keeper(*port) == Some(node))
    }

    /// Whether this node may get this port: it is not open for another node, and no other Node names it.
    pub(super) fn is_free(&self, port: u16, node: &str) -> bool {
        !self.holders.contains_key(&port) && self.keeper(port).is_none_or(|keeper| keeper == node)
    }

    /// The first of the nodes whose objects name this port.
    fn keeper(&self, port: u16) -> Option<&str> {
        let first = self.claims.range((port, String::new())..).next()?;
        (first.0 == port).then_some(&*first.1)
    }

    /// The port of the node was opened.
    pub(super) fn opened(&mut self, node: &str, port: u16) {
        self.closed(node);
        self.open.insert(node.to_owned(), port);
        self.holders.insert(port, node.to_owned());
    }

    /// The port of the node was closed.
    pub(super) fn closed(&mut self, node: &str) {
        self.refused.remove(node);
        if let Some(port) = self.open.remove(node) {
            self.holders.remove(&port);
        }
    }

    /// The Node names this port at the address of this bridge, or none there.
    pub(super) fn seen(&mut self, node: &str, port: Option<u16>) {
        if self.named.get(node).copied() == port {
            return;
        }
        if let Some(old) = self.named.remove(node) {
            self.claims.remove(&(old, node.to_owned()));
        }
        if let Some(port) = port {
            self.named.insert(node.to_owned(), port);
            self.claims.insert((port, node.to_owned()));
        }
    }

    /// The port of the node could not be opened. Returns whether this is new: each heartbeat of the Node tries it again.
    pub(super) fn refused(&mut self, node: &str, port: u16) -> bool {
        self.refused.insert(node.to_owned(), port) != Some(port)
    }

    /// The port that must be opened for a node, by its Node object. `is_connected`: the node is connected to this bridge, which
    /// then writes the port that the node has here.
    pub(super) fn due(&self, node: &str, is_connected: bool) -> Option<Due> {
        let port = self.named(node)?;
        match self.open(node) {
            Some(open) if open == port || is_connected => None,
            _ => Some(Due { port, holder: self.holders.get(&port).cloned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(port: u16, holder: Option<&str>) -> Option<Due> {
        Some(Due { port, holder: holder.map(str::to_owned) })
    }

    #[test]
    fn port_that_a_node_object_names_is_opened() {
        let mut table = Table::default();
        assert_eq!(table.due("b", false), None, "its Node names an address of another bridge");
        table.seen("b", Some(10_360));
        assert_eq!(table.due("b", false), due(10_360, None));
        table.opened("b", 10_360);
        assert_eq!((table.due("b", false), table.open("b")), (None, Some(10_360)));
        table.seen("b", Some(10_361));
        assert_eq!(table.due("b", true), None, "this bridge writes the open one");
        assert_eq!(table.due("b", false), due(10_361, None), "another bridge has chosen another");
        table.opened("b", 10_361);
        assert!(table.is_free(10_360, "c") && !table.is_free(10_361, "c"));
        table.seen("b", None);
        table.closed("b");
        assert!(table.is_free(10_361, "c"));
    }

    #[test]
    fn port_that_cannot_be_opened_is_told_once() {
        let mut table = Table::default();
        assert!(table.refused("b", 10_360) && !table.refused("b", 10_360));
        assert!(table.refused("a", 10_360) && table.refused("b", 10_361), "another node, another port");
        table.opened("b", 10_361);
        assert!(table.refused("b", 10_361), "it was open in between");
        table.closed("b");
        assert!(table.refused("b", 10_361), "it was deleted in between");
    }

    #[test]
    fn first_node_by_name_keeps_a_port_that_two_objects_name() {
        let mut table = Table::default();
        table.opened("c", 10_360);
        table.seen("b", Some(10_360));
        assert_eq!(table.due("b", false), due(10_360, Some("c")), "only one Node names it");
        table.seen("c", Some(10_360));
        assert_eq!(table.due("b", false), due(10_360, Some("c")));
        assert_eq!((table.named("c"), table.due("c", true)), (None, None));
        table.closed("c");
        assert!(table.is_free(10_360, "b") && !table.is_free(10_360, "c"), "c chooses another port");
        table.opened("b", 10_360);
        table.seen("a", Some(10_360));
        assert_eq!((table.due("b", false), table.due("a", false)), (None, due(10_360, Some("b"))));
        table.seen("a", Some(10_362));
        assert_eq!((table.named("b"), table.named("a")), (Some(10_360), Some(10_362)));
    }
}
