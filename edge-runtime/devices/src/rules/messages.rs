//! Messages for rules that the daemon has not stored yet: few, and not for long. The first one after a pause is sent at
//! once, then all within a second together: a commit is a write to a medium that wears out.

use std::collections::{BTreeSet, VecDeque};

use edge_protocol::message::{MAX_PAYLOAD, RuleMessage};
use edge_protocol::topic::{covers, is_filter};
use sampan_devices_control::{FromHelper, MessageRow, Store};
use sampan_sys::gather::Gather;
use sampan_sys::vec_map::VecMap;
use serde_json::Value;

use crate::twins::{Ids, Now};

/// Rules of one node. The bridge has its own bound.
const RULES: usize = 64;
/// Pause between two batches in milliseconds, unless `BATCH` bytes wait.
const PAUSE: u64 = 1_000;
const BATCH: usize = 16 << 10;
/// Messages and bytes that wait while the daemon is away, or slower than they come.
const MESSAGES: usize = 1_024;
const BYTES: usize = 256 << 10;

#[derive(Debug)]
struct Rule {
    filter: String,
    class: u8,
    /// Named by the daemon, in this round.
    said: bool,
}

/// A message that the daemon has, but has not stored yet.
#[derive(Debug)]
struct Batch {
    number: u64,
    rows: VecDeque<MessageRow>,
}

#[derive(Debug)]
pub struct Messages {
    rules: VecMap<String, Rule>,
    store: Store,
    ids: Ids,
    daemon: bool,
    waiting: VecDeque<MessageRow>,
    bytes: usize,
    under_way: Option<Batch>,
    batches: u64,
    /// When the next batch may go though it is small.
    next_at: u64,
    /// Messages for rules, and those of them that did not fit.
    pub taken: u64,
    pub dropped: u64,
    /// Messages that no rule wants, or that are too long.
    pub refused: u64,
}

impl Messages {
    #[must_use]
    pub fn new(store: Store, seed: u64) -> Self {
        Self {
            rules: VecMap::new(),
            store,
            ids: Ids::new(seed),
            daemon: false,
            waiting: VecDeque::new(),
            bytes: 0,
            under_way: None,
            batches: 0,
            next_at: 0,
            taken: 0,
            dropped: 0,
            refused: 0,
        }
    }

    /// A daemon has connected, and begins to send the rules. It is unknown what an earlier one has stored.
    pub fn daemon_came(&mut self) {
        self.daemon_went();
        self.daemon = true;
        self.rules.values_mut().for_each(|rule| rule.said = false);
    }

    pub fn daemon_went(&mut self) {
        self.daemon = false;
        if let Some(batch) = self.under_way.take() {
            for row in batch.rows.into_iter().rev() {
                self.bytes += row.record.len();
                self.waiting.push_front(row);
            }
            self.make_room();
        }
    }

    /// All rules have been said.
    pub fn told(&mut self) {
        self.rules.retain(|_, rule| rule.said);
    }

    /// A rule as it is now.
    pub fn rule(&mut self, uid: String, body: &Value) {
        let filter = body["topic"].as_str().filter(|filter| is_filter(filter));
        let full = self.rules.len() >= RULES && !self.rules.contains_key(&uid);
        let Some(filter) = filter.filter(|_| !full) else {
            log::warn!("rule {uid} has no topic, or is one too many: it gets no messages");
            return self.gone(&uid);
        };
        let class = body["priority"].as_u64().and_then(|class| u8::try_from(class).ok()).unwrap_or(0).min(9);
        self.rules.insert(uid, Rule { filter: filter.to_owned(), class, said: true });
    }

    pub fn gone(&mut self, uid: &str) {
        self.rules.remove(uid);
        self.waiting.retain(|row| row.rule != uid);
        self.bytes = self.waiting.iter().map(|row| row.record.len()).sum();
    }

    /// Topics to subscribe to: a broker may send a message once for each matching subscription.
    #[must_use]
    pub fn filters(&self) -> BTreeSet<String> {
        let all: BTreeSet<&str> = self.rules.values().map(|rule| &*rule.filter).into_set();
        let covered = |filter: &str| all.iter().any(|other| *other != filter && covers(other, filter));
        all.iter().filter(|filter| !covered(filter)).map(|filter| (*filter).to_owned()).into_set()
    }

    /// Receives a message of the broker. Ignores retained ones: they are old, and arrive again with each connection.
    pub fn message(&mut self, now: Now, topic: &str, payload: Option<&[u8]>, retained: bool) {
        if retained {
            return;
        }
        let rules = self.rules.iter().filter(|(_, rule)| covers(&rule.filter, topic));
        let rules: Vec<(String, u8)> = rules.map(|(uid, rule)| (uid.clone(), rule.class)).collect();
        let Some(payload) = payload.filter(|payload| payload.len() <= MAX_PAYLOAD && !rules.is_empty()) else {
            self.refused += 1;
            return;
        };
        for (rule, class) in rules {
            let message = RuleMessage {
                rule: rule.clone(),
                key: self.ids.next(),
                topic: topic.to_owned(),
                payload: payload.to_vec(),
                at_ms: now.wall,
            };
            let Ok(record) = serde_json::to_string(&message) else { continue };
            self.taken += 1;
            self.bytes += record.len();
            self.waiting.push_back(MessageRow { rule, class, record });
        }
        self.make_room();
    }

    /// The oldest of the lowest class go.
    fn make_room(&mut self) {
        while self.waiting.len() > MESSAGES || self.bytes > BYTES {
            let first = self.waiting.iter().enumerate().min_by_key(|(_, row)| row.class).map(|(at, _)| at);
            let Some(row) = first.and_then(|at| self.waiting.remove(at)) else { return };
            self.bytes -= row.record.len();
            self.dropped += 1;
        }
    }

    pub fn stored(&mut self, batch: u64) {
        self.under_way.take_if(|under_way| under_way.number == batch);
    }

    /// Time at which to call [`batch`](Self::batch) again without news.
    #[must_use]
    pub fn wake(&self) -> Option<u64> {
        (self.daemon && self.under_way.is_none() && !self.waiting.is_empty()).then_some(self.next_at)
    }

    /// The messages to store now. `end`: all of them, since the helper ends.
    pub fn batch(&mut self, now: Now, end: bool) -> Option<FromHelper> {
        let due = now.mono >= self.next_at || self.bytes >= BATCH;
        if !self.daemon || self.waiting.is_empty() || !(end || due && self.under_way.is_none()) {
            return None;
        }
        self.batches += 1;
        self.next_at = now.mono + PAUSE;
        let rows = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        self.under_way = Some(Batch { number: self.batches, rows: rows.clone() });
        Some(FromHelper::Messages {
            batch: self.batches,
            rows: rows.into(),
            most_bytes: self.store.messages,
            ttl_s: self.store.message_ttl_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn at(mono: u64) -> Now {
        Now { mono, wall: 7 }
    }

    /// One with a daemon and these rules: topic and class.
    fn rules(rules: &[(&str, u64)]) -> Messages {
        let mut messages = Messages::new(Store::default(), 1);
        messages.daemon_came();
        for (topic, class) in rules {
            messages.rule((*topic).to_owned(), &json!({"topic": topic, "priority": class}));
        }
        messages.told();
        messages
    }

    fn read(row: &MessageRow) -> RuleMessage {
        serde_json::from_str(&row.record).unwrap()
    }

    /// Number, and what is in it.
    fn batch(messages: &mut Messages, mono: u64) -> Option<(u64, Vec<MessageRow>)> {
        match messages.batch(at(mono), false)? {
            FromHelper::Messages { batch, rows, .. } => Some((batch, rows)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_goes_at_once_and_the_rest_once_a_second() {
        let mut messages = rules(&[("a/#", 3), ("a/b", 1), ("c", 0)]);
        assert_eq!(messages.filters(), BTreeSet::from(["a/#".to_owned(), "c".to_owned()]));
        messages.message(at(5), "a/b", Some(b"x"), false);
        let (first, rows) = batch(&mut messages, 5).unwrap();
        assert_eq!(rows.iter().map(|row| (&*row.rule, row.class)).collect::<Vec<_>>(), [("a/#", 3), ("a/b", 1)]);
        let (one, other) = (read(&rows[0]), read(&rows[1]));
        assert!(one.topic == "a/b" && one.payload == b"x" && one.at_ms == 7 && one.key != other.key);
        messages.message(at(6), "a/c", Some(b"1"), false);
        assert_eq!((batch(&mut messages, 2_000), messages.wake()), (None, None), "the first is not in the store");
        messages.stored(first + 1);
        messages.stored(first);
        assert_eq!((batch(&mut messages, 900), messages.wake()), (None, Some(1_005)));
        messages.message(at(901), "a/d", Some(b"2"), false);
        let (_, rows) = batch(&mut messages, 1_005).unwrap();
        assert_eq!(rows.iter().map(|row| read(row).topic).collect::<Vec<_>>(), ["a/c", "a/d"], "in their order");
    }

    #[test]
    fn message_without_a_rule_or_too_long_is_ignored() {
        let mut messages = rules(&[("a", 0), ("b/+/c+", 0)]);
        messages.message(at(1), "b", Some(b"x"), false);
        messages.message(at(1), "a", None, false);
        messages.message(at(1), "a", Some(&vec![0; MAX_PAYLOAD + 1]), false);
        messages.message(at(1), "a", Some(b"old"), true);
        assert_eq!((messages.refused, messages.taken, batch(&mut messages, 1)), (3, 0, None));
        messages.message(at(1), "a", Some(&vec![0; MAX_PAYLOAD]), false);
        assert_eq!(batch(&mut messages, 1).map(|(_, rows)| rows.len()), Some(1));
    }

    #[test]
    fn d06_unconfirmed_messages_are_sent_to_the_next_daemon() {
        let mut messages = rules(&[("a", 0)]);
        messages.message(at(1), "a", Some(b"1"), false);
        let (_, sent) = batch(&mut messages, 1).unwrap();
        messages.message(at(2), "a", Some(b"2"), false);
        messages.daemon_went();
        assert_eq!(batch(&mut messages, 9_000), None);
        messages.daemon_came();
        messages.rule("a".into(), &json!({"topic": "a"}));
        messages.told();
        let (number, again) = batch(&mut messages, 9_000).unwrap();
        assert_eq!(again[0], sent[0], "with the same key");
        assert_eq!(again.len(), 2);
        messages.stored(number);
        messages.message(at(9_001), "a", Some(b"3"), false);
        assert!(messages.batch(at(9_002), true).is_some(), "at the end nothing waits");
    }

    #[test]
    fn d13_removed_rule_gets_no_messages() {
        let mut messages = rules(&[("a", 0), ("b", 0)]);
        messages.message(at(1), "a", Some(b"1"), false);
        messages.gone("a");
        assert_eq!(batch(&mut messages, 1), None);
        messages.daemon_came();
        messages.told();
        assert!(messages.filters().is_empty());
        for number in 0..1_000 {
            messages.rule(number.to_string(), &json!({"topic": number.to_string()}));
        }
        assert_eq!(messages.filters().len(), RULES);
    }

    #[test]
    fn d06_without_room_the_oldest_of_the_lowest_class_goes() {
        let mut messages = rules(&[("low", 1), ("high", 9)]);
        messages.daemon_went();
        let send = |messages: &mut Messages, topic: &str, number: usize| {
            messages.message(at(1), topic, Some(number.to_string().as_bytes()), false);
        };
        (0..MESSAGES / 2).for_each(|number| send(&mut messages, "low", number));
        (0..MESSAGES).for_each(|number| send(&mut messages, "high", number));
        assert_eq!(messages.dropped, (MESSAGES / 2) as u64);
        assert!(messages.waiting.iter().all(|row| row.class == 9));
        send(&mut messages, "low", 1);
        assert!(messages.waiting.iter().all(|row| row.class == 9), "it goes itself");
        send(&mut messages, "high", 7);
        assert_eq!(read(&messages.waiting[0]).payload, b"1", "the oldest went");
    }

    proptest! {
        #[test]
        fn d06_memory_is_bounded(sent in proptest::collection::vec((0_usize..4, 0_usize..9_000), 1..400)) {
            let mut messages = rules(&[("0", 0), ("1", 1), ("2", 2), ("3", 9)]);
            messages.daemon_went();
            for (topic, size) in &sent {
                messages.message(at(1), &topic.to_string(), Some(&vec![b'x'; *size]), false);
                prop_assert!(messages.waiting.len() <= MESSAGES && messages.bytes <= BYTES);
            }
            prop_assert_eq!(messages.bytes, messages.waiting.iter().map(|row| row.record.len()).sum::<usize>());
            prop_assert_eq!(messages.taken, messages.dropped + messages.waiting.len() as u64);
        }
    }
}
