//! Which answers go first where there is no room: those that were used longest ago. No I/O.

/// Returns the keys to remove, so that the sizes of the others are at most `room` together. An item is its key, its size,
/// and when it was used.
pub(super) fn evict<K: Clone>(items: impl Iterator<Item = (K, u64, u64)>, room: u64) -> Vec<K> {
    let mut items: Vec<_> = items.collect();
    // The newest first.
    items.sort_by_key(|(_, _, used)| std::cmp::Reverse(*used));
    let mut sum = 0_u64;
    let mut gone = Vec::new();
    for (key, size, _) in items {
        match sum.checked_add(size).filter(|with| *with <= room && gone.is_empty()) {
            Some(with) => sum = with,
            None => gone.push(key),
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_go() {
        let items = [("a", 10, 3), ("b", 10, 1), ("c", 10, 2), ("d", 1, 0)];
        let gone = |room| evict(items.into_iter(), room);
        assert_eq!(gone(31), [""; 0]);
        assert_eq!(gone(30), ["d"]);
        assert_eq!(gone(25), ["b", "d"], "a small one does not outlive a newer one");
        assert_eq!(gone(0), ["a", "c", "b", "d"]);
        assert_eq!(evict([("a", u64::MAX, 1), ("b", u64::MAX, 2)].into_iter(), u64::MAX), ["a"]);
    }
}
