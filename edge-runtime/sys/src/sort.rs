//! Sorting, stable, by one piece of code for all types: the standard library's, made again for each type and comparison, is
//! kilobytes of the program each time.

use std::cmp::Ordering;

/// Same as [`slice::sort`].
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Same as [`slice::sort_by_key`].
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Same as [`slice::sort_by`].
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let mut places = places(items.len(), &mut |a, b| compare(&items[a], &items[b]));
    for at in 0..items.len() {
        while places[at] != at {
            let to = places[at];
            items.swap(at, to);
            places.swap(at, to);
        }
    }
}

/// Returns the target position of each item, by a comparison of two of them.
fn places(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| compare(*a, *b));
    let mut places = vec![0; count];
    for (place, from) in order.into_iter().enumerate() {
        places[from] = place;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_that_of_the_standard_library() {
        let mut seed = 7_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 24
        };
        for count in [0, 1, 2, 3, 20, 500] {
            let items: Vec<(u32, usize)> = (0..count).map(|n| (next() % 40, n)).collect();
            let (mut own, mut known) = (items.clone(), items.clone());
            sort_by_key(&mut own, |(key, _)| *key);
            known.sort_by_key(|(key, _)| *key);
            assert_eq!(own, known, "stable");
            let (mut own, mut known) = (items.clone(), items);
            sort_by(&mut own, |a, b| b.cmp(a));
            known.sort_by(|a, b| b.cmp(a));
            assert_eq!(own, known);
            sort(&mut own);
            known.sort();
            assert_eq!(own, known);
        }
    }
}
