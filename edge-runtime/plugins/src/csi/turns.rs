//! One order at a time: those for the same volume are carried out in the order in which they came.

use std::cell::RefCell;
use std::sync::Arc;

use sampan_sys::vec_map::VecMap;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::paths::Target;

#[derive(Debug, Default)]
pub(super) struct Turns(RefCell<VecMap<String, Arc<Mutex<()>>>>);

/// Held for as long as the order is carried out.
pub(super) type Turn = OwnedMutexGuard<()>;

impl Turns {
    /// Waits for a pod's volume. Taken before [`Turns::volume`], so that no two orders wait for each other.
    pub(super) async fn target(&self, target: &Target) -> Turn {
        self.take(["target", &target.pod, &target.volume].join("\n")).await
    }

    /// Waits for a volume of a driver, in whatever pod.
    pub(super) async fn volume(&self, driver: &str, handle: &str) -> Turn {
        self.take(["volume", driver, handle].join("\n")).await
    }

    async fn take(&self, key: String) -> Turn {
        let lock = {
            let mut locks = self.0.borrow_mut();
            // Forget locks that no order has or waits for.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.get_or_insert_with(key, Arc::default))
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(50);

    #[test]
    fn orders_of_one_volume_wait_for_each_other() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let turns = Turns::default();
            let first = turns.volume("d.x", "h").await;
            assert!(timeout(MOMENT, turns.volume("d.x", "h")).await.is_err(), "it is taken");
            let others = (turns.volume("d.x", "g").await, turns.volume("d.y", "h").await);
            let target = Target::new("d.x", "h", false).expect("names");
            let target = turns.target(&target).await;
            drop((first, others));
            drop(turns.volume("d.x", "h").await);
            drop(target);
            drop(turns.volume("d.z", "h").await);
            assert_eq!(turns.0.borrow().len(), 1, "what is free is forgotten");
        });
    }
}
