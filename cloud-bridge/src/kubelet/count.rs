//! Number of requests that are forwarded to other bridges: in total, for each node and for each namespace. Pure but for the count.

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
    namespaces: HashMap<String, usize>,
}

/// One forwarded request, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    count: Arc<Count>,
    node: String,
    namespace: Option<String>,
}

impl Count {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request for this node; `None` if there are too many. A request about a pod of a namespace finds no room if the
    /// namespace has as many as are free: streams may stay for days, and those of a few namespaces must not exclude others.
    pub(super) fn take(self: &Arc<Self>, node: &str, namespace: Option<&str>) -> Option<Place> {
        let mut taken = self.taken();
        let number = |counts: &HashMap<String, usize>, name: &str| counts.get(name).copied().unwrap_or_default();
        let is_greedy = namespace.is_some_and(|name| number(&taken.namespaces, name) >= ALL.saturating_sub(taken.all));
        if is_greedy || taken.all >= ALL || number(&taken.nodes, node) >= EACH {
            return None;
        }
        taken.all += 1;
        *taken.nodes.entry(node.to_owned()).or_default() += 1;
        if let Some(name) = namespace {
            *taken.namespaces.entry(name.to_owned()).or_default() += 1;
        }
        Some(Place { count: Arc::clone(self), node: node.to_owned(), namespace: namespace.map(str::to_owned) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.count.taken();
        taken.all -= 1;
        less(&mut taken.nodes, &self.node);
        if let Some(name) = &self.namespace {
            less(&mut taken.namespaces, name);
        }
    }
}

/// Takes one away, and the name with the last.
fn less(counts: &mut HashMap<String, usize>, name: &str) {
    if let Some(own) = counts.get_mut(name) {
        *own -= 1;
        if *own == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_requests_are_limited_by_node_and_in_all() {
        let count = Arc::<Count>::default();
        let all = |node: &str| -> Vec<Place> { std::iter::from_fn(|| count.take(node, None)).collect() };
        let mut taken = all("a");
        assert_eq!(taken.len(), EACH);
        assert!(count.take("b", None).is_some(), "others have room");
        taken.pop();
        assert_eq!(all("a").len(), 1, "an ended request makes room");
        let others: Vec<Vec<Place>> = (0..9).map(|n| all(&format!("node-{n}"))).collect();
        assert_eq!(taken.len() + others.iter().map(Vec::len).sum::<usize>(), ALL);
        drop((taken, others));
        let left = count.taken();
        assert!(left.nodes.is_empty() && left.all == 0, "{left:?}");
    }

    #[test]
    fn namespace_with_many_streams_leaves_room_for_others() {
        let count = Arc::<Count>::default();
        let all = |name: &str| -> Vec<Place> {
            (0..).map_while(|n: usize| count.take(&format!("node-{name}-{}", n / EACH), Some(name))).collect()
        };
        let (eve, bob) = (all("eve"), all("bob"));
        assert_eq!((eve.len(), bob.len()), (ALL / 2, ALL / 4));
        assert!(count.take("a", Some("carol")).is_some() && count.take("a", None).is_some());
        drop(eve);
        assert!(count.take("a", Some("bob")).is_some(), "room that is free again is anyone's");
        drop(bob);
        assert!(count.taken().namespaces.is_empty());
    }
}
