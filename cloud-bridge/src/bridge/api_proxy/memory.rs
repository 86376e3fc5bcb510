//! Limit of the memory of requests of pods to the API. A request counts from its start with all that its answer can hold at
//! the bridge; its body counts as it comes. Pure but for the count.

use std::sync::Arc;

use apimachinery::flow::Flow;
use apimachinery::shares::{Share, Shares};

use super::head::Refusal;
use crate::bridge::stream_memory::CREDIT;

/// Memory for the requests of all pods, and for those of one namespace, in bytes: 3,276 and 1,638 watches. A quarter is
/// kept for kube-system.
const REQUESTS: (usize, usize) = (256 << 20, 128 << 20);

/// Maximum bytes of an answer that wait for the node's credit.
pub(in crate::bridge) const ROOM: usize = 16 << 10;

/// Memory of all requests of pods.
#[derive(Debug)]
pub(in crate::bridge) struct RequestMemory(Arc<Shares>);

impl Default for RequestMemory {
    fn default() -> Self {
        Self(Shares::new(REQUESTS.0, REQUESTS.1))
    }
}

impl RequestMemory {
    /// Takes the share of a request of a pod in this namespace, which is returned when it is dropped.
    ///
    /// # Errors
    /// 429: the requests of this namespace, or of all, take the memory.
    pub(in crate::bridge) fn take(&self, namespace: &str, has_body: bool) -> Result<Share, Refusal> {
        // What has credit waits for a slow line, and more for credit; a body on its way has credit, too.
        let amount = CREDIT + ROOM + if has_body { CREDIT } else { 0 };
        let share = self.0.take(&Flow::of_namespace(namespace), amount);
        share.ok_or_else(|| Refusal::busy("too many requests of pods are open at this bridge, try again later"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_leaves_memory_to_others() {
        let memory = RequestMemory::default();
        let taken: Vec<Share> = std::iter::from_fn(|| memory.take("a", false).ok()).collect();
        assert_eq!(taken.len(), REQUESTS.1 / (CREDIT + ROOM));
        assert_eq!(memory.take("a", false).map(drop).unwrap_err().code, 429);
        assert!(memory.take("b", true).is_ok());
        drop(taken);
        assert!(memory.take("a", false).is_ok());
    }
}
