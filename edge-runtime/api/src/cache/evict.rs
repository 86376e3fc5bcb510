//! Which answers go first where there is no room: of the ServiceAccount that takes most, those that were used longest ago.
//! So a pod that reads many paths takes no room from other accounts that have less. No I/O.

use std::cmp::Reverse;

use sampan_sys::vec_map::VecMap;

/// An answer that may have to go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    pub(super) key: &'a str,
    pub(super) account: &'a str,
    pub(super) size: u64,
    pub(super) used: u64,
}

/// Returns the keys to remove, so that the sizes of the others are at most `room` together.
pub(super) fn evict<'a>(items: impl Iterator<Item = Item<'a>>, room: u64) -> Vec<String> {
    let mut items: Vec<Item<'a>> = items.collect();
    // The newest first.
    items.sort_by_key(|item| Reverse(item.used));
    let mut shares: VecMap<&str, u64> = VecMap::new();
    for item in &items {
        let share = shares.get_or_default(item.account);
        *share = share.saturating_add(item.size);
    }
    let mut gone = Vec::new();
    while shares.values().fold(0_u64, |sum, share| sum.saturating_add(*share)) > room {
        let largest = shares.iter().max_by_key(|(_, share)| **share).map(|(account, _)| *account);
        let Some(at) = items.iter().rposition(|item| Some(item.account) == largest) else { break };
        let item = items.remove(at);
        if let Some(share) = shares.get_mut(item.account) {
            *share = share.saturating_sub(item.size);
        }
        gone.push(item.key.to_owned());
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(items: &[(&str, &str, u64, u64)], room: u64) -> Vec<String> {
        let items = items.iter().map(|(key, account, size, used)| Item { key, account, size: *size, used: *used });
        evict(items, room)
    }

    #[test]
    fn least_recently_used_go() {
        let items = [("a", "x", 10, 3), ("b", "x", 10, 1), ("c", "x", 10, 2), ("d", "x", 1, 0)];
        assert_eq!(gone(&items, 31), [""; 0]);
        assert_eq!(gone(&items, 30), ["d"]);
        assert_eq!(gone(&items, 25), ["d", "b"], "a small one does not outlive a newer one");
        assert_eq!(gone(&items, 0), ["d", "b", "c", "a"]);
    }

    #[test]
    fn account_that_takes_most_gives_room() {
        let mut items = vec![("old", "quiet", 10, 0)];
        items.extend([("a", "loud", 10, 1), ("b", "loud", 10, 2), ("c", "loud", 10, 3)]);
        assert_eq!(gone(&items, 25), ["a", "b"]);
        assert_eq!(gone(&items, 10).len(), 3);
    }
}
