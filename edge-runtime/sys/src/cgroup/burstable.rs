//! Sum of the burstable pods' cpu shares. Knows no files.

use std::cell::RefCell;

use crate::vec_map::VecMap;

/// Shares by pod uid.
#[derive(Debug, Default)]
pub(super) struct Burstable(RefCell<VecMap<String, u64>>);

impl Burstable {
    /// The new sum, if it changed.
    pub(super) fn add(&self, uid: &str, shares: u64) -> Option<u64> {
        let mut pods = self.0.borrow_mut();
        let old = pods.insert(uid.to_string(), shares);
        (old != Some(shares)).then(|| pods.values().sum())
    }

    /// The new sum, if it changed.
    pub(super) fn remove(&self, uid: &str) -> Option<u64> {
        let mut pods = self.0.borrow_mut();
        pods.remove(uid).map(|_| pods.values().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_the_sum_are_returned() {
        let pods = Burstable::default();
        assert_eq!(pods.add("a", 100), Some(100));
        assert_eq!(pods.add("b", 200), Some(300));
        assert_eq!(pods.add("b", 200), None);
        assert_eq!(pods.add("b", 50), Some(150));
        assert_eq!(pods.remove("a"), Some(50));
        assert_eq!(pods.remove("a"), None);
    }
}
