//! Limit of the memory of requests of pods to the API. An open request counts with what it always takes, and with the bytes
//! of its body and its answer as long as the bridge has them. Pure but for the count.

use std::sync::Arc;

use apimachinery::flow::Flow;
use apimachinery::shares::{Share, Shares};
use apimachinery::user::UserInfo;

use super::head::Refusal;

/// Memory for the requests of all pods, and for those of one namespace, in bytes. A quarter is kept for kube-system.
const REQUESTS: (usize, usize) = (256 << 20, 128 << 20);

/// An open request without bytes on their way, as a silent watch: its task, its head, and with an API server its
/// connection with the buffers of TLS and HTTP (estimated).
const OPEN: usize = 16 << 10;

/// Memory that open requests leave to the bytes of a namespace's answers.
const SPARE: usize = 16 << 20;

/// Memory for the bytes of all requests of one node.
const NODE: usize = 12 << 20;

/// Maximum bytes of an answer that wait here for the node.
pub(in crate::bridge) const ROOM: usize = 16 << 10;

/// Memory of all requests of pods.
#[derive(Debug)]
pub(in crate::bridge) struct RequestMemory {
    all: Arc<Shares>,
    nodes: Arc<Shares>,
}

/// The part of one request, which is given back when it is dropped.
#[derive(Debug)]
pub(in crate::bridge) struct RequestShare {
    all: Share,
    node: Share,
    /// Bytes beside those of every open request.
    held: usize,
}

impl Default for RequestMemory {
    fn default() -> Self {
        // The nodes together are limited by the requests.
        Self { all: Shares::new(REQUESTS.0, REQUESTS.1), nodes: Shares::new(usize::MAX, NODE) }
    }
}

impl RequestMemory {
    /// Takes the share of a request of a pod in this namespace and on this node.
    ///
    /// # Errors
    /// 429: the requests of this namespace, or of all, take the memory.
    pub(in crate::bridge) fn take(&self, namespace: &str, node: &str) -> Result<RequestShare, Refusal> {
        let busy = || Refusal::busy("too many requests of pods are open at this bridge, try again later");
        let flow = Flow::of_namespace(namespace);
        if !self.all.has(&flow, OPEN + SPARE) {
            return Err(busy());
        }
        let all = self.all.take(&flow, OPEN).ok_or_else(busy)?;
        let node = self.nodes.take(&Flow::of(&UserInfo::node(node)), 0).ok_or_else(busy)?;
        Ok(RequestShare { all, node, held: 0 })
    }
}

impl RequestShare {
    /// Counts this number of bytes from now on, instead of the number before. False if there is no memory for them: the
    /// number stays as it was.
    #[must_use]
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.held);
        if !self.node.grow(more) {
            return false;
        }
        if !self.all.grow(more) {
            self.node.shrink(more);
            return false;
        }
        let less = self.held.saturating_sub(bytes);
        self.node.shrink(less);
        self.all.shrink(less);
        self.held = bytes;
        true
    }

    /// The bridge has no bytes of this request any more.
    pub(super) fn release(&mut self) {
        self.node.shrink(self.held);
        self.all.shrink(self.held);
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(memory: &RequestMemory, namespace: &str, most: usize) -> Vec<RequestShare> {
        (0..most).map_while(|n| memory.take(namespace, &format!("n-{}", n / 3)).ok()).collect()
    }

    #[test]
    fn ten_thousand_silent_watches_fit() {
        let memory = RequestMemory::default();
        let (first, second) = (open(&memory, "a", 5_000), open(&memory, "b", 5_000));
        assert_eq!((first.len(), second.len()), (5_000, 5_000));
    }

    #[test]
    fn one_namespace_leaves_memory_to_others_and_to_its_answers() {
        let memory = RequestMemory::default();
        let mut taken = open(&memory, "a", usize::MAX);
        assert_eq!(taken.len(), (REQUESTS.1 - SPARE) / OPEN);
        assert_eq!(memory.take("a", "n").map(drop).unwrap_err().code, 429);
        assert!(memory.take("b", "n").is_ok());
        let answers = taken.iter_mut().map_while(|share| share.hold(ROOM).then_some(())).count();
        assert_eq!(answers, SPARE / ROOM);
        taken.iter_mut().for_each(RequestShare::release);
        assert!(taken[0].hold(ROOM), "what was given back");
        drop(taken);
        assert!(memory.take("a", "n").is_ok());
    }

    #[test]
    fn one_node_leaves_memory_to_others() {
        let memory = RequestMemory::default();
        let mut of_node: Vec<_> = (0..32).map(|_| memory.take("a", "n").unwrap()).collect();
        let body = 3 << 20;
        assert_eq!(of_node.iter_mut().filter_map(|share| share.hold(body).then_some(())).count(), NODE / body);
        assert!(memory.take("a", "m").unwrap().hold(body));
        of_node[0].release();
        assert!(of_node[31].hold(body) && !of_node[0].hold(1));
        assert!(of_node[31].hold(1) && of_node[0].hold(body - 1), "less is counted, too");
    }
}
