//! Gaps of the store, until a complete list has arrived. Ends nothing.

use std::collections::BTreeMap;

use sampan_monitor::protocol::ContainerState;

/// Pods and objects that are uncertain.
#[derive(Default)]
pub(in crate::node) struct Recovery {
    /// Rows of the store may be missing.
    incomplete: bool,
    /// Pods whose row or object cannot be read, by uid, and why.
    pub(super) kept: BTreeMap<String, String>,
    /// Containers in the monitor's hands that no pod here owns.
    pub(super) strangers: BTreeMap<String, ContainerState>,
}

impl Recovery {
    pub(in crate::node) fn new(incomplete: bool) -> Self {
        Self { incomplete, ..Self::default() }
    }

    pub(in crate::node) fn keep(&mut self, kept: BTreeMap<String, String>) {
        self.kept = kept;
    }

    /// Whether something may be wanted of which the store does not know.
    pub(in crate::node) fn is_under_way(&self) -> bool {
        self.incomplete || !self.kept.is_empty()
    }
}
