//! Which events are written: repetitions are counted, events that differ only in their message are combined, and one
//! object has at most 25, then one in five minutes (K8s client-go tools/record/events_cache.go). Pure.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::Duration;

use edge_protocol::names::event_name;
use jiff::Timestamp;

use super::event::Event;

/// Number of different messages, each within the interval after the previous one, from which they are combined into one
/// event.
const SIMILAR_MAX: usize = 10;
const SIMILAR_INTERVAL: Duration = Duration::from_secs(600);
/// Number of events of one kind about an object that a component may write at once; each refill allows one more.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);
/// Maximum number of entries of each sort. Beyond it, the least recently used one is dropped.
const KNOWN_MAX: usize = 1024;

/// An event to write.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) event: Event,
    pub(super) name: String,
    /// 1 if it is new.
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Correlator {
    hasher: RandomState,
    similar: Recent<Similar>,
    known: Recent<Known>,
    credit: Recent<Credit>,
}

/// The messages of events that are otherwise the same.
#[derive(Debug, Default)]
struct Similar {
    messages: HashSet<u64>,
    last: Duration,
}

#[derive(Debug)]
struct Known {
    name: String,
    count: i32,
    first: Timestamp,
}

/// How much time has been saved up: each event costs one refill.
#[derive(Debug)]
struct Credit {
    saved: Duration,
    last: Duration,
}

impl Correlator {
    /// Handles an event of this time; `now` is from a monotonic clock. Returns `None` if there were too many.
    pub(super) fn correlate(&mut self, mut event: Event, time: Timestamp, now: Duration) -> Option<Observed> {
        let about = event.about.clone();
        let source =
            (event.component, event.kind, about.kind, about.namespace, about.name, about.uid, about.api_version);
        let group = self.hasher.hash_one((&source, event.reason));
        let message = self.hasher.hash_one(&event.message);
        let key = if self.is_one_of_many(group, message, now) {
            event.message.insert_str(0, "(combined from similar events): ");
            group
        } else {
            self.hasher.hash_one((group, message, &event.about.field_path))
        };
        let known = self.known.get(key, now, || Known { name: name(&event, time), count: 0, first: time });
        known.count = known.count.saturating_add(1);
        let observed = Observed { event, name: known.name.clone(), count: known.count, first: known.first, last: time };
        self.may_be_written(&source, now).then_some(observed)
    }

    fn is_one_of_many(&mut self, group: u64, message: u64, now: Duration) -> bool {
        let similar = self.similar.get(group, now, Similar::default);
        if now.saturating_sub(similar.last) > SIMILAR_INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        // The message that exceeds the limit is not stored, which bounds their number.
        let others = similar.messages.len() - usize::from(similar.messages.contains(&message));
        let many = others + 1 >= SIMILAR_MAX;
        if !many {
            similar.messages.insert(message);
        }
        many
    }

    fn may_be_written(&mut self, source: &impl Hash, now: Duration) -> bool {
        let full = REFILL * BURST;
        let credit = self.credit.get(self.hasher.hash_one(source), now, || Credit { saved: full, last: now });
        credit.saved = credit.saved.saturating_add(now.saturating_sub(credit.last)).min(full);
        credit.last = now;
        let left = credit.saved.checked_sub(REFILL);
        credit.saved = left.unwrap_or(credit.saved);
        left.is_some()
    }
}

fn name(event: &Event, time: Timestamp) -> String {
    event_name(event.about.name.as_deref().unwrap_or_default(), &format!("{:x}", time.as_nanosecond()))
}

/// Recently used entries, by hash.
#[derive(Debug)]
struct Recent<T> {
    entries: HashMap<u64, (Duration, T)>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { entries: HashMap::new() }
    }
}

impl<T> Recent<T> {
    fn get(&mut self, key: u64, now: Duration, new: impl FnOnce() -> T) -> &mut T {
        if self.entries.len() >= KNOWN_MAX && !self.entries.contains_key(&key) {
            self.forget_half();
        }
        let (used, value) = self.entries.entry(key).or_insert_with(|| (now, new()));
        *used = now;
        value
    }

    /// Half of it at once, so that it need not be in order.
    fn forget_half(&mut self) {
        let mut times: Vec<Duration> = self.entries.values().map(|(used, _)| *used).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        let mut room = KNOWN_MAX / 2;
        self.entries.retain(|_, (used, _)| {
            let stays = *used >= middle && room > 0;
            room -= usize::from(stays);
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn event(name: &str, reason: &'static str, message: &str) -> Event {
        let about = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
        Event { about, kind: "Normal", reason, message: message.to_owned(), component: "test", action: None }
    }

    fn at(second: u64) -> (Timestamp, Duration) {
        (Timestamp::from_second(second.cast_signed()).unwrap(), Duration::from_secs(second))
    }

    #[test]
    fn what_repeats_is_counted_up_from_its_first_time() {
        let mut correlator = Correlator::default();
        let mut tell = |second, message| {
            let (time, now) = at(second);
            correlator.correlate(event("a", "Failed", message), time, now).unwrap()
        };
        let first = tell(100, "no");
        let again = tell(160, "no");
        assert_eq!((first.count, again.count, again.first, again.last), (1, 2, at(100).0, at(160).0));
        assert_eq!((&first.name, &again.name), (&"a.174876e800".to_owned(), &first.name));
        assert_ne!(tell(161, "yes").name, first.name);
        assert_eq!(tell(162, "no").count, 3);
    }

    #[test]
    fn the_tenth_message_for_one_reason_becomes_one_with_those_after_it() {
        let mut correlator = Correlator::default();
        let mut tell = |second, message: usize| {
            let (time, now) = at(second);
            correlator.correlate(event("a", "Created", &format!("pod {message}")), time, now).unwrap()
        };
        let names: HashSet<String> = (0..9).map(|message| tell(1 + message as u64, message).name).collect();
        assert_eq!(names.len(), 9);
        let tenth = tell(12, 9);
        assert_eq!((tenth.event.message.as_str(), tenth.count), ("(combined from similar events): pod 9", 1));
        let next = tell(13, 10);
        assert_eq!((next.event.message.as_str(), next.count), ("(combined from similar events): pod 10", 2));
        assert_eq!(next.name, tenth.name);
        assert_eq!(tell(613, 11).count, 3, "ten minutes since the last one");
        assert_eq!(tell(1214, 12).event.message, "pod 12", "more than that");
    }

    #[test]
    fn of_one_object_there_are_25_then_one_in_five_minutes() {
        let mut correlator = Correlator::default();
        let mut tell = |second, name: &str| {
            let (time, now) = at(second);
            correlator.correlate(event(name, "Failed", "no"), time, now).map(|observed| observed.count)
        };
        let told = (0..40).filter_map(|_| tell(0, "a")).count();
        assert_eq!(told, 25);
        assert_eq!(tell(0, "b"), Some(1), "others are told of");
        assert_eq!((tell(299, "a"), tell(300, "a"), tell(301, "a")), (None, Some(42), None), "all are counted");
        let told = (0..40).filter_map(|_| tell(1_000_000, "a")).count();
        assert_eq!(told, 25, "never more");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes() {
        let mut correlator = Correlator::default();
        for number in 0..10_000 {
            let (time, now) = at(number);
            correlator.correlate(event(&number.to_string(), "Failed", "no"), time, now);
        }
        assert!(correlator.known.entries.len() <= KNOWN_MAX && correlator.credit.entries.len() <= KNOWN_MAX);
        let (time, now) = at(10_000);
        assert_eq!(correlator.correlate(event("9999", "Failed", "no"), time, now).unwrap().count, 2);
        assert_eq!(correlator.correlate(event("1", "Failed", "no"), time, now).unwrap().count, 1);
    }
}
