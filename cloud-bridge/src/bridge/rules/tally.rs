//! Counters of each rule, and which of them to write into its status. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Value, json};

use crate::bridge::name::Name;

/// Maximum number of errors in a status, and the maximum length of each in bytes.
const ERRORS: usize = 10;
const LONGEST: usize = 512;

/// Counters of one rule since they were last written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) uid: Box<str>,
    succeeded: u64,
    failed: u64,
    /// Errors, the newest last.
    errors: VecDeque<String>,
}

/// Counters of all rules.
#[derive(Default)]
pub(in crate::bridge) struct Tally {
    counts: BTreeMap<Name, Counts>,
    /// Reported problems of invalid rules: each is reported once.
    problems: HashMap<Box<str>, String>,
}

impl Tally {
    pub(super) fn count(&mut self, name: &Name, uid: &str, outcome: Result<(), String>) {
        let counts = self.of(name, uid);
        match outcome {
            Ok(()) => counts.succeeded += 1,
            Err(why) => {
                counts.failed += 1;
                counts.error(why);
            }
        }
    }

    /// Invalid rules at present, and the reasons.
    pub(super) fn problems<'a>(&mut self, now: &str, present: impl Iterator<Item = (&'a Name, &'a str, &'a str)>) {
        let present: Vec<_> = present.collect();
        self.problems.retain(|uid, _| present.iter().any(|(_, present, _)| **present == **uid));
        for (name, uid, why) in present {
            if self.problems.get(uid).is_none_or(|told| told != why) {
                self.problems.insert(uid.into(), why.to_owned());
                self.of(name, uid).error(format!("{now} {why}"));
            }
        }
    }

    fn of(&mut self, name: &Name, uid: &str) -> &mut Counts {
        let counts = self.counts.entry(name.clone()).or_default();
        if *counts.uid != *uid {
            // Another rule with the same name.
            *counts = Counts { uid: uid.into(), ..Counts::default() };
        }
        counts
    }

    /// Takes the counters to write and resets them.
    pub(super) fn take(&mut self) -> BTreeMap<Name, Counts> {
        std::mem::take(&mut self.counts)
    }

    /// Restores counters that could not be written.
    pub(super) fn put_back(&mut self, name: Name, mut earlier: Counts) {
        let later = self.counts.entry(name).or_default();
        if later.uid.is_empty() {
            *later = earlier;
        } else if later.uid == earlier.uid {
            earlier.succeeded += later.succeeded;
            earlier.failed += later.failed;
            std::mem::take(&mut later.errors).into_iter().for_each(|error| earlier.push(error));
            *later = earlier;
        }
    }
}

impl Counts {
    fn error(&mut self, mut why: String) {
        why.truncate(why.floor_char_boundary(LONGEST));
        self.push(why);
    }

    fn push(&mut self, error: String) {
        self.errors.push_back(error);
        self.errors.drain(..self.errors.len().saturating_sub(ERRORS));
    }

    /// The status of this rule with its new counters; `None` for another rule of its name. Another bridge may write it
    /// too, so it is written on the version that was read.
    pub(super) fn status(&self, rule: &Value) -> Option<Value> {
        let metadata = &rule["metadata"];
        if metadata["uid"].as_str() != Some(&*self.uid) {
            return None;
        }
        let status = &rule["status"];
        let number = |field: &str| status[field].as_u64().unwrap_or(0);
        let errors = status["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let mut all = Self { errors: errors.collect(), ..Self::default() };
        self.errors.iter().cloned().for_each(|error| all.push(error));
        all.errors.drain(..all.errors.len().saturating_sub(ERRORS));
        // Integers in the API have 63 bits.
        let sum = |before: u64, more: u64| before.saturating_add(more).min(i64::MAX.unsigned_abs());
        Some(json!({
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {
                "successMessages": sum(number("successMessages"), self.succeeded),
                "failMessages": sum(number("failMessages"), self.failed),
                "errors": all.errors,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        ("ns".into(), "r".into())
    }

    fn rule(uid: &str, status: &Value) -> Value {
        json!({"metadata": {"uid": uid, "resourceVersion": "7"}, "status": status})
    }

    #[test]
    fn counts_are_added_to_what_is_there() {
        let mut tally = Tally::default();
        for number in 0..25 {
            tally.count(&name(), "u", if number % 5 == 0 { Err(format!("error {number}")) } else { Ok(()) });
        }
        let counts = tally.take().remove(&name()).unwrap();
        let before = json!({"successMessages": 100, "failMessages": 1, "errors": (0..8).map(|n| n.to_string()).collect::<Vec<_>>()});
        let made = counts.status(&rule("u", &before)).unwrap();
        assert_eq!(made["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!((&made["status"]["successMessages"], &made["status"]["failMessages"]), (&json!(120), &json!(6)));
        let errors = made["status"]["errors"].as_array().unwrap();
        assert_eq!((errors.len(), &errors[0], &errors[9]), (10, &json!("3"), &json!("error 20")));
        assert_eq!(counts.status(&rule("v", &before)), None, "another rule of that name");
        assert!(tally.take().is_empty());
        let odd = json!({"successMessages": "x", "errors": [1, "a"]});
        assert_eq!(counts.status(&rule("u", &odd)).unwrap()["status"]["successMessages"], 20);
    }

    #[test]
    fn what_could_not_be_written_counts_again() {
        let mut tally = Tally::default();
        tally.count(&name(), "u", Err("first".into()));
        let earlier = tally.take().remove(&name()).unwrap();
        tally.count(&name(), "u", Ok(()));
        tally.count(&name(), "u", Err("second".into()));
        tally.put_back(name(), earlier.clone());
        let made = tally.take()[&name()].status(&rule("u", &Value::Null)).unwrap();
        assert_eq!(made["status"], json!({"successMessages": 1, "failMessages": 2, "errors": ["first", "second"]}));
        tally.count(&name(), "v", Ok(()));
        tally.put_back(name(), earlier);
        assert_eq!(&*tally.take()[&name()].uid, "v", "of one that is gone nothing counts");
    }

    #[test]
    fn a_problem_is_said_once_until_it_is_another() {
        let (mut tally, name) = (Tally::default(), name());
        for _ in 0..5 {
            tally.problems("t", [(&name, "u", "no end")].into_iter());
        }
        assert_eq!(tally.take()[&name].errors, ["t no end"]);
        tally.problems("t", [(&name, "u", "no other end")].into_iter());
        assert_eq!(tally.take().len(), 1);
        tally.problems("t", [].into_iter());
        tally.problems("t", [(&name, "u", "no other end")].into_iter());
        assert_eq!(tally.take().len(), 1, "it worked in between");
    }
}
