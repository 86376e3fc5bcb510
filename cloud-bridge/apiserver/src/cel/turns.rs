//! Whose question is next: each user of each definition in turn, so that slow rules with many writes do not stand before
//! all others, and heavy objects of one user do not shut a kind for everybody.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// While so many users of one definition rest, its rules are at fault, and nobody's objects are judged by them.
const USERS_MAX: usize = 3;

/// Who takes turns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) definition: String,
    pub(super) user: String,
}

impl Turn {
    /// The turn of a user. All service accounts of a namespace are one: who may make one may make many.
    pub(super) fn of(definition: &str, user: &str) -> Self {
        let namespace = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let user = match namespace {
            Some((namespace, _)) => format!("system:serviceaccounts:{namespace}"),
            None => user.to_owned(),
        };
        Self { definition: definition.to_owned(), user }
    }
}

/// Questions by turn.
pub(super) struct Turns<T> {
    waiting: BTreeMap<Turn, VecDeque<T>>,
    order: VecDeque<Turn>,
    /// Since when, and for how long.
    resting: BTreeMap<Turn, (Instant, Duration)>,
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

    pub(super) fn add(&mut self, turn: Turn, question: T) {
        let waiting = self.waiting.entry(turn.clone()).or_default();
        if waiting.is_empty() {
            self.order.push_back(turn);
        }
        waiting.push_back(question);
    }

    pub(super) fn next(&mut self) -> Option<(Turn, T)> {
        let turn = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&turn)?;
        let question = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&turn);
        } else {
            self.order.push_back(turn.clone());
        }
        Some((turn, question))
    }

    /// Drops the questions that nobody needs answered.
    pub(super) fn retain(&mut self, mut needed: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(&mut needed);
            !waiting.is_empty()
        });
        self.order.retain(|turn| self.waiting.contains_key(turn));
    }

    /// Has nothing of this turn judged for a while.
    pub(super) fn rest(&mut self, turn: Turn, time: Duration) {
        self.resting.insert(turn, (Instant::now(), time));
    }

    /// For how long still: also while that turn is nobody's fault, but too many others of its definition rest.
    pub(super) fn resting(&mut self, turn: &Turn) -> Option<Duration> {
        self.resting.retain(|_, (since, time)| since.elapsed() < *time);
        let left = |(since, time): &(Instant, Duration)| time.saturating_sub(since.elapsed());
        if let Some(own) = self.resting.get(turn) {
            return Some(left(own));
        }
        let of_definition = self.resting.iter().filter(|(other, _)| other.definition == turn.definition);
        let mut all: Vec<Duration> = of_definition.map(|(_, rest)| left(rest)).collect();
        all.sort_unstable();
        // Until there are fewer.
        all.len().checked_sub(USERS_MAX).and_then(|at| all.get(at).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(definition: &str, user: &str) -> Turn {
        Turn { definition: definition.to_owned(), user: user.to_owned() }
    }

    #[test]
    fn each_user_of_each_definition_has_its_turn() {
        let mut turns = Turns::default();
        for (definition, user, question) in
            [("a", "u", 1), ("a", "u", 2), ("a", "u", 3), ("b", "u", 4), ("c", "u", 5), ("b", "u", 6), ("a", "v", 7)]
        {
            turns.add(turn(definition, user), question);
        }
        let order: Vec<i32> = std::iter::from_fn(|| turns.next()).map(|(_, question)| question).collect();
        assert_eq!(order, [1, 4, 5, 7, 2, 6, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn what_nobody_needs_is_dropped() {
        let mut turns = Turns::default();
        for (definition, question) in [("a", 1), ("a", 2), ("b", 3), ("c", 4)] {
            turns.add(turn(definition, "u"), question);
        }
        turns.retain(|question| matches!(question, 2 | 4));
        turns.add(turn("b", "u"), 5);
        let order: Vec<i32> = std::iter::from_fn(|| turns.next()).map(|(_, question)| question).collect();
        assert_eq!(order, [2, 4, 5]);
        turns.add(turn("a", "u"), 6);
        turns.retain(|_| false);
        assert!(turns.is_empty());
    }

    #[test]
    fn service_accounts_of_a_namespace_share_a_turn() {
        let of = |user: &str| Turn::of("d", user).user;
        assert_eq!(of("system:serviceaccount:a:x"), "system:serviceaccounts:a");
        assert_eq!(of("system:serviceaccount:a:y"), of("system:serviceaccount:a:x"));
        assert_ne!(of("system:serviceaccount:b:x"), of("system:serviceaccount:a:x"));
        assert_eq!(of("ann"), "ann");
    }

    #[test]
    fn a_definition_rests_when_many_of_its_users_do() {
        let mut turns: Turns<()> = Turns::default();
        for (user, seconds) in [("u", 60), ("v", 600)] {
            turns.rest(turn("a", user), Duration::from_secs(seconds));
        }
        assert_eq!(turns.resting(&turn("a", "w")), None);
        turns.rest(turn("a", "x"), Duration::from_secs(6000));
        let left = turns.resting(&turn("a", "w"));
        assert!(left.is_some_and(|left| left.as_secs() <= 60), "until there are fewer: {left:?}");
        assert_eq!(turns.resting(&turn("b", "w")), None);
    }

    #[test]
    fn who_rests_does_so_alone_and_for_a_while() {
        let mut turns: Turns<()> = Turns::default();
        turns.rest(turn("a", "u"), Duration::from_secs(60));
        turns.rest(turn("b", "u"), Duration::ZERO);
        assert!(turns.resting(&turn("a", "u")).is_some_and(|left| left > Duration::from_secs(50)));
        assert_eq!(turns.resting(&turn("a", "v")), None, "another user");
        assert_eq!((turns.resting(&turn("b", "u")), turns.resting(&turn("c", "u"))), (None, None));
    }
}
