//! Search in the pods of all nodes: those that match a filter, the worst first, in answers of bounded size. Pure.

use std::collections::BTreeMap;

use serde_json::json;

use super::Board;
use super::pod::{Pod, State};
use super::pods::Pods;

/// Pods of one answer: about 50 KB, at most 600 KB with the longest names.
const MOST: usize = 500;
/// Pods that are compared with one word before others get the thread, in about a millisecond.
const SLICE: usize = 4096;
/// Bytes and words of a filter.
const FILTER: (usize, usize) = (1024, 16);

/// A search, which goes on in slices.
#[derive(Debug, Default)]
pub(in crate::page) struct Search {
    /// A pod is found if all match.
    words: Vec<Word>,
    /// State and `NAMESPACE/NAME` of the last pod of the answer before this one.
    after: Option<(State, Box<str>)>,
    /// The last pod that was looked at.
    at: Option<Box<str>>,
    /// The first that match behind `after`, as JSON. One more than an answer has.
    found: BTreeMap<(State, Box<str>), String>,
    /// How many match.
    matched: usize,
    /// How many there are of each state, whatever the filter is.
    counts: [usize; State::ALL.len()],
}

/// One word of a filter.
#[derive(Debug)]
enum Word {
    State(State),
    Namespace(String),
    Node(String),
    /// A part of its namespace and name, its node, phase or reason, in lower case.
    Part(String),
}

impl Board {
    /// Looks at the next pods of the nodes that are shown. Returns whether there are more.
    pub(in crate::page) fn search(&self, search: &mut Search) -> bool {
        search.look(&self.pods, |node| self.has(node))
    }
}

impl Search {
    /// `after` is `next` of the answer before, or empty. `None` if it is neither, or the filter is too long.
    pub(in crate::page) fn new(filter: &str, after: &str) -> Option<Self> {
        let words: Vec<Word> = filter.split_whitespace().take(FILTER.1 + 1).map(Word::of).collect();
        if filter.len() > FILTER.0 || words.len() > FILTER.1 {
            return None;
        }
        let after = match after.split_once('/') {
            None if after.is_empty() => None,
            None => return None,
            Some((state, key)) => Some((State::of(state)?, key.into())),
        };
        Some(Self { words, after, ..Self::default() })
    }

    fn look(&mut self, pods: &Pods, is_shown: impl Fn(&str) -> bool) -> bool {
        let at = self.at.take();
        let (mut count, mut last) = (0, None);
        let slice = SLICE / self.words.len().max(1);
        for (key, pod) in pods.behind(at.as_deref()).take(slice) {
            if is_shown(&pod.node) {
                self.take(key, pod);
            }
            (count, last) = (count + 1, Some(key));
        }
        if count < slice {
            return false;
        }
        self.at = last.map(Box::from);
        true
    }

    fn take(&mut self, key: &str, pod: &Pod) {
        let state = pod.state();
        self.counts[state as usize] += 1;
        if !self.words.iter().all(|word| word.matches(key, pod)) {
            return;
        }
        self.matched += 1;
        let is_before = |(other, name): &(State, Box<str>)| (*other, &**name) < (state, key);
        let is_behind = self.after.as_ref().is_none_or(is_before);
        let has_room =
            self.found.len() <= MOST || self.found.last_key_value().is_some_and(|(last, _)| !is_before(last));
        if is_behind && has_room {
            self.found.insert((state, key.into()), row(key, pod));
            if self.found.len() > MOST + 1 {
                self.found.pop_last();
            }
        }
    }

    /// The answer as JSON. `next` is for the next answer, if there is one.
    pub(in crate::page) fn answer(mut self) -> String {
        let has_more = self.found.len() > MOST;
        if has_more {
            self.found.pop_last();
        }
        let last = self.found.last_key_value().filter(|_| has_more);
        let next = last.map(|((state, key), _)| format!("{}/{key}", state.word()));
        let about = json!({"counts": self.counts, "matched": self.matched, "next": next});
        let rows: Vec<String> = self.found.into_values().collect();
        let about = about.to_string();
        format!(r#"{},"pods":[{}]}}"#, about.trim_end_matches('}'), rows.join(","))
    }
}

/// A pod in the form of the page's scripts: see `pods.js`.
fn row(key: &str, pod: &Pod) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let counted = pod.counted;
    let row = (namespace, name, &*pod.node, pod.phase(), counted.ready, counted.restarts, pod.created, &*pod.reason);
    // Text and numbers: nothing that JSON could not say.
    serde_json::to_string(&row).unwrap_or_default()
}

impl Word {
    fn of(word: &str) -> Self {
        let state = word.strip_prefix("is:").and_then(State::of);
        match (state, word.split_once('=')) {
            (Some(state), _) => Self::State(state),
            (None, Some(("namespace", name))) => Self::Namespace(name.to_owned()),
            (None, Some(("node", name))) => Self::Node(name.to_owned()),
            _ => Self::Part(word.to_lowercase()),
        }
    }

    fn matches(&self, key: &str, pod: &Pod) -> bool {
        match self {
            Self::State(state) => pod.state() == *state,
            Self::Namespace(name) => key.split_once('/').is_some_and(|(namespace, _)| namespace == name),
            Self::Node(name) => *pod.node == **name,
            // Names have no capital letters.
            Self::Part(part) => {
                let is_named = key.contains(part.as_str()) || pod.node.contains(part.as_str());
                is_named || has(pod.phase(), part) || has(&pod.reason, part)
            }
        }
    }
}

/// Whether a text has this part, in capital or small letters.
fn has(text: &str, part: &str) -> bool {
    text.len() >= part.len() && text.to_ascii_lowercase().contains(part)
}

#[cfg(test)]
mod tests;
