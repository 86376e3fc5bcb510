//! The nodes of this bridge by name, and the fencing numbers of the nodes of all bridges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::rand::{SecureRandom, SystemRandom};

use super::node::Node;
use crate::pki::encoding::hex;

/// The known nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    all: Mutex<HashMap<String, Arc<Node>>>,
    /// Number of each node's newest connection to any bridge, from its Node object.
    sessions: Mutex<HashMap<Box<str>, u64>>,
}

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Node>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Box<str>, u64>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes of this bridge, in no order.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Node>> {
        self.lock().get(name).cloned()
    }

    /// The node of this name, and whether it is new.
    pub(super) fn enter(&self, name: &str) -> Result<(Arc<Node>, bool), ring::error::Unspecified> {
        if let Some(node) = self.get(name) {
            return Ok((node, false));
        }
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes)?;
        let node = Arc::new(Node::new(name, hex(&bytes)));
        Ok((Arc::clone(self.lock().entry(name.to_owned()).or_insert(node)), true))
    }

    pub(super) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Whether this connection of the node is its present one.
    pub(super) fn is_present(&self, name: &str, session: u64) -> bool {
        self.get(name).and_then(|node| node.link()).is_some_and(|link| link.session == session)
    }

    /// Whether the node was connected here, and to no other bridge since.
    pub(super) fn was_here_last(&self, name: &str) -> bool {
        self.get(name).is_some_and(|node| {
            let (_, last_seen, moved) = node.glance();
            last_seen.is_some() && !moved
        })
    }

    /// Stores the fencing number of a Node object.
    pub(super) fn session_seen(&self, name: &str, session: u64) {
        let mut sessions = self.sessions();
        match sessions.get_mut(name) {
            Some(known) => *known = session.max(*known),
            None => drop(sessions.insert(name.into(), session)),
        }
        drop(sessions);
        if let Some(node) = self.get(name) {
            node.superseded(session);
        }
    }

    /// Removes the fencing number of a Node object that was deleted.
    pub(super) fn session_gone(&self, name: &str) {
        self.sessions().remove(name);
    }

    /// The highest fencing number that any bridge is known to have given to this node.
    pub(super) fn elsewhere(&self, name: &str) -> u64 {
        self.sessions().get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use futures::channel::mpsc::unbounded;

    use super::*;
    use crate::bridge::node::Command;

    #[test]
    fn node_is_made_once() {
        let nodes = Nodes::default();
        let ((first, is_new), (second, is_newer)) = (nodes.enter("a").unwrap(), nodes.enter("a").unwrap());
        assert!(is_new && !is_newer && Arc::ptr_eq(&first, &second));
        assert_eq!(nodes.all().len(), 1);
        nodes.remove("a");
        assert!(nodes.get("a").is_none());
    }

    #[test]
    fn highest_fencing_number_counts_and_ends_an_older_connection() {
        let (nodes, (sender, mut commands), epoch) = (Nodes::default(), unbounded(), SystemTime::UNIX_EPOCH);
        let (node, _) = nodes.enter("a").unwrap();
        let session = node.attach(sender, epoch, nodes.elsewhere("a"), epoch).session;
        let present = |name: &str, session| nodes.is_present(name, session);
        assert!(present("a", session) && !present("a", session + 1) && !present("b", session));
        nodes.session_seen("a", session);
        assert!(commands.try_recv().is_err(), "its own");
        nodes.session_seen("a", session + 5);
        nodes.session_seen("a", session + 2);
        assert!(matches!(commands.try_recv(), Ok(Command::Superseded)));
        assert_eq!((nodes.elsewhere("a"), nodes.elsewhere("b")), (session + 5, 0));
        nodes.session_gone("a");
        assert_eq!(nodes.elsewhere("a"), 0);
    }

    #[test]
    fn node_is_here_last_until_another_bridge_has_connected_it() {
        let (nodes, epoch) = (Nodes::default(), SystemTime::UNIX_EPOCH);
        let (node, _) = nodes.enter("a").unwrap();
        assert!(!nodes.was_here_last("a") && !nodes.was_here_last("b"), "it was never connected");
        let session = node.attach(unbounded().0, epoch, 0, epoch).session;
        nodes.session_seen("a", session);
        node.detach(session, epoch);
        assert!(nodes.was_here_last("a"));
        nodes.session_seen("a", session + 1);
        assert!(!nodes.was_here_last("a"));
    }
}
