//! Sets and maps out of iterators by insertion: [`Iterator::collect`] sorts first, with a sort of its own for each type, which
//! is kilobytes of the program each time.

use std::collections::{BTreeMap, BTreeSet};

/// Items of an iterator, gathered.
pub trait Gather: Iterator + Sized {
    /// Same as [`Iterator::collect`] into a set.
    fn into_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }

    /// Same as [`Iterator::collect`] into a map: of two values of a key the last one stays.
    fn into_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }
}

impl<I: Iterator> Gather for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathered_values_equal_collected_ones() {
        let pairs = [(3, 'a'), (1, 'b'), (3, 'c')];
        assert_eq!(pairs.into_iter().into_map(), BTreeMap::from(pairs));
        assert_eq!(pairs.into_iter().into_set(), BTreeSet::from(pairs));
    }
}
