//! Limit of the memory for reports of all nodes that are not in the API yet: each node's are limited, but some hostile
//! nodes could still fill the process. A node has a guaranteed part. Beyond that, the bridge reads from it only while
//! the common part is not used up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Memory for reports of all nodes beyond their guaranteed parts, in bytes.
const COMMON: usize = 48 << 20;
/// Guaranteed memory for reports of one node, in bytes.
const OWN: usize = 1 << 20;

/// The common part.
#[derive(Debug, Default)]
pub(in crate::bridge) struct Pool {
    used: AtomicUsize,
    freed: Notify,
}

impl Pool {
    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= COMMON
    }

    /// Returns when the common part is no longer used up.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }
}

/// Share of one connection in it.
#[derive(Debug)]
pub(super) struct Stake {
    pool: Arc<Pool>,
    used: usize,
}

impl Stake {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        Self { pool: Arc::clone(pool), used: 0 }
    }

    /// Sets the size of this node's reports, in bytes.
    pub(super) fn set(&mut self, weight: usize) {
        let (before, now) = (self.used, weight.saturating_sub(OWN));
        self.used = now;
        if now >= before {
            self.pool.used.fetch_add(now - before, Ordering::Relaxed);
        } else {
            let full = self.pool.is_full();
            self.pool.used.fetch_sub(before - now, Ordering::Relaxed);
            if full && !self.pool.is_full() {
                self.pool.freed.notify_waiters();
            }
        }
    }

    /// Whether more may be read from this node now.
    pub(super) fn may_read(&self) -> bool {
        self.used == 0 || !self.pool.is_full()
    }

    /// Memory that its next message may take, in bytes.
    pub(super) fn room(&self) -> usize {
        if self.pool.is_full() { OWN } else { usize::MAX }
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nodes_share_what_goes_beyond_their_own() {
        let pool = Arc::new(Pool::default());
        let (mut hostile, mut honest) = (Stake::new(&pool), Stake::new(&pool));
        hostile.set(OWN + COMMON - 1);
        honest.set(OWN / 2);
        assert!(hostile.may_read() && honest.may_read() && honest.room() == usize::MAX);
        hostile.set(OWN + COMMON);
        assert!(!hostile.may_read(), "it has used up what is common");
        assert_eq!((honest.may_read(), honest.room()), (true, OWN));
        honest.set(OWN + 1);
        assert!(!honest.may_read());
        hostile.set(OWN + COMMON / 2);
        assert!(hostile.may_read() && honest.may_read());
    }

    #[tokio::test]
    async fn end_of_a_connection_frees_its_part() {
        let pool = Arc::new(Pool::default());
        let (mut first, mut second) = (Stake::new(&pool), Stake::new(&pool));
        first.set(OWN + COMMON);
        second.set(2 * OWN);
        assert!(!second.may_read());
        let waiting = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.freed().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
        assert!(second.may_read());
        drop(second);
        assert_eq!(pool.used.load(Ordering::Relaxed), 0);
    }
}
