//! The silent nodes with a clock and a lock, as all tasks of the bridge share them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::silence::Silence;

/// Silent nodes, shared by all tasks of the bridge.
pub(in crate::bridge) struct Silent {
    pub(super) begun: Instant,
    silence: Mutex<Silence>,
}

impl Default for Silent {
    fn default() -> Self {
        Self { begun: Instant::now(), silence: Mutex::default() }
    }
}

impl Silent {
    pub(super) fn silence(&self) -> MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the state of a Node object.
    pub(in crate::bridge) fn see(&self, node: &str, silent: bool, noted: bool) {
        self.silence().see(node, silent, noted, self.begun.elapsed());
    }

    /// Removes a deleted node.
    pub(in crate::bridge) fn forget(&self, node: &str) {
        self.silence().forget(node);
    }
}
