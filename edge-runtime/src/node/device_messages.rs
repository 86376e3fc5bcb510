//! Messages of devices between the store and the link. They are stored before anything else happens, and sent in order
//! for each rule, a few at a time, so that no rule waits for another. They leave the store when the bridge has handled
//! them.

use std::collections::{BTreeSet, VecDeque};

use sampan_devices_control::MessageRow;
use serde_json::Value;

use super::context::Context;
use crate::store::{Fact, StoreError};
use crate::sys::gather::Gather;
use crate::sys::vec_map::VecMap;

/// Messages and bytes of one rule that are sent and not acknowledged; one is, whatever its size.
const WINDOW: usize = 4;
const BYTES: usize = 64 << 10;
/// Batches that find no room in the store: of a helper, and of one before it.
const UNSTORED: usize = 2;
/// Between two events about messages that were dropped, in seconds.
const TELL: i64 = 600;

#[derive(Default)]
pub(super) struct Messages {
    /// Messages that the connected bridge has not acknowledged, by rule; more may follow. `None` without a bridge.
    rules: Option<VecMap<String, Flight>>,
    clock: Clock,
    dropped: usize,
    told_at: Option<i64>,
    /// Messages that did not fit on the disk, in order. A helper sends no more before they are stored.
    unstored: VecDeque<Given>,
    /// The link took no more: rules without messages under way may have some.
    refused: bool,
}

/// A batch of a helper's.
pub(super) struct Given {
    /// `None` if its helper is gone.
    pub(super) batch: Option<u64>,
    pub(super) rows: Vec<MessageRow>,
    pub(super) most_bytes: u64,
    pub(super) ttl_s: u64,
}

#[derive(Default)]
struct Flight {
    last: i64,
    rows: VecMap<i64, usize>,
}

/// Seconds for which the node has run, over its restarts.
#[derive(Default)]
struct Clock {
    base: Option<i64>,
}

impl Clock {
    fn now(&mut self, cx: &Context) -> Result<i64, StoreError> {
        let runs = i64::try_from(cx.mono().0 / 1_000).unwrap_or(i64::MAX);
        let base = match self.base {
            Some(base) => base,
            None => {
                let kept = cx.store.fact(Fact::MessageClock)?.and_then(|kept| kept.parse().ok());
                *self.base.insert(kept.unwrap_or(0).max(runs) - runs)
            }
        };
        Ok(base + runs)
    }
}

impl Messages {
    /// Into the store. The number of the batch that is in it then; none where the disk is full: it is tried [again](Self::again).
    pub(super) fn keep(&mut self, cx: &mut Context, given: Given) -> Result<Option<u64>, StoreError> {
        self.unstored.push_back(given);
        while self.unstored.len() > UNSTORED {
            self.dropped += self.unstored.pop_front().map_or(0, |oldest| oldest.rows.len());
        }
        self.again(cx)
    }

    /// Tries again what is not in the store yet, and what the link did not take.
    pub(super) fn again(&mut self, cx: &mut Context) -> Result<Option<u64>, StoreError> {
        if std::mem::take(&mut self.refused) {
            cx.store.rules_with_messages()?.iter().try_for_each(|rule| self.send(cx, rule))?;
        }
        let mut stored = None;
        while let Some(given) = self.unstored.pop_front() {
            if !self.store(cx, &given)? {
                log::warn!("{} messages of devices wait for room on the disk", given.rows.len());
                self.unstored.push_front(given);
                break;
            }
            stored = given.batch;
        }
        Ok(stored)
    }

    /// Another one has other numbers.
    pub(super) fn helper_went(&mut self) {
        self.unstored.iter_mut().for_each(|given| given.batch = None);
    }

    /// Stores all or none. Messages beyond the limit are dropped. Returns false on a full disk.
    fn store(&mut self, cx: &mut Context, given: &Given) -> Result<bool, StoreError> {
        let now = self.clock.now(cx)?;
        let Given { rows, most_bytes, ttl_s, .. } = given;
        let [most, ttl] = [most_bytes, ttl_s].map(|number| i64::try_from(*number).unwrap_or(i64::MAX));
        let kept = cx.store.write_durable_in_room(|writer| {
            let put = |row: &MessageRow| writer.put_message(&row.rule, row.class, now.saturating_add(ttl), &row.record);
            rows.iter().try_for_each(put)?;
            writer.set_fact(Fact::MessageClock, &now.to_string())?;
            writer.drop_messages(now, most)
        });
        match kept {
            Err(error) if error.is_full() => return Ok(false),
            kept => self.dropped += kept?,
        }
        if self.dropped > 0 && self.told_at.is_none_or(|at| now >= at + TELL) {
            self.told_at = Some(now);
            let dropped = std::mem::take(&mut self.dropped);
            let what =
                format!("{dropped} messages of devices were dropped: too many or too old while nobody took them");
            log::warn!("{what}");
            cx.node_event(true, "DeviceMessagesDropped", &what)?;
        }
        let rules: BTreeSet<&str> = rows.iter().map(|row| &*row.rule).into_set();
        rules.into_iter().try_for_each(|rule| self.send(cx, rule))?;
        Ok(true)
    }

    /// The bridge takes them.
    pub(super) fn connected(&mut self, cx: &mut Context) -> Result<(), StoreError> {
        let now = self.clock.now(cx)?;
        self.rules = Some(VecMap::new());
        let rules = cx.store.rules_with_messages()?;
        if rules.is_empty() {
            return Ok(());
        }
        self.dropped += cx.store.write(|writer| {
            writer.set_fact(Fact::MessageClock, &now.to_string())?;
            writer.drop_messages(now, i64::MAX)
        })?;
        rules.iter().try_for_each(|rule| self.send(cx, rule))
    }

    pub(super) fn disconnected(&mut self) {
        self.rules = None;
    }

    pub(super) fn acked(&mut self, cx: &mut Context, ids: &[u64]) -> Result<(), StoreError> {
        let ids = || ids.iter().filter_map(|id| i64::try_from(*id).ok());
        cx.store.write(|writer| ids().try_for_each(|id| writer.message_done(id)))?;
        for id in ids() {
            let of = |(rule, flight): (&String, &mut Flight)| flight.rows.remove(&id).map(|_| rule.clone());
            let rule = self.rules.iter_mut().flat_map(|rules| rules.iter_mut()).find_map(of);
            rule.map_or(Ok(()), |rule| self.send(cx, &rule))?;
        }
        Ok(())
    }

    /// The rule is gone.
    pub(super) fn gone(&mut self, cx: &mut Context, rule: &str) -> Result<(), StoreError> {
        cx.store.write(|writer| writer.forget_messages_of(rule))
    }

    /// Sends what there is room for.
    fn send(&mut self, cx: &mut Context, rule: &str) -> Result<(), StoreError> {
        let (Some(rules), Some(link)) = (&mut self.rules, cx.connection()) else { return Ok(()) };
        let flight = rules.get_or_default(rule.to_owned());
        let now = self.clock.now(cx)?;
        while flight.rows.len() < WINDOW && flight.rows.values().sum::<usize>() < BYTES {
            let Some(message) = cx.store.next_message(rule, flight.last)? else { break };
            let left_ms = u64::try_from((message.expires - now) * 1_000).unwrap_or(0);
            // The bridge handles a record that is not valid JSON; it must leave the queue.
            let value: Value = serde_json::from_str(&message.record).unwrap_or_default();
            if !link.message(u64::try_from(message.id).unwrap_or(0), left_ms, value) {
                // The send queue is full. No acknowledgement follows for a rule that has sent nothing.
                self.refused = true;
                break;
            }
            flight.rows.insert(message.id, message.record.len());
            flight.last = message.id;
        }
        if flight.rows.is_empty() {
            rules.remove(rule);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
