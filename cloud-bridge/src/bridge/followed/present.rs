//! The running watch of two kinds, shared by its users: it runs as long as one of them holds it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use crate::bridge::world::Round;

/// A watch that reads everything in the newest requested round, or later.
pub(in crate::bridge) trait Rounds {
    fn wanted(&self) -> &watch::Sender<Round>;
}

/// The running watch, if there is one.
pub(in crate::bridge) struct Present<W>(Mutex<Weak<W>>);

impl<W> Default for Present<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Rounds> Present<W> {
    /// The running watch, or a new one. Either reads everything in this round or later.
    pub(in crate::bridge) fn get_or(&self, round: Round, begin: impl FnOnce() -> W) -> Arc<W> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = present.upgrade() {
            found.wanted().send_if_modified(|wanted| std::mem::replace(wanted, round.max(*wanted)) < round);
            return found;
        }
        let made = Arc::new(begin());
        *present = Arc::downgrade(&made);
        made
    }

    /// The running watch.
    pub(in crate::bridge) fn get(&self) -> Option<Arc<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}
