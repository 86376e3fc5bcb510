//! Sets of completion indexes, written as `0-3,5` (K8s pkg/controller/job/indexed_job_utils.go).

use std::fmt;

/// Sorted intervals of indexes, first and last of each, without overlapping or adjacent ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Parses a list. Ignores malformed parts, and indexes that are not below `completions`.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let interval = |part: &str| -> Option<(i32, i32)> {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse::<i32>().ok()?.min(completions - 1));
            (0 <= first && first <= last).then_some((first, last))
        };
        Self::of(text.split(',').filter_map(interval).collect())
    }

    fn of(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::new();
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// Returns the union with these indexes.
    pub(super) fn with(&self, indexes: impl IntoIterator<Item = i32>) -> Self {
        Self::of(self.0.iter().copied().chain(indexes.into_iter().map(|index| (index, index))).collect())
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, index: i32) -> bool {
        let next = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(next).is_some_and(|(first, _)| *first <= index)
    }

    /// The first `count` of the indexes below `completions` that are not in it.
    pub(super) fn missing(&self, count: usize, completions: i32) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            missing.extend((next..first.min(completions)).take(count - missing.len()));
            next = last.saturating_add(1);
        }
        missing
    }

    /// How many are in both.
    pub(super) fn common(&self, other: &Self) -> i32 {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = 0;
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            common += (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
            if a.1 < b.1 {
                ours.next();
            } else {
                theirs.next();
            }
        }
        common
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_kubernetes_does() {
        for (text, completions, written, total) in [
            ("", 5, "", 0),
            ("0", 5, "0", 1),
            ("0,1", 5, "0,1", 2),
            ("0-2", 5, "0-2", 3),
            ("0,1,2,4", 5, "0-2,4", 4),
            ("1-9", 5, "1-4", 4),
            ("3,7", 5, "3", 1),
            ("x,1,2-y,4", 5, "1,4", 2),
            ("3-1,4", 5, "4", 1),
        ] {
            let indexes = Indexes::parse(text, completions);
            assert_eq!((indexes.to_string().as_str(), indexes.total()), (written, total), "{text}");
        }
    }

    #[test]
    fn sets_are_joined_asked_and_filled() {
        let indexes = Indexes::parse("1-3,6", 10).with([5, 8, 5]);
        assert_eq!(indexes.to_string(), "1-3,5,6,8");
        let has: Vec<i32> = (0..10).filter(|index| indexes.has(*index)).collect();
        assert_eq!(has, [1, 2, 3, 5, 6, 8]);
        assert_eq!(indexes.missing(9, 10), [0, 4, 7, 9]);
        assert_eq!(indexes.missing(2, 10), [0, 4]);
        assert_eq!(indexes.missing(9, 2), [0]);
        assert_eq!(indexes.and(&Indexes::parse("0,7", 10)).to_string(), "0-3,5-8");
        assert_eq!(indexes.common(&Indexes::parse("2-5,8,9", 10)), 4);
        assert_eq!(indexes.common(&Indexes::default()), 0);
    }
}
