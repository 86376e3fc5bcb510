//! A cache of answers with a lifetime and a maximum number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of answers: an unauthenticated client can cause any number of questions.
const MOST: usize = 4_096;

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    answers: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self { answers: Mutex::default() }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    fn answers(&self) -> MutexGuard<'_, HashMap<K, (V, Instant)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, question: &K, now: Instant) -> Option<V> {
        self.answers().get(question).filter(|(_, until)| now < *until).map(|(answer, _)| answer.clone())
    }

    /// Stores an answer. If there are too many, those that expire soonest are removed: a refusal before a permission.
    pub(super) fn put(&self, question: K, answer: V, now: Instant, life: Duration) {
        let mut answers = self.answers();
        if answers.len() >= MOST {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= MOST {
            let soonest = answers.iter().min_by_key(|(_, (_, until))| *until).map(|(question, _)| question.clone());
            soonest.map(|question| answers.remove(&question));
        }
        answers.insert(question, (answer, now + life));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_and_too_many_push_out_what_ends_soonest() {
        let (cache, now, s) = (Cache::default(), Instant::now(), Duration::from_secs);
        cache.put(0, "a", now, s(300));
        assert_eq!(
            (cache.get(&0, now + s(299)), cache.get(&0, now + s(300)), cache.get(&1, now)),
            (Some("a"), None, None)
        );
        for question in 1..=MOST {
            cache.put(question, "b", now, s(30));
        }
        assert_eq!(cache.answers().len(), MOST);
        assert_eq!(cache.get(&0, now), Some("a"));
        cache.put(0, "c", now + s(31), s(300));
        assert_eq!(cache.answers().len(), 1, "what has ended makes room at once");
    }
}
