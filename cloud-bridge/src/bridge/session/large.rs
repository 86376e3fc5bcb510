//! Permits for sending large objects. Does not know their content.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum time for which a node may keep others waiting for their large objects.
const LARGE_TURN: Duration = Duration::from_secs(20);

/// State of the permit of one connection.
pub(super) enum Large {
    No,
    Asked,
    Held { _turn: OwnedSemaphorePermit, since: Duration },
}

impl Large {
    pub(super) fn held(turn: OwnedSemaphorePermit, since: Duration) -> Self {
        Self::Held { _turn: turn, since }
    }

    /// Latest end of the permit.
    pub(super) fn deadline(&self) -> Duration {
        match self {
            Self::Held { since, .. } => *since + LARGE_TURN,
            _ => Duration::MAX,
        }
    }

    /// Whether the node has its large objects, or takes too long over them.
    pub(super) fn is_over(&self, sends: bool, now: Duration) -> bool {
        matches!(self, Self::Held { .. } if !sends || now >= self.deadline())
    }
}

/// Takes a permit, after all tasks that wait for the thread at that time. Otherwise one poll of each connection would
/// pass the permits through all ten thousand that a heartbeat has made ready, and the last one's heartbeat would wait
/// for the large objects of all before it.
pub(super) async fn turn(turns: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    // The semaphore is never closed: it lives as long as the bridge.
    let turn = turns.acquire_owned().await.ok()?;
    // Continues after the next poll of the sockets, behind all tasks that are ready then.
    tokio::task::yield_now().await;
    Some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn who_only_beats_waits_for_those_whose_turn_it_is_and_for_no_others() {
        const TURNS: usize = 4;
        let (turns, sent) = (Arc::new(Semaphore::new(TURNS)), Arc::new(AtomicUsize::new(0)));
        let send = |_| {
            let (turns, sent) = (Arc::clone(&turns), Arc::clone(&sent));
            tokio::spawn(async move {
                let _turn = turn(turns).await;
                sent.fetch_add(1, Ordering::Relaxed);
            })
        };
        let large: Vec<_> = (0..500).map(send).collect();
        let before = Arc::clone(&sent);
        let beat = tokio::spawn(async move { before.load(Ordering::Relaxed) });
        // The scheduler polls the sockets after each 61 tasks.
        let bound = TURNS * (500 / 61 + 1);
        let waited = beat.await.unwrap();
        assert!(waited <= bound, "{waited} of 500 went first");
        for task in large {
            task.await.unwrap();
        }
        assert_eq!(sent.load(Ordering::Relaxed), 500);
    }

    #[tokio::test]
    async fn a_slow_node_gives_its_turn_up() {
        let turns = Arc::new(Semaphore::new(1));
        let turn = turn(turns).await.unwrap();
        let s = Duration::from_secs;
        let large = Large::held(turn, s(5));
        assert_eq!(large.deadline(), s(25));
        assert!(!large.is_over(true, s(24)) && large.is_over(true, s(25)) && large.is_over(false, s(5)));
        assert!(!Large::No.is_over(false, s(100)) && !Large::Asked.is_over(false, s(100)));
    }
}
