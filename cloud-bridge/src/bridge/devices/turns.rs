//! Waits until a node's report may be checked or written. `budget` has the limits.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::budget::Budgets;

/// Rate limiters of a bridge.
pub(in crate::bridge) struct Turns {
    begun: Instant,
    budgets: Mutex<Budgets>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { begun: Instant::now(), budgets: Mutex::default() }
    }
}

impl Turns {
    /// Returns when a report of this node may be checked.
    pub(super) async fn look(&self, node: &str) {
        let now = self.begun.elapsed();
        let wait = self.with(|budgets| budgets.look(node, now));
        tokio::time::sleep(wait).await;
    }

    /// Returns when this node may write once.
    pub(super) async fn write(&self, node: &str) {
        let now = self.begun.elapsed();
        let wait = self.with(|budgets| budgets.write(node, now));
        tokio::time::sleep(wait).await;
        let now = self.begun.elapsed();
        let wait = self.with(|budgets| budgets.write_of_all(now));
        tokio::time::sleep(wait).await;
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Budgets) -> T) -> T {
        ask(&mut self.budgets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
