//! Nodes for whose kubelet API no port was free, for `cloud-bridge doctor`. No decision depends on them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static REFUSED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Remembers whether no port was free for this node.
pub(crate) fn note(node: &str, is_refused: bool) {
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = if is_refused { refused.insert(node.to_owned()) } else { refused.remove(node) };
}

/// Whether no port was free when this node connected last.
pub(crate) fn has(node: &str) -> bool {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_refused_until_it_has_a_port() {
        note("edge-of-this-test", true);
        assert!(has("edge-of-this-test") && !has("another-of-this-test"));
        note("edge-of-this-test", false);
        assert!(!has("edge-of-this-test"));
    }
}
