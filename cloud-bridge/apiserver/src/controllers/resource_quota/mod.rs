//! Recounts the usage of quotas after a deletion or a change of a quota (K8s pkg/controller/resourcequota), and
//! periodically: a pod past its deletion time frees its share without a write. Creations are charged by admission.

mod count;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::queue::Queue;
use super::runner::{Controller, Seen, Turn};
use crate::kinds::pod::amounts::amounts;
use crate::kinds::resource_quota::STORAGE;
use crate::kinds::resource_quota::usage::pod_counts;
use crate::kinds::{event, volume};
use crate::resource::status::ApiResult;
use crate::state::Inner;
use crate::storage::Stored;
use apimachinery::key::ObjectKey;
use count::Count;

/// Delay before a count after a deletion: many objects of a namespace often go at once.
const GATHER: Duration = Duration::from_millis(100);
/// Pause after a count, as a multiple of the thread time that it took: deleting objects one by one must not read all
/// others of the namespace each time. A changed limit is counted at once.
const REST: u32 = 4;
/// Delay before a count that failed starts over.
const ANEW: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Quota(ObjectKey),
    /// One that is being counted: its next objects.
    Counting(ObjectKey),
    /// One that was counted a while ago.
    Again(ObjectKey),
    /// All quotas of a namespace in which something was freed.
    Namespace(String),
}

#[derive(Default)]
pub(super) struct ResourceQuota {
    counts: BTreeMap<ObjectKey, Counting>,
    rests: Rests,
}

/// A quota that is being counted.
struct Counting {
    count: Count,
    /// Whether objects were deleted meanwhile: then another count is needed.
    again: bool,
    /// Thread time that the count has used.
    spent: Duration,
}

/// Until when quotas are not counted again.
#[derive(Default)]
struct Rests(BTreeMap<ObjectKey, Instant>);

impl Rests {
    fn begin(&mut self, key: &ObjectKey, spent: Duration, now: Instant) {
        self.0.retain(|_, until| *until > now);
        if let Some(until) = now.checked_add(spent * REST) {
            self.0.insert(key.clone(), until);
        }
    }

    /// How long a quota still rests.
    fn left(&self, key: &ObjectKey, now: Instant) -> Duration {
        self.0.get(key).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

impl Controller for ResourceQuota {
    type Key = Key;

    const NAME: &'static str = "counting what quotas limit";

    fn storages(_: &Inner) -> Vec<String> {
        vec![STORAGE.into()]
    }

    fn keys(_: &Inner, seen: &Seen<'_>, queue: &Queue<Key>) {
        if seen.storage == STORAGE && limits_anew(seen) {
            queue.add(Key::Quota(seen.key.clone()));
        }
        if !seen.key.namespace.is_empty() && frees(seen) {
            queue.add_after(Key::Namespace(seen.key.namespace.clone()), GATHER);
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_, Key>, key: &Key) -> ApiResult<()> {
        match key {
            Key::Quota(key) => {
                if let Some(counting) = self.counts.get_mut(key) {
                    counting.again = true;
                } else if let Some(count) = Count::begin(turn.inner, turn.store, key)? {
                    self.counts.insert(key.clone(), Counting { count, again: false, spent: Duration::ZERO });
                    self.go_on(turn, key)?;
                }
            }
            Key::Counting(key) => self.go_on(turn, key)?,
            Key::Again(key) => turn.queue.add(Key::Quota(key.clone())),
            Key::Namespace(namespace) => {
                for quota in turn.store.list(STORAGE, Some(namespace), None, None)? {
                    let rest = self.rests.left(&quota.key, Instant::now());
                    turn.queue.add_after(Key::Quota(quota.key.clone()), rest);
                }
            }
        }
        Ok(())
    }
}

impl ResourceQuota {
    /// Counts until the turn is over.
    fn go_on(&mut self, turn: &mut Turn<'_, Key>, key: &ObjectKey) -> ApiResult<()> {
        // Put back only if there is more to count: a failed count starts over, with the key that failed.
        let Some(Counting { mut count, again, spent }) = self.counts.remove(key) else { return Ok(()) };
        let began = Instant::now();
        let mut end = count.page(turn.store)?;
        while !end && !turn.over() {
            end = count.page(turn.store)?;
        }
        let spent = spent + began.elapsed();
        if !end {
            self.counts.insert(key.clone(), Counting { count, again, spent });
            turn.queue.add(Key::Counting(key.clone()));
            return Ok(());
        }
        self.rests.begin(key, spent, Instant::now());
        if !count.finish(turn.store, key)? {
            turn.queue.add_after(Key::Quota(key.clone()), ANEW);
        } else if again {
            turn.queue.add_after(Key::Quota(key.clone()), self.rests.left(key, Instant::now()));
        }
        turn.queue.add_after(Key::Again(key.clone()), turn.inner.config.quota_resync);
        Ok(())
    }
}

/// Whether a quota is new, has other limits than before, or lacks its status. A charge alone does not require a count.
fn limits_anew(seen: &Seen<'_>) -> bool {
    let Some(after) = seen.after.map(Stored::value) else { return false };
    let same = seen.before.is_some_and(|before| before.value()["spec"] == after["spec"]);
    let hard = |part: &str| amounts(&after[part], "hard");
    !same || hard("spec") != hard("status") || !after["status"]["used"].is_object()
}

/// Whether a change may leave more room than there was.
fn frees(seen: &Seen<'_>) -> bool {
    let (Some(before), after) = (seen.before, seen.after) else { return false };
    let Some(after) = after else { return seen.storage != event::STORAGE };
    if !["pods", "services", volume::CLAIMS].contains(&seen.storage) {
        return false;
    }
    let (before, after) = (before.value(), after.value());
    match seen.storage {
        "pods" => {
            let now = Timestamp::now();
            (pod_counts(before, now) && !pod_counts(after, now)) || before["spec"] != after["spec"]
        }
        "services" => before["spec"] != after["spec"],
        volume::CLAIMS => before["spec"] != after["spec"] || before["status"] != after["status"],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rest_for_a_multiple_of_their_time() {
        let (key, other) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut rests = Rests::default();
        rests.begin(&key, second, start);
        assert_eq!(rests.left(&key, start + second), second * (REST - 1));
        assert_eq!(
            (rests.left(&key, start + second * REST), rests.left(&other, start)),
            (Duration::ZERO, Duration::ZERO)
        );
        rests.begin(&other, second, start + second * 10);
        assert_eq!(rests.0.len(), 1, "what is over is forgotten");
    }
}
