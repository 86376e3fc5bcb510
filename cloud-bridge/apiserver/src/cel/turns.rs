//! Turns of questions: each user of each definition has its own. So slow rules with many writes do not delay all
//! others, and heavy objects of one user do not block a kind for the others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// From this number of paused users on, the rules of a definition are at fault and pause for every user.
const USERS_MAX: usize = 3;

/// A user and a definition, whose questions take turns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) definition: String,
    pub(super) user: String,
}

impl Turn {
    /// The queue of a user. All service accounts of a namespace share one, because a user who may create one may create
    /// many.
    pub(super) fn of(definition: &str, user: &str) -> Self {
        let namespace = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let user = match namespace {
            Some((namespace, _)) => format!("system:serviceaccounts:{namespace}"),
            None => user.to_owned(),
        };
        Self { definition: definition.to_owned(), user }
    }
}

/// Users and definitions whose questions pause.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// Since when, and for how long.
    resting: BTreeMap<Turn, (Instant, Duration)>,
}

impl Resting {
    /// Has nothing of this turn judged for a while.
    pub(super) fn rest(&mut self, turn: Turn, time: Duration) {
        self.resting.insert(turn, (Instant::now(), time));
    }

    /// Remaining time of the pause, also for a turn that is not at fault if too many users of its definition pause.
    pub(super) fn left(&mut self, turn: &Turn) -> Option<Duration> {
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
    fn service_accounts_of_a_namespace_share_a_turn() {
        let of = |user: &str| Turn::of("d", user).user;
        assert_eq!(of("system:serviceaccount:a:x"), "system:serviceaccounts:a");
        assert_eq!(of("system:serviceaccount:a:y"), of("system:serviceaccount:a:x"));
        assert_ne!(of("system:serviceaccount:b:x"), of("system:serviceaccount:a:x"));
        assert_eq!(of("ann"), "ann");
    }

    #[test]
    fn a_definition_rests_when_many_of_its_users_do() {
        let mut resting = Resting::default();
        for (user, seconds) in [("u", 60), ("v", 600)] {
            resting.rest(turn("a", user), Duration::from_secs(seconds));
        }
        assert_eq!(resting.left(&turn("a", "w")), None);
        resting.rest(turn("a", "x"), Duration::from_secs(6000));
        let left = resting.left(&turn("a", "w"));
        assert!(left.is_some_and(|left| left.as_secs() <= 60), "until there are fewer: {left:?}");
        assert_eq!(resting.left(&turn("b", "w")), None);
    }

    #[test]
    fn who_rests_does_so_alone_and_for_a_while() {
        let mut resting = Resting::default();
        resting.rest(turn("a", "u"), Duration::from_secs(60));
        resting.rest(turn("b", "u"), Duration::ZERO);
        assert!(resting.left(&turn("a", "u")).is_some_and(|left| left > Duration::from_secs(50)));
        assert_eq!(resting.left(&turn("a", "v")), None, "another user");
        assert_eq!((resting.left(&turn("b", "u")), resting.left(&turn("c", "u"))), (None, None));
    }
}
