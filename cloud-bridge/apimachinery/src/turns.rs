//! Fair queue: waiting clients take turns, independent of the number of requests of each.

use std::collections::{BTreeMap, VecDeque};

/// Waiting entries by client.
#[derive(Debug)]
pub struct Turns<K, T> {
    waiting: BTreeMap<K, VecDeque<T>>,
    order: VecDeque<K>,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Ord, T> Turns<K, T> {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn add(&mut self, who: K, what: T) {
        let waiting = self.waiting.entry(who.clone()).or_default();
        if waiting.is_empty() {
            self.order.push_back(who);
        }
        waiting.push_back(what);
    }

    pub fn take(&mut self) -> Option<(K, T)> {
        let who = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&who)?;
        let what = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&who);
        } else {
            self.order.push_back(who.clone());
        }
        Some((who, what))
    }

    /// Drops waiting items that are no longer needed.
    pub fn retain(&mut self, mut needed: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(&mut needed);
            !waiting.is_empty()
        });
        self.order.retain(|who| self.waiting.contains_key(who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn() {
        let mut turns = Turns::default();
        for (who, what) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6), ("d", 7)] {
            turns.add(who, what);
        }
        let order: Vec<i32> = std::iter::from_fn(|| turns.take()).map(|(_, what)| what).collect();
        assert_eq!(order, [1, 4, 5, 7, 2, 6, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn what_nobody_needs_is_dropped() {
        let mut turns = Turns::default();
        for (who, what) in [("a", 1), ("a", 2), ("b", 3), ("c", 4)] {
            turns.add(who, what);
        }
        turns.retain(|what| matches!(what, 2 | 4));
        turns.add("b", 5);
        let order: Vec<i32> = std::iter::from_fn(|| turns.take()).map(|(_, what)| what).collect();
        assert_eq!(order, [2, 4, 5]);
        turns.add("a", 6);
        turns.retain(|_| false);
        assert!(turns.is_empty());
    }
}
