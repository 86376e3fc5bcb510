//! What the kubelet ports ask about nodes that may be connected to another bridge.

use super::Bridge;

impl Bridge {
    /// Address (`IP:PORT`) at which another bridge takes kubelet requests for this node, if it is not connected here and its Node
    /// names one.
    pub(crate) fn elsewhere(&self, node: &str) -> Option<String> {
        let named = self.shared.node_access.replica_at(node);
        self.shared.elsewhere(node, named, self.shared.settings.replica_place.as_deref())
    }

    /// Whether this node is connected to this bridge.
    pub(crate) fn is_connected(&self, node: &str) -> bool {
        self.shared.is_connected(node)
    }

    /// Writes the object of this node again, if the node is connected here: its kubelet port has changed.
    pub(crate) fn rewrite(&self, node: &str) {
        if let Some(node) = self.shared.nodes.get(node) {
            node.rewrite();
        }
    }
}
