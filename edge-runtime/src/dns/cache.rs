//! Cache of answers of other servers. Serves stale answers when no server answers (RFC 8767). Clients share it: when it
//! is full, the client with the largest share loses its oldest answer, so that a flood of one leaves the answers of others.
//! Pure.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::wire::u16_at;
use crate::sys::vec_map::VecMap;

/// Maximum number of answers, and of bytes with their keys. An answer counts as at least its part of the bytes.
const MOST: usize = 2_000;
const LEAST_BYTES: usize = 256;
const MOST_BYTES: usize = MOST * LEAST_BYTES;
/// Bounds of a TTL, in seconds. The minimum saves queries; the maximum limits the age of an answer.
const LEAST_TTL: u32 = 5;
const MOST_TTL: u32 = 3_600;
/// Maximum TTL of a negative answer, in seconds.
const NEGATIVE_TTL: u32 = 30;
/// Maximum age of a stale answer, and its TTL in seconds (RFC 8767, 4 and 5).
const STALE: Duration = Duration::from_secs(24 * 3_600);
const STALE_TTL: u32 = 30;

const HEADER: usize = 12;
const OPT: u16 = 41;

#[derive(Debug, Default)]
pub struct Cache {
    entries: BTreeMap<Box<[u8]>, Entry>,
    /// Oldest first.
    order: VecDeque<Box<[u8]>>,
    /// Bytes of the answers of each client.
    shares: VecMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Entry {
    answer: Box<[u8]>,
    /// Offsets of its TTLs.
    ttls: Box<[u16]>,
    ttl: u32,
    since: Duration,
    /// The client that asked for it.
    owner: IpAddr,
}

/// Bytes that an answer counts in the share of its owner.
fn size(key: &[u8], answer: &[u8]) -> usize {
    (key.len() + answer.len()).max(LEAST_BYTES)
}

/// Key of a query: all but its id, with the name in lower case.
pub fn key(question: &[u8], name_ends: usize) -> Box<[u8]> {
    let mut key: Vec<u8> = question.get(2..).unwrap_or_default().to_vec();
    let name = HEADER - 2..name_ends.saturating_sub(2).min(key.len());
    key.get_mut(name).unwrap_or_default().make_ascii_lowercase();
    key.into()
}

impl Cache {
    /// Stores an answer to a question of `owner`. Ignores failures and truncated messages. `now`: time since any fixed
    /// moment.
    pub fn put(&mut self, key: Box<[u8]>, answer: &[u8], owner: IpAddr, now: Duration) {
        let flags = u16_at(answer, 2).unwrap_or_default();
        let (cut, code) = (flags & 0x0200 != 0, flags & 0x000f);
        let Some((ttls, least)) = times(answer).filter(|_| !cut && (code == 0 || code == 3)) else { return };
        let positive = code == 0 && u16_at(answer, 6).unwrap_or_default() > 0;
        let most = if positive { MOST_TTL } else { NEGATIVE_TTL };
        let ttl = least.unwrap_or(NEGATIVE_TTL).clamp(LEAST_TTL, most);
        self.remove(&key);
        *self.shares.get_or_default(owner) += size(&key, answer);
        self.order.push_back(key.clone());
        self.entries.insert(key, Entry { answer: answer.into(), ttls: ttls.into(), ttl, since: now, owner });
        while let Some(key) = self.surplus(now) {
            self.remove(&key);
        }
    }

    /// Key of the next answer to drop: the oldest if it is too old to be served, also for a client that has gone.
    /// Otherwise, if the cache is too full, the oldest of the client with the largest share.
    fn surplus(&self, now: Duration) -> Option<Box<[u8]>> {
        let oldest = self.order.front()?;
        if self.entries.get(oldest).is_some_and(|entry| now.saturating_sub(entry.since) >= STALE) {
            return Some(oldest.clone());
        }
        if self.shares.values().sum::<usize>() <= MOST_BYTES {
            return None;
        }
        let (largest, _) = self.shares.iter().max_by_key(|(_, share)| **share)?;
        self.order.iter().find(|key| self.entries.get(*key).is_some_and(|entry| entry.owner == *largest)).cloned()
    }

    /// Returns the stored answer with this id, this spelling of the question and the remaining TTL. `stale` permits an
    /// expired one.
    pub fn get(&self, key: &[u8], id: u16, question: &[u8], now: Duration, stale: bool) -> Option<Vec<u8>> {
        let entry = self.entries.get(key)?;
        let age = now.saturating_sub(entry.since);
        let left = u64::from(entry.ttl).checked_sub(age.as_secs()).filter(|left| *left > 0);
        let left = match left {
            Some(left) => u32::try_from(left).unwrap_or(entry.ttl),
            None if stale && age < STALE => STALE_TTL,
            None => return None,
        };
        let mut answer = entry.answer.to_vec();
        answer.get_mut(..2)?.copy_from_slice(&id.to_be_bytes());
        answer.get_mut(HEADER..HEADER + question.len())?.copy_from_slice(question);
        for at in &entry.ttls {
            answer.get_mut(usize::from(*at)..usize::from(*at) + 4)?.copy_from_slice(&left.to_be_bytes());
        }
        Some(answer)
    }

    fn remove(&mut self, key: &[u8]) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.order.retain(|other| **other != *key);
        if let Some(share) = self.shares.get_mut(&entry.owner) {
            *share = share.saturating_sub(size(key, &entry.answer));
            if *share == 0 {
                self.shares.remove(&entry.owner);
            }
        }
    }
}

/// Offsets of the TTLs of a message, and the smallest TTL. `None` for a message that ends too early.
fn times(message: &[u8]) -> Option<(Vec<u16>, Option<u32>)> {
    let mut at = HEADER;
    for _ in 0..u16_at(message, 4)? {
        at = after_name(message, at)? + 4;
    }
    let records: u32 = [6, 8, 10].into_iter().map(|at| u16_at(message, at).map(u32::from)).sum::<Option<u32>>()?;
    let (mut found, mut least) = (Vec::new(), None::<u32>);
    for _ in 0..records {
        let fixed = after_name(message, at)?;
        let end = fixed + 10 + usize::from(u16_at(message, fixed + 8)?);
        message.get(..end)?;
        if u16_at(message, fixed)? != OPT {
            let ttl = u32::from_be_bytes(message.get(fixed + 4..fixed + 8)?.try_into().ok()?);
            least = Some(least.map_or(ttl, |least| least.min(ttl)));
            found.push(u16::try_from(fixed + 4).ok()?);
        }
        at = end;
    }
    Some((found, least))
}

fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const QUESTION: &[u8] = b"\x03Web\x00\x00\x01\x00\x01";

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn message(ttl: u32, code: u8, records: u8) -> Vec<u8> {
        let mut out = vec![0, 9, 0x81, 0x80 | code, 0, 1, 0, records, 0, 0, 0, 0];
        out.extend(QUESTION);
        for _ in 0..records {
            out.extend(*b"\xc0\x0c\x00\x01\x00\x01");
            out.extend(ttl.to_be_bytes());
            out.extend([0, 4, 10, 0, 0, 1]);
        }
        out
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn key_of(number: usize) -> Box<[u8]> {
        number.to_string().into_bytes().into()
    }

    #[test]
    fn answer_is_served_until_its_ttl_ends_and_stale_for_a_day() {
        let mut cache = Cache::default();
        cache.put(key_of(1), &message(60, 0, 1), ONE, seconds(100));
        let lower = QUESTION.to_ascii_lowercase();
        let told = cache.get(&key_of(1), 7, &lower, seconds(120), false).unwrap();
        assert_eq!((&told[..2], &told[HEADER..HEADER + lower.len()]), (&[0, 7][..], &lower[..]));
        assert_eq!(told[told.len() - 10..told.len() - 6], 40_u32.to_be_bytes());
        assert_eq!(cache.get(&key_of(1), 7, &lower, seconds(160), false), None);
        let stale = cache.get(&key_of(1), 7, &lower, seconds(160), true).unwrap();
        assert_eq!(stale[stale.len() - 10..stale.len() - 6], STALE_TTL.to_be_bytes());
        assert_eq!(cache.get(&key_of(1), 7, &lower, seconds(100) + STALE, true), None);
    }

    #[test]
    fn failures_are_not_stored_and_negative_answers_expire_early() {
        let mut cache = Cache::default();
        let mut cut = message(60, 0, 1);
        cut[2] |= 2;
        let mut short = message(60, 0, 1);
        short.truncate(short.len() - 1);
        for answer in [message(60, 2, 0), cut, short] {
            cache.put(key_of(1), &answer, ONE, seconds(0));
            assert_eq!(cache.get(&key_of(1), 7, QUESTION, seconds(0), true), None);
        }
        cache.put(key_of(1), &message(0, 3, 0), ONE, seconds(0));
        assert!(cache.get(&key_of(1), 7, QUESTION, seconds(29), false).is_some());
        assert_eq!(cache.get(&key_of(1), 7, QUESTION, seconds(30), false), None);
    }

    #[test]
    fn cache_is_bounded_and_drops_the_oldest_answer() {
        let mut cache = Cache::default();
        (0..MOST + 10).for_each(|number| cache.put(key_of(number), &message(60, 0, 1), ONE, seconds(0)));
        assert_eq!((cache.entries.len(), cache.order.len()), (MOST, MOST));
        assert!(cache.get(&key_of(9), 7, QUESTION, seconds(0), false).is_none());
        assert!(cache.get(&key_of(10), 7, QUESTION, seconds(0), false).is_some());
        (0..100).for_each(|number| cache.put(key_of(number), &message(60, 0, 255), ONE, seconds(1)));
        (0..1000).for_each(|number| cache.put(key_of(number), &message(60, 0, 255), ONE, seconds(1)));
        let bytes: usize = cache.entries.iter().map(|(key, entry)| size(key, &entry.answer)).sum();
        assert!(bytes <= MOST_BYTES && cache.shares.get(&ONE) == Some(&bytes), "{bytes}");
    }

    #[test]
    fn flood_of_one_client_leaves_the_answers_of_others() {
        let mut cache = Cache::default();
        (0..20).for_each(|number| cache.put(key_of(number), &message(3_600, 0, 1), OTHER, seconds(0)));
        (20..3 * MOST).for_each(|number| cache.put(key_of(number), &message(3_600, 0, 1), ONE, seconds(1)));
        assert_eq!(cache.entries.len(), MOST);
        assert!((0..20).all(|number| cache.get(&key_of(number), 7, QUESTION, seconds(1), false).is_some()));
        // The answers of a client that has gone stay no longer than they are useful.
        cache.put(key_of(0), &message(60, 0, 1), ONE, STALE);
        assert_eq!((cache.entries.len(), cache.shares.get(&OTHER)), (MOST - 19, None));
    }

    #[test]
    fn key_ignores_the_case_of_the_name() {
        let packet =
            |id: u8, name: &[u8]| [&[0, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name, &b"\x00\x00\x01\x00\x01"[..]].concat();
        let key = |packet: Vec<u8>| key(&packet, HEADER + 5);
        assert_eq!(key(packet(1, b"\x03WEB")), key(packet(2, b"\x03web")));
        assert_ne!(key(packet(1, b"\x03WEB")), key(packet(1, b"\x03wec")));
    }
}
