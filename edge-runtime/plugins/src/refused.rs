//! What cannot be done now, for the daemon. Pure: no I/O, no clock.

use sampan_sys::vec_map::VecMap;

/// Lines about what is refused, and the longest reason in characters.
const MAX_REFUSED: usize = 64;
const MAX_REASON: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Reasons, by what is refused.
    all: VecMap<String, String>,
    /// Lines that the daemon knows. `None`: it knows nothing.
    told: Option<Vec<String>>,
}

impl Refused {
    /// Returns the reason if it is another one than before.
    pub(crate) fn add(&mut self, what: &str, why: &str) -> Option<&str> {
        let why: String = why.chars().take(MAX_REASON).collect();
        let is_full = self.all.len() >= MAX_REFUSED && !self.all.contains_key(what);
        if is_full || self.all.get(what) == Some(&why) {
            return None;
        }
        self.all.insert(what.to_owned(), why);
        self.all.get(what).map(String::as_str)
    }

    /// Returns whether it was refused.
    pub(crate) fn remove(&mut self, what: &str) -> bool {
        self.all.remove(what).is_some()
    }

    /// Another daemon knows nothing.
    pub(crate) fn begin(&mut self) {
        self.told = None;
    }

    /// All lines, unless the daemon knows just these.
    pub(crate) fn news(&mut self) -> Option<Vec<String>> {
        let lines: Vec<_> = self.all.iter().map(|(what, why)| format!("{what}: {why}")).collect();
        if self.told.as_ref() == Some(&lines) {
            return None;
        }
        self.told = Some(lines.clone());
        Some(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_lines_are_news() {
        let mut refused = Refused::default();
        assert_eq!(refused.news(), Some(Vec::new()), "that nothing is refused");
        assert_eq!(refused.news(), None);
        assert_eq!(refused.add("a", "x"), Some("x"));
        assert_eq!(refused.add("a", "x"), None);
        assert_eq!(refused.news(), Some(vec!["a: x".to_owned()]));
        assert!(refused.remove("a") && !refused.remove("a"));
        assert_eq!(refused.add("a", "x"), Some("x"));
        assert_eq!(refused.news(), None, "its acceptance was never reported");
        refused.begin();
        assert_eq!(refused.news(), Some(vec!["a: x".to_owned()]));
    }

    #[test]
    fn lines_have_limits() {
        let mut refused = Refused::default();
        for number in 0..MAX_REFUSED {
            assert!(
                refused.add(&number.to_string(), &"ü".repeat(MAX_REASON + 1)).is_some_and(|why| why.len() == 1_024)
            );
        }
        assert_eq!(refused.add("new", "x"), None);
        assert_eq!(refused.add("0", "x"), Some("x"));
    }
}
