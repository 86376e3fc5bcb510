//! Disk use of the pods for `/stats/summary`: measured by the helper, never on this thread, and cached for a while. A
//! request does not wait long for it, because most need only CPU and memory.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use smol::Timer;

use super::plan::Plan;
use crate::eviction::walk::{self, Answers};
use crate::sys::tasks::Tasks;

/// Answers are good for this long.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// A request waits this long for new ones, and looks for them this often.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// The last answers, and the walk that brings others. Requests share it.
#[derive(Clone, Default)]
pub(in crate::node::streams) struct Cache(Rc<RefCell<State>>);

#[derive(Default)]
struct State {
    kept: Option<(Instant, Answers)>,
    walk: Option<smol::Task<()>>,
}

impl Cache {
    /// Disk use by uid, older than [`GOOD_FOR`] if a walk takes long. A pod that has not been measured is missing.
    pub(super) async fn measure(&self, plan: &Plan, tasks: &Tasks) -> Answers {
        let questions: Vec<_> = plan.pods.iter().map(|pod| pod.question.clone()).collect();
        let paths = plan.paths.clone();
        self.fresh(tasks, PATIENCE, async move { walk::ask(&paths, &questions).await }).await
    }

    async fn fresh(&self, tasks: &Tasks, patience: Duration, ask: impl Future<Output = Answers> + 'static) -> Answers {
        if self.is_old() && !self.is_walking() {
            let state = Rc::clone(&self.0);
            let walk = tasks.spawn(async move {
                let answers = ask.await;
                state.borrow_mut().kept = Some((Instant::now(), answers));
            });
            self.0.borrow_mut().walk = Some(walk);
        }
        let since = Instant::now();
        while self.is_old() && since.elapsed() < patience {
            Timer::after(LOOK).await;
        }
        self.0.borrow().kept.as_ref().map(|(_, answers)| answers.clone()).unwrap_or_default()
    }

    fn is_old(&self) -> bool {
        self.0.borrow().kept.as_ref().is_none_or(|(at, _)| at.elapsed() >= GOOD_FOR)
    }

    fn is_walking(&self) -> bool {
        self.0.borrow().walk.as_ref().is_some_and(|walk| !walk.is_finished())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::eviction::limits::DiskUsage;

    #[test]
    fn requests_share_one_walk_and_do_not_wait_long() {
        let (cache, tasks, walks) = (Cache::default(), Tasks::default(), Rc::new(Cell::new(0)));
        let (gate, opened) = smol::channel::bounded::<()>(1);
        let answers = Answers::from([("u".to_owned(), DiskUsage::default())]);
        let ask = || {
            let (walks, opened, answers) = (Rc::clone(&walks), opened.clone(), answers.clone());
            async move {
                walks.set(walks.get() + 1);
                let _ = opened.recv().await;
                answers
            }
        };
        let (short, long) = (Duration::ZERO, Duration::from_secs(60));
        smol::block_on(tasks.run(async {
            assert_eq!(cache.fresh(&tasks, short, ask()).await, Answers::new(), "the walk goes on without it");
            let open = async {
                Timer::after(LOOK).await;
                gate.send(()).await.unwrap();
            };
            let requests = smol::future::zip(cache.fresh(&tasks, long, ask()), cache.fresh(&tasks, long, ask()));
            let (both, ()) = smol::future::zip(requests, open).await;
            assert_eq!(both, (answers.clone(), answers.clone()));
            assert_eq!(cache.fresh(&tasks, short, ask()).await, answers);
        }));
        assert_eq!(walks.get(), 1);
    }
}
