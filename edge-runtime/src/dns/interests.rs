//! Namespaces whose Services the bridge sends to this node because a pod has looked up a name there. Pure. The store
//! keeps them as text, so that a node without a link still answers these names.

use std::collections::BTreeMap;

use edge_protocol::version::MAX_INTERESTS;

use crate::pod::dns::is_label;

const DAY: u64 = 24 * 3_600;
/// Seconds after which an unused namespace is removed.
const FORGOTTEN: u64 = 7 * DAY;
/// Minimum age of a stored time of use before it is stored again, in seconds.
const WRITTEN: u64 = DAY / 4;
/// Rate limit of new namespaces: how many at once, and seconds for each further one.
const BURST: u64 = 32;
const PAUSE: u64 = 30;

#[derive(Debug, Default, PartialEq)]
pub struct Interests {
    /// Time of the last query, in seconds since 1970 by this node's clock, which may be wrong.
    used: BTreeMap<String, u64>,
    /// State of the rate limit, in seconds since the start; beyond the present by the pauses that new namespaces owe.
    owed: u64,
}

/// Result of a query.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// Do nothing.
    Known,
    /// Store it.
    Used,
    /// Store it, and tell the bridge.
    New,
}

impl Interests {
    /// Reads the stored text. A malformed one yields no namespaces.
    pub fn read(text: &str) -> Self {
        let mut used: BTreeMap<String, u64> = serde_json::from_str(text).unwrap_or_default();
        used.retain(|name, _| is_label(name));
        while used.len() > MAX_INTERESTS {
            used.pop_last();
        }
        Self { used, owed: 0 }
    }

    pub fn text(&self) -> String {
        serde_json::to_string(&self.used).unwrap_or_default()
    }

    pub fn names(&self) -> Vec<String> {
        self.used.keys().cloned().collect()
    }

    pub fn has(&self, namespace: &str) -> bool {
        self.used.contains_key(namespace)
    }

    /// Records a query of a pod, at `wall` seconds since 1970 and `mono` seconds since the start. `empty`: whether a
    /// namespace has no Services. When the list is full, the empty one that is unused longest makes room.
    pub fn asked(&mut self, namespace: &str, wall: u64, mono: u64, empty: &dyn Fn(&str) -> bool) -> Asked {
        if let Some(used) = self.used.get_mut(namespace) {
            if wall.abs_diff(*used) < WRITTEN {
                return Asked::Known;
            }
            *used = wall;
            return Asked::Used;
        }
        let owed = self.owed.max(mono);
        if !is_label(namespace) || owed - mono > BURST * PAUSE {
            return Asked::Known;
        }
        if self.used.len() >= MAX_INTERESTS {
            let oldest = self.used.iter().filter(|(name, _)| empty(name)).min_by_key(|(_, used)| **used);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return Asked::Known };
            self.used.remove(&oldest);
        }
        self.owed = owed + PAUSE;
        self.used.insert(namespace.to_owned(), wall);
        Asked::New
    }

    /// Removes namespaces that are unused for long. Returns whether there were any.
    pub fn forget(&mut self, wall: u64) -> bool {
        let before = self.used.len();
        self.used.retain(|_, used| wall.saturating_sub(*used) < FORGOTTEN);
        self.used.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn namespace_is_kept_while_it_is_used() {
        let mut interests = Interests::default();
        let never = |_: &str| false;
        assert_eq!(interests.asked("shop", NOW, 0, &never), Asked::New);
        assert_eq!(interests.asked("shop", NOW + 60, 60, &never), Asked::Known);
        assert_eq!(interests.asked("shop", NOW + DAY, DAY, &never), Asked::Used);
        let mut again = Interests::read(&interests.text());
        assert_eq!(again.names(), ["shop"]);
        assert!(!again.forget(NOW + DAY + FORGOTTEN - 1));
        // A clock that is behind removes nothing.
        assert!(!again.forget(0));
        assert!(again.forget(NOW + DAY + FORGOTTEN) && again.names().is_empty());
    }

    #[test]
    fn made_up_namespaces_take_no_room_from_others_and_little_of_the_link() {
        let mut interests = Interests::default();
        let empty = |name: &str| name.starts_with("made-up");
        assert_eq!(interests.asked("shop", NOW, 0, &empty), Asked::New);
        let new = |interests: &mut Interests, mono: u64| {
            let all = (0..1000).map(|n| interests.asked(&format!("made-up-{mono}-{n}"), NOW + mono, mono, &empty));
            all.filter(|asked| *asked == Asked::New).count()
        };
        assert_eq!(new(&mut interests, 0), usize::try_from(BURST).unwrap());
        assert_eq!(new(&mut interests, PAUSE), 1);
        assert_eq!(new(&mut interests, 10_000), usize::try_from(BURST).unwrap() + 1);
        assert!(interests.names().len() <= MAX_INTERESTS);
        assert_eq!(interests.asked("crm", NOW, 20_000, &empty), Asked::New);
        assert!(interests.has("shop") && interests.has("crm"));
        // A list full of used namespaces removes none for a new one.
        let all: BTreeMap<String, u64> = (0..MAX_INTERESTS).map(|n| (format!("n{n}"), NOW)).collect();
        let mut full = Interests { used: all, owed: 0 };
        assert_eq!(full.asked("late", NOW, 0, &empty), Asked::Known);
    }

    #[test]
    fn malformed_text_yields_no_namespaces() {
        for text in ["", "[]", "{\"a\": \"b\"}", "{\"../x\": 1, \"A\": 2}"] {
            assert_eq!(Interests::read(text), Interests::default(), "{text}");
        }
        let many: BTreeMap<String, u64> = (0..1000).map(|n| (format!("n{n}"), NOW)).collect();
        assert_eq!(Interests::read(&serde_json::to_string(&many).unwrap()).names().len(), MAX_INTERESTS);
    }
}
