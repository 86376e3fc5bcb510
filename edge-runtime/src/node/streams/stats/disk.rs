//! Disk use of the pods for `/stats/summary`: measured by the helper, never on this thread, and kept for a while.

use std::time::{Duration, Instant};

use super::plan::Plan;
use crate::eviction::walk::{self, Answers};

/// Answers are good for this long.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The last answers. Requests that come while the helper works wait for the same walk.
#[derive(Default)]
pub(super) struct Cache(smol::lock::Mutex<Option<(Instant, Answers)>>);

impl Cache {
    /// Disk use by uid; a pod that cannot be measured, or came since the last walk, is missing.
    pub(super) async fn measure(&self, plan: &Plan) -> Answers {
        self.fresh(|| async {
            let questions: Vec<_> = plan.pods.iter().map(|pod| pod.question.clone()).collect();
            walk::ask(&plan.paths, &questions).await
        })
        .await
    }

    async fn fresh<F: Future<Output = Answers>>(&self, ask: impl FnOnce() -> F) -> Answers {
        let mut kept = self.0.lock().await;
        match &*kept {
            Some((at, answers)) if at.elapsed() < GOOD_FOR => answers.clone(),
            _ => {
                let answers = ask().await;
                *kept = Some((Instant::now(), answers.clone()));
                answers
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::limits::DiskUsage;

    #[test]
    fn requests_share_one_walk() {
        let cache = Cache::default();
        let walks = std::cell::Cell::new(0);
        let answers = || Answers::from([("u".to_owned(), DiskUsage::default())]);
        let ask = || async {
            walks.set(walks.get() + 1);
            smol::future::yield_now().await;
            answers()
        };
        smol::block_on(async {
            let both = smol::future::zip(cache.fresh(ask), cache.fresh(ask)).await;
            assert_eq!(both, (answers(), answers()));
            assert_eq!(cache.fresh(ask).await, answers());
        });
        assert_eq!(walks.get(), 1);
    }
}
