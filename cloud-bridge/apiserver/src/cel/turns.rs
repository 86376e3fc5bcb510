//! Whose question is next: each definition in its turn, so that one with slow rules and many writes does not stand before
//! all others.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Questions by definition.
pub(super) struct Turns<T> {
    waiting: BTreeMap<String, VecDeque<T>>,
    order: VecDeque<String>,
    /// Since when, and for how long.
    resting: BTreeMap<String, (Instant, Duration)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), order: VecDeque::new(), resting: BTreeMap::new() }
    }
}

impl<T> Turns<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn add(&mut self, definition: String, question: T) {
        let waiting = self.waiting.entry(definition.clone()).or_default();
        if waiting.is_empty() {
            self.order.push_back(definition);
        }
        waiting.push_back(question);
    }

    pub(super) fn next(&mut self) -> Option<(String, T)> {
        let definition = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&definition)?;
        let question = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&definition);
        } else {
            self.order.push_back(definition.clone());
        }
        Some((definition, question))
    }

    /// Has nothing of this definition judged for a while.
    pub(super) fn rest(&mut self, definition: String, time: Duration) {
        self.resting.insert(definition, (Instant::now(), time));
    }

    /// For how long still.
    pub(super) fn resting(&mut self, definition: &str) -> Option<Duration> {
        self.resting.retain(|_, (since, time)| since.elapsed() < *time);
        self.resting.get(definition).map(|(since, time)| time.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_definition_has_its_turn() {
        let mut turns = Turns::default();
        for (definition, question) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            turns.add(definition.to_owned(), question);
        }
        let order: Vec<i32> = std::iter::from_fn(|| turns.next()).map(|(_, question)| question).collect();
        assert_eq!(order, [1, 4, 5, 2, 6, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn a_definition_rests_for_a_while() {
        let mut turns: Turns<()> = Turns::default();
        turns.rest("a".to_owned(), Duration::from_secs(60));
        turns.rest("b".to_owned(), Duration::ZERO);
        assert!(turns.resting("a").is_some_and(|left| left > Duration::from_secs(50)));
        assert_eq!((turns.resting("b"), turns.resting("c")), (None, None));
    }
}
