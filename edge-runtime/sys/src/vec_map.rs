//! A map in one sorted vector, with the methods of `BTreeMap` that the node needs. The nodes of a `BTreeMap` and their
//! balancing are kilobytes of the program for each pair of types; a search in a vector and a move are a tenth of that.

use std::borrow::Borrow;
use std::mem;

/// Entries sorted by key. Inserting and removing move all entries behind, so it is for maps of up to some hundred entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VecMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for VecMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for VecMap<K, V> {
    /// The last of several values of a key stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        entries.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

impl<K, V> VecMap<K, V> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + Clone {
        self.0.iter().map(|entry| (&entry.0, &entry.1))
    }

    /// Entries in the order of their keys, values to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|entry| (&entry.0, &mut entry.1))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> + Clone {
        self.0.iter().map(|entry| &entry.0)
    }

    /// Values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.0.iter().map(|entry| &entry.1)
    }

    /// Values in the order of their keys, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|entry| &mut entry.1)
    }

    /// Values in the order of their keys, without the map.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|entry| entry.1)
    }

    /// Removes the entries for which `keep` returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|entry| keep(&entry.0, &mut entry.1));
    }

    /// Place of a key, or the place where it belongs.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|entry| entry.0.borrow().cmp(key))
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.0.get(at).map(|entry| &entry.1)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.0.get_mut(at).map(|entry| &mut entry.1)
    }

    /// Value of a key; a missing key gets the default.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        K: Ord,
        V: Default,
    {
        self.get_or_insert_with(key, V::default)
    }

    /// Value of a key; a missing key gets what `make` returns.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V
    where
        K: Ord,
    {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, make()));
            at
        });
        &mut self.0[at].1
    }

    /// Sets the value of a key and returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V>
    where
        K: Ord,
    {
        match self.find(&key) {
            Ok(at) => Some(mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    /// Removes the entry with the smallest key, and returns it.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn vec_map_answers_as_a_btree_map() {
        let (mut ours, mut theirs) = (VecMap::<String, i32>::new(), BTreeMap::<String, i32>::new());
        let mut number = 1_u32;
        for step in 0..2000 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (number >> 24).to_string();
            match (number >> 16) & 3 {
                0 => assert_eq!(ours.remove(&*key), theirs.remove(&*key), "{key}"),
                1 => {
                    *ours.get_or_default(key.clone()) += 1;
                    *theirs.entry(key.clone()).or_default() += 1;
                }
                _ => assert_eq!(ours.insert(key.clone(), step), theirs.insert(key.clone(), step), "{key}"),
            }
            assert_eq!((ours.get(&*key), ours.contains_key(&*key)), (theirs.get(&*key), theirs.contains_key(&*key)));
            assert!(ours.iter().eq(theirs.iter()) && ours.len() == theirs.len(), "{key}");
        }
        assert_eq!(theirs.clone().into_iter().rev().collect::<VecMap<_, _>>(), ours);
        ours.values_mut().for_each(|value| *value /= 2);
        theirs.values_mut().for_each(|value| *value /= 2);
        ours.retain(|key, value| key.len() < 3 || *value > 500);
        theirs.retain(|key, value| key.len() < 3 || *value > 500);
        assert!(ours.keys().eq(theirs.keys()) && ours.values().eq(theirs.values()) && !ours.is_empty());
        assert!(theirs.iter().all(|(key, value)| ours.get(key) == Some(value)));
        assert_eq!(ours.pop_first(), theirs.pop_first());
        assert_eq!(VecMap::<u8, u8>::new().pop_first(), None);
        assert!(ours.into_values().eq(theirs.into_values()));
    }
}
