//! Troubles are logged when they begin, when they change and when they are over: not each time.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Once(BTreeMap<String, String>);

impl Once {
    /// Whether it is news that this is the trouble with `what`.
    pub fn is_news(&mut self, what: &str, trouble: &str) -> bool {
        match self.0.get(what) {
            Some(told) if told == trouble => false,
            _ => {
                self.0.insert(what.to_owned(), trouble.to_owned());
                true
            }
        }
    }

    /// Whether there was a trouble with `what` until now.
    pub fn is_over(&mut self, what: &str) -> bool {
        self.0.remove(what).is_some()
    }

    /// `of`: a device.
    pub fn warn(&mut self, of: &impl std::fmt::Display, what: &str, trouble: &str) {
        if self.is_news(what, trouble) {
            log::warn!("{of}: {what}: {trouble}");
        }
    }

    pub fn over(&mut self, of: &impl std::fmt::Display, what: &str) {
        if self.is_over(what) {
            log::info!("{of}: {what}: well again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_reported_once() {
        let mut once = Once::default();
        let told = ["a", "a", "b", "a"].map(|trouble| once.is_news("temp", trouble));
        assert_eq!(told, [true, false, true, true]);
        assert!(once.is_news("other", "a"));
        assert_eq!([once.is_over("temp"), once.is_over("temp")], [true, false]);
        assert!(once.is_news("temp", "a"));
    }
}
