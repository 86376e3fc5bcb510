//! Rate limit for the endpoints of one Service: at most one write a second, so that pods that start together are one
//! change, and after a failure not before that either (K8s pkg/controller/endpointslice
//! `endpointSliceChangeMinSyncDelay`, `defaultSyncBackOff`). The first change is written at once. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::workloads::world::{Kind, Task};

const APART: Duration = Duration::from_secs(1);
/// What failed is tried again after this, then after twice as long each time.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Whether a task is one of those.
pub(crate) fn is_paced(task: &Task) -> bool {
    matches!(task.0, Kind::Service | Kind::Endpoints)
}

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Recent writes, and their times.
    written: BTreeMap<Task, Duration>,
}

impl Pace {
    pub(crate) fn writes(&mut self, task: &Task, now: Duration) {
        self.written.retain(|_, at| now.saturating_sub(*at) < APART);
        self.written.insert(task.clone(), now);
    }

    /// When a task may be looked at that a change concerns.
    pub(crate) fn due(&self, task: &Task, now: Duration) -> Duration {
        self.written.get(task).map_or(now, |at| now.max(at.saturating_add(APART)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::key::ObjectKey;

    #[test]
    fn what_was_written_waits_and_what_was_not_does_not() {
        let ms = Duration::from_millis;
        let task = |name: &str| (Kind::Service, ObjectKey::cluster(name));
        let mut pace = Pace::default();
        assert_eq!(pace.due(&task("a"), ms(500)), ms(500));
        pace.writes(&task("a"), ms(500));
        assert_eq!((pace.due(&task("a"), ms(700)), pace.due(&task("b"), ms(700))), (ms(1500), ms(700)));
        assert_eq!(pace.due(&task("a"), ms(1600)), ms(1600));
        pace.writes(&task("b"), ms(1600));
        assert_eq!(pace.written.len(), 1, "what is over is forgotten");
    }
}
