//! Limits the number of events, like client-go's correlator (K8s client-go tools/record/events_cache.go): cuts off a
//! flood about one object, merges events that differ only in their text, and counts repetitions in one stored event
//! while the link is down. While it is up, the bridge counts repetitions. Pure but for its memory.

use edge_protocol::json::SetField;
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
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1000)
    }

    fn event(object: &str, message: &str) -> Value {
        json!({"involvedObject": {"kind": "Pod", "namespace": "n", "name": object, "uid": object},
            "type": "Normal", "reason": "R", "message": message, "firstTimestamp": message, "count": 1})
    }

    #[test]
    fn a_flood_about_one_object_is_cut_off() {
        let mut correlator = EventCorrelator::default();
        let mut take =
            |object: &str, second| correlator.take(event(object, "m"), at(second), false, |_| None).is_some();
        assert_eq!((0..100).filter(|_| take("a", 0)).count(), 25);
        assert!(take("b", 0), "another object has its own budget");
        assert!(!take("a", 299));
        assert!(take("a", 300) && !take("a", 301), "one more every five minutes");
    }

    #[test]
    fn many_texts_become_one_series() {
        let mut correlator = EventCorrelator::default();
        let mut take = |text: &str, second| {
            let taken = correlator.take(event("a", text), at(second), false, |_| None).unwrap();
            taken["message"].as_str().unwrap().to_owned()
        };
        for n in 0..9 {
            assert_eq!(take(&n.to_string(), 0), n.to_string());
        }
        assert_eq!(take("9", 1), "(combined from similar events): 9");
        assert_eq!(take("0", 1), "0", "a known text stays");
        assert_eq!(take("9", 602), "9", "and it begins again after ten minutes");
    }

    #[test]
    fn repeats_without_a_link_are_one_row_with_a_count() {
        let mut correlator = EventCorrelator::default();
        let first = correlator.take(event("a", "m"), at(0), true, |_| None).unwrap();
        correlator.stored(&first, 7);
        let mut second = event("a", "m");
        second["firstTimestamp"] = json!("later");
        let rows = |row| (row == 7).then(|| first.clone());
        let second = correlator.take(second, at(9), true, rows).unwrap();
        assert_eq!((&second["count"], &second["firstTimestamp"]), (&json!(2), &json!("m")));
        assert_eq!(correlator.dropped(), [7]);
        correlator.stored(&second, 8);
        let online = correlator.take(event("a", "m"), at(10), false, |_| None).unwrap();
        assert_eq!(online["count"], 1, "the bridge counts");
        assert!(correlator.dropped().is_empty());
        assert_eq!(correlator.take(event("a", "m"), at(11), true, |_| Some(second.clone())).unwrap()["count"], 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = EventCorrelator::default();
        for n in 0..2 * REMEMBERED as u64 {
            let taken = correlator.take(event(&n.to_string(), "m"), at(n), true, |_| None).unwrap();
            correlator.stored(&taken, n);
        }
        assert!(correlator.budgets.0.len() <= REMEMBERED && correlator.groups.0.len() <= REMEMBERED);
        assert!(correlator.waiting.0.len() <= REMEMBERED);
        let oldest = correlator.waiting.0.iter().map(|(_, row)| *row).min();
        assert_eq!(oldest, Some(REMEMBERED as u64), "the newest are kept");
    }

    #[test]
    fn budget_never_grows_beyond_a_burst() {
        let mut correlator = EventCorrelator::default();
        let mut taken = |second| (0..100).filter(|_| correlator.within_budget(&event("a", "m"), at(second))).count();
        assert_eq!(taken(10), 25);
        assert_eq!(taken(0), 0, "an older reading refills nothing");
        assert_eq!((taken(309), taken(310)), (0, 1));
        assert_eq!((taken(909), taken(910)), (1, 1), "the rest of the time counts, too");
        assert_eq!(taken(1_000_000), 25);
    }

    #[test]
    fn series_ends_after_its_window_and_not_at_it() {
        for (pause, expected) in [(600, "(combined from similar events): 10"), (601, "10")] {
            let mut correlator = EventCorrelator::default();
            let mut take = |text: &str, second| {
                let mut event = event("a", text);
                correlator.combine(&mut event, at(second));
                event["message"].as_str().unwrap().to_owned()
            };
            (0..10).for_each(|n| drop(take(&n.to_string(), 0)));
            assert_eq!(take("10", pause), expected, "{pause} s");
        }
    }

    #[test]
    fn event_without_fields_is_counted_like_any_other() {
        let mut correlator = EventCorrelator::default();
        let taken = (0..30).filter(|_| correlator.take(json!({}), at(0), true, |_| None).is_some());
        assert_eq!(taken.count(), 25);
    }
}
