//! The running watch of two kinds, shared by its users: it runs as long as one of them holds it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

/// A watch, which reads everything in the newest round that is wanted, or later.
pub(in crate::bridge) trait Rounds {
    fn wanted(&self) -> &watch::Sender<u64>;
}

/// The one under way, if there is one.
pub(in crate::bridge) struct Present<W>(Mutex<Weak<W>>);

impl<W> Default for Present<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Rounds> Present<W> {
    /// The present watch, or a new one, which is to read everything in this round or later.
    pub(in crate::bridge) fn get_or(&self, round: u64, begin: impl FnOnce() -> W) -> Arc<W> {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = present.upgrade() {
            found.wanted().send_if_modified(|wanted| std::mem::replace(wanted, round.max(*wanted)) < round);
            return found;
        }
        let made = Arc::new(begin());
        *present = Arc::downgrade(&made);
        made
    }

    /// The present one.
    pub(in crate::bridge) fn get(&self) -> Option<Arc<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}
