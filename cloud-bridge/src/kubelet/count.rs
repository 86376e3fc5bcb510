//! Number of requests that are forwarded to other bridges: in total and for each node. Pure but for the count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use edge_protocol::stream::MAX_STREAMS;

/// Maximum number of forwarded requests. Each holds up to 128 KiB in buffers, and the other bridge accepts as many connections of
/// the cluster's components from one address.
pub(super) const ALL: usize = 256;
/// Maximum number for one node: as many streams as a node has.
pub(super) const EACH: usize = MAX_STREAMS;

/// The requests under way.
#[derive(Debug, Default)]
pub(super) struct Count(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    nodes: HashMap<String, usize>,
}

/// One forwarded request, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    count: Arc<Count>,
    node: String,
}

impl Count {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request for this node; `None` if there are too many.
    pub(super) fn take(self: &Arc<Self>, node: &str) -> Option<Place> {
        let mut taken = self.taken();
        let own = taken.nodes.get(node).copied().unwrap_or_default();
        if taken.all >= ALL || own >= EACH {
            return None;
        }
        taken.all += 1;
        taken.nodes.insert(node.to_owned(), own + 1);
        Some(Place { count: Arc::clone(self), node: node.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.count.taken();
        taken.all -= 1;
        if let Some(own) = taken.nodes.get_mut(&self.node) {
            *own -= 1;
            if *own == 0 {
                taken.nodes.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_requests_are_limited_by_node_and_in_all() {
        let count = Arc::<Count>::default();
        let all = |node: &str| -> Vec<Place> { std::iter::from_fn(|| count.take(node)).collect() };
        let mut taken = all("a");
        assert_eq!(taken.len(), EACH);
        assert!(count.take("b").is_some(), "others have room");
        taken.pop();
        assert_eq!(all("a").len(), 1, "an ended request makes room");
        let others: Vec<Vec<Place>> = (0..9).map(|n| all(&format!("node-{n}"))).collect();
        assert_eq!(taken.len() + others.iter().map(Vec::len).sum::<usize>(), ALL);
        drop((taken, others));
        let left = count.taken();
        assert!(left.nodes.is_empty() && left.all == 0, "{left:?}");
    }
}
