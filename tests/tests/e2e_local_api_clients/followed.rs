//! What an informer has said, line by line, and the objects that it knows then. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What an informer knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Objects that exist, with their value.
    pub(crate) objects: BTreeMap<String, String>,
    /// Names of all objects that it was ever told of.
    pub(crate) seen: BTreeSet<String>,
    pub(crate) lists: usize,
    /// Answers 410: the changes since its last one are not kept any more.
    pub(crate) gone: usize,
    pub(crate) errors: usize,
}

impl Followed {
    /// From the lines of `clients.py` or `api-client`. A line that is not complete does not count.
    pub(crate) fn read(said: &str) -> Self {
        let mut followed = Self::default();
        for line in said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            followed.line(&line.split(' ').collect::<Vec<_>>());
        }
        followed
    }

    fn line(&mut self, words: &[&str]) {
        match words {
            ["apply", name, value] => {
                self.objects.insert((*name).to_owned(), (*value).to_owned());
                self.seen.insert((*name).to_owned());
            }
            ["delete", name] => drop(self.objects.remove(*name)),
            ["clear"] => self.objects.clear(),
            ["list"] => self.lists += 1,
            ["gone"] => self.gone += 1,
            ["error", ..] => self.errors += 1,
            // What a library logs.
            _ => {}
        }
    }

    /// What it has missed or asked for too often, beside what exists and what was created before.
    pub(crate) fn problem(&self, exists: &BTreeMap<String, String>, created: &BTreeSet<String>) -> Option<String> {
        if self.objects != *exists {
            return Some(format!("it knows {:?}, and there are {exists:?}", self.objects));
        }
        // A new list shows only what still exists.
        let missed: Vec<&String> = created.difference(&self.seen).collect();
        if self.gone == 0 && !missed.is_empty() {
            return Some(format!("it was never told of {missed:?}"));
        }
        let lists = self.lists;
        (lists > 1 + self.gone).then(|| format!("{lists} lists, with {} answers 410: a cut is no reason", self.gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Followed {
        Followed::read(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())
    }

    fn objects<const N: usize>(all: [(&str, &str); N]) -> BTreeMap<String, String> {
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn names<const N: usize>(all: [&str; N]) -> BTreeSet<String> {
        all.map(str::to_owned).into()
    }

    #[test]
    fn lines_are_what_an_informer_knows() {
        let lines = ["list", "apply a 0", "apply b 0", "Traceback (most recent call last):", "apply a 1", "delete b"];
        let followed = read(&lines);
        assert_eq!(followed.objects, objects([("a", "1")]));
        assert_eq!(followed.seen, names(["a", "b"]));
        assert_eq!(
            Followed::read("apply a 1\napply a 1"),
            Followed::read("apply a 1\n"),
            "a line that is not complete"
        );
        assert_eq!(read(&["apply a 0", "gone", "clear", "list"]).objects, objects([]));
    }

    #[test]
    fn missed_objects_and_lists_are_problems() {
        let followed = read(&["list", "apply a 0", "error EOF"]);
        let (exists, created) = (objects([("a", "0")]), names(["a"]));
        assert_eq!(followed.problem(&exists, &created), None);
        assert!(followed.problem(&objects([("a", "1")]), &created).is_some());
        assert!(followed.problem(&exists, &names(["a", "short"])).is_some());
        assert!(read(&["list", "apply a 0", "list"]).problem(&exists, &created).is_some());
        let again = read(&["list", "apply a 0", "gone", "list"]);
        assert_eq!(again.problem(&exists, &names(["a", "short"])), None);
    }
}
