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
mod tests;
