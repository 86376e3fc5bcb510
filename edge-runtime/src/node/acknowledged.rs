//! Rows of the outbox that the bridge has acknowledged. They are deleted with the next commit of a pod or, without one, a
//! moment later: one pod's start has four of them, and a commit for each wrote as much as the start itself. Rows that a
//! daemon leaves behind when it is killed are sent again, which changes nothing. Pure.

use std::time::Duration;

use crate::pod::clock::Mono;

/// From the first acknowledgement that no commit has taken along until they are deleted.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// In order of arrival: the end of a pod's mirror must not be deleted before the mirror.
    rows: Vec<u64>,
    due: Option<Mono>,
}

impl Acknowledged {
    pub(super) fn add(&mut self, rows: Vec<u64>, now: Mono) {
        self.rows.extend(rows);
        self.due.get_or_insert(now.after(LONGEST));
    }

    /// Returns the rows that the next commit is to delete.
    pub(super) fn take(&mut self) -> Vec<u64> {
        self.due = None;
        std::mem::take(&mut self.rows)
    }

    /// When they must be deleted if no other commit takes them along.
    pub(super) const fn due(&self) -> Option<Mono> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_rows_wait_for_a_commit_or_a_second() {
        let mut acknowledged = Acknowledged::default();
        assert_eq!(acknowledged.due(), None);
        acknowledged.add(vec![3, 1], Mono(500));
        acknowledged.add(vec![2], Mono(1_200));
        assert_eq!(acknowledged.due(), Some(Mono(1_500)), "counted from the first");
        assert_eq!(acknowledged.take(), [3, 1, 2]);
        assert_eq!((acknowledged.due(), acknowledged.take()), (None, Vec::new()));
        acknowledged.add(vec![4], Mono(9_000));
        assert_eq!(acknowledged.due(), Some(Mono(10_000)));
    }
}
