//! Limits the number of events, like client-go's correlator (K8s client-go tools/record/events_cache.go): cuts off a
//! flood about one object, merges events that differ only in their text, and counts repetitions in one stored event
//! while the link is down. While it is up, the bridge counts repetitions. Pure but for its memory.

use sampan_json::SetField;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde_json::{Value, json};

use crate::pod::clock::Mono;

/// Events about one object that may come at once.
const BURST: u32 = 25;
/// Then one more each.
const REFILL: Duration = Duration::from_secs(300);
/// This many texts of one reason about one object stay separate...
const SIMILAR: usize = 10;
/// ...within this time, which is also how long a repeated event is the same series.
const WINDOW: Duration = Duration::from_secs(600);
/// Objects and series remembered; beyond it the ones longest unused go.
const REMEMBERED: usize = 512;

/// Events seen recently.
#[derive(Default)]
pub(super) struct EventCorrelator {
    budgets: Recent<Budget>,
    groups: Recent<Group>,
    /// Rows of the outbox that a repetition may replace; only while the link is down.
    waiting: Recent<u64>,
    dropped: Vec<u64>,
}

/// Up to [`REMEMBERED`] values by the hash of their key, in one block: small long-lived blocks, allocated during the
/// start of fifty pods, would each keep a page of that start's memory.
struct Recent<T>(Vec<(u64, T)>);

struct Budget {
    left: u32,
    filled: Mono,
    used: Mono,
}

struct Group {
    /// Hashes of texts; most groups have one.
    first: u64,
    others: Vec<u64>,
    used: Mono,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Recent<T> {
    /// Returns the value of `key`, or adds one. Beyond the limit it drops the value with the least `used`.
    fn entry<U: Ord>(&mut self, key: u64, used: impl Fn(&T) -> U, new: impl FnOnce() -> T) -> &mut T {
        let at = self.0.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
            if self.0.len() >= REMEMBERED {
                let oldest = self.0.iter().enumerate().min_by_key(|(_, (_, one))| used(one)).map_or(0, |(at, _)| at);
                self.0.swap_remove(oldest);
            }
            self.0.push((key, new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn remove(&mut self, key: u64) -> Option<T> {
        let at = self.0.iter().position(|(of, _)| *of == key)?;
        Some(self.0.swap_remove(at).1)
    }
}

impl EventCorrelator {
    /// Returns the event to store, `None` if there were too many. `offline`: events stay on the node for now, so
    /// `earlier` (the stored event of a row) is looked up to be replaced by one with a higher count.
    pub(super) fn take(
        &mut self,
        mut event: Value,
        now: Mono,
        offline: bool,
        earlier: impl Fn(u64) -> Option<Value>,
    ) -> Option<Value> {
        if !self.within_budget(&event, now) {
            return None;
        }
        self.combine(&mut event, now);
        if !offline {
            self.waiting.0.clear();
            return Some(event);
        }
        if let Some(row) = self.waiting.remove(key(&event, true))
            && let Some(old) = earlier(row)
        {
            let count = old["count"].as_u64().unwrap_or(1) + 1;
            event.set("count", json!(count));
            event.set("firstTimestamp", old["firstTimestamp"].clone());
            self.dropped.push(row);
        }
        Some(event)
    }

    /// Rows that stored events have replaced: to be deleted in the commit that stores those.
    pub(super) fn dropped(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dropped)
    }

    /// An event was stored under this row while there was no link.
    pub(super) fn stored(&mut self, event: &Value, row: u64) {
        let key = key(event, true);
        // Rows count up.
        *self.waiting.entry(key, |row| *row, || row) = row;
    }

    fn within_budget(&mut self, event: &Value, now: Mono) -> bool {
        let involved = &event["involvedObject"];
        let object = hash(&[&involved["kind"], &involved["namespace"], &involved["name"], &involved["uid"]]);
        let full = || Budget { left: BURST, filled: now, used: now };
        let budget = self.budgets.entry(object, |budget| budget.used, full);
        budget.used = now;
        let refills = now.since(budget.filled).as_secs() / REFILL.as_secs();
        if refills > 0 {
            budget.left = budget.left.saturating_add(u32::try_from(refills).unwrap_or(BURST)).min(BURST);
            budget.filled = budget.filled.after(REFILL * u32::try_from(refills).unwrap_or(u32::MAX));
        }
        let has = budget.left > 0;
        budget.left = budget.left.saturating_sub(1);
        has
    }

    fn combine(&mut self, event: &mut Value, now: Mono) {
        let text = hash(&[&event["message"]]);
        let started = || Group { first: text, others: Vec::new(), used: now };
        let group = self.groups.entry(key(event, false), |group| group.used, started);
        if now.since(group.used) > WINDOW {
            *group = started();
        }
        group.used = now;
        if group.first == text || group.others.contains(&text) {
            return;
        }
        if group.others.len() < SIMILAR - 2 {
            return group.others.push(text);
        }
        let message = event["message"].as_str().unwrap_or_default();
        event.set("message", json!(format!("(combined from similar events): {message}")));
    }
}

/// Key of equal events; the text does not count for combined ones.
fn key(event: &Value, with_text: bool) -> u64 {
    let involved = &event["involvedObject"];
    let empty = Value::Null;
    let combined = event["message"].as_str().is_some_and(|text| text.starts_with("(combined from similar events)"));
    let text = if with_text && !combined { &event["message"] } else { &empty };
    let fields = ["kind", "namespace", "name", "uid", "fieldPath"].map(|field| &involved[field]);
    let mut all = fields.to_vec();
    all.extend([&event["type"], &event["reason"], text]);
    hash(&all)
}

fn hash(values: &[&Value]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in values {
        value.as_str().unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
