//! Finds repetitions of events in a memory of recent ones, bounded in entries and bytes. Pure.

use std::collections::HashMap;

use ring::digest::{Context, SHA256};
use serde_json::Value;

/// Maximum number of events remembered for each connection. Beyond it the oldest entry is dropped, and its event is
/// created again when it repeats. An entry has a hash, a uid and two names of at most 253 bytes each.
const REMEMBERED: usize = 1024;

/// Identity of equal events. A hash, because texts of a node can be long.
pub(super) type Same = [u8; 32];

/// Recent events.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    known: HashMap<Same, Known>,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    /// Name of the object in the API.
    name: String,
    uid: String,
    count: u64,
    /// Name that the node gave the newest occurrence, so that a repeated report of it is not counted again.
    newest: String,
    used: u64,
}

/// What to do with an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Create,
    /// Increase the count of this object.
    Count {
        name: String,
        uid: String,
        count: u64,
    },
    /// It was written before.
    Nothing,
}

impl Correlator {
    /// `times`: number of occurrences; more than one if the node was offline.
    pub(super) fn decide(&mut self, same: Same, name: &str, times: u64) -> Decision {
        self.clock += 1;
        match self.known.get_mut(&same) {
            None => Decision::Create,
            Some(known) if known.newest == name => Decision::Nothing,
            Some(known) => {
                known.used = self.clock;
                let count = known.count.saturating_add(times).min(i32::MAX.unsigned_abs().into());
                Decision::Count { name: known.name.clone(), uid: known.uid.clone(), count }
            }
        }
    }

    pub(super) fn written(&mut self, same: Same, name: &str, uid: &str, newest: &str, count: u64) {
        if self.known.len() >= REMEMBERED && !self.known.contains_key(&same) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(same, _)| *same);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        let (name, uid, newest) = (name.to_owned(), uid.to_owned(), newest.to_owned());
        self.known.insert(same, Known { name, uid, count, newest, used: self.clock });
    }

    pub(super) fn forget(&mut self, same: Same) {
        self.known.remove(&same);
    }
}

/// Hash of the fields that client-go compares too.
pub(super) fn same(event: &Value) -> Same {
    let involved = &event["involvedObject"];
    let parts = [
        &event["source"]["component"],
        &event["source"]["host"],
        &involved["kind"],
        &involved["namespace"],
        &involved["name"],
        &involved["uid"],
        &involved["fieldPath"],
        &event["type"],
        &event["reason"],
        &event["message"],
    ];
    let mut hash = Context::new(&SHA256);
    for part in parts.map(|part| part.as_str().unwrap_or_default()) {
        // The length comes first, so that the end of one part cannot be read as the start of the next.
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut same = [0; 32];
    same.copy_from_slice(hash.finish().as_ref());
    same
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const S: Same = [7; 32];

    fn count(count: u64) -> Decision {
        Decision::Count { name: "p.1".into(), uid: "u".into(), count }
    }

    #[test]
    fn repeats_are_counted_and_repetitions_of_the_link_are_not() {
        let mut correlator = Correlator::default();
        assert_eq!(correlator.decide(S, "p.1", 1), Decision::Create);
        correlator.written(S, "p.1", "u", "p.1", 1);
        assert_eq!(correlator.decide(S, "p.1", 1), Decision::Nothing);
        assert_eq!(correlator.decide(S, "p.2", 1), count(2));
        correlator.written(S, "p.1", "u", "p.2", 2);
        assert_eq!(correlator.decide(S, "p.3", 4), count(6));
        assert_eq!(correlator.decide(S, "p.3", u64::MAX), count(2_147_483_647), "the API's is an int32");
        correlator.forget(S);
        assert_eq!(correlator.decide(S, "p.4", 1), Decision::Create);
    }

    #[test]
    fn g17_memory_is_bounded() {
        let mut correlator = Correlator::default();
        let message = "x".repeat(1 << 20);
        let key = |number: usize| same(&json!({"message": message, "reason": number.to_string()}));
        assert_eq!(size_of_val(&key(0)), 32, "whatever the message");
        let mut first = [0; 32];
        for number in 0..REMEMBERED + 10 {
            let mut same = [0; 32];
            same[..8].copy_from_slice(&number.to_be_bytes());
            first = if number == 0 { same } else { first };
            correlator.decide(same, "e", 1);
            correlator.written(same, "e", "u", "e", 1);
        }
        assert_eq!(correlator.known.len(), REMEMBERED);
        assert_eq!(correlator.decide(first, "f", 1), Decision::Create, "the oldest went");
    }

    #[test]
    fn events_differ_by_message_and_object_but_not_by_time() {
        let event = json!({"message": "m", "involvedObject": {"uid": "u"}, "lastTimestamp": "1"});
        let mut later = event.clone();
        later["lastTimestamp"] = "2".into();
        assert_eq!(same(&event), same(&later));
        later["message"] = "n".into();
        assert_ne!(same(&event), same(&later));
        let shifted = json!({"reason": "ab", "message": "c"});
        assert_ne!(same(&json!({"reason": "a", "message": "bc"})), same(&shifted));
    }
}
