//! Exits of containers and ends of pods: onto the medium first, then to the cloud.
//!
//! A container whose exit was reported to the API never runs again, even after a power cut. The commits of pods' turns
//! are not synced one by one: commits with an exit are synced together a moment later. Until then the reports of that
//! pod stay here, and the monitor keeps its exit records. Reports of other pods, and a restart of the pod itself, do
//! not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::context::Context;
use crate::monitor::client::MonitorClient;
use crate::pod::clock::Mono;
use crate::store::{Store, StoreError};

/// A pod's containers end at once.
const GATHER: Duration = Duration::from_millis(10);
/// On a slow medium the loop waits for it at most one part in this many of its time...
const SHARE: u32 = 10;
/// ...unless reports would wait for longer than this.
const LONGEST: Duration = Duration::from_secs(2);

/// What waits for the next sync.
#[derive(Default)]
pub(super) struct ExitSync {
    due: Option<Mono>,
    /// The earliest time of the next sync, unless reports wait too long.
    rest: Mono,
    /// Exits whose records the monitor may forget after the sync.
    exits: Vec<String>,
    /// Exits that are known in memory alone, by the uid of their pod: not every pod takes a turn at once.
    told: BTreeMap<String, BTreeSet<String>>,
    /// Uids of pods with an end that is committed and not synced.
    unsynced: BTreeSet<String>,
    /// Rows of the outbox that tell of such a pod.
    withheld: BTreeSet<u64>,
}

impl ExitSync {
    /// A container has ended: its pod's next turn commits it.
    pub(super) fn told(&mut self, uid: &str, id: &str) {
        self.told.entry(uid.to_owned()).or_default().insert(id.to_owned());
    }

    /// The pod has taken a turn. Gives the exits that it has committed.
    pub(super) fn turned(&mut self, uid: &str) -> BTreeSet<String> {
        self.told.remove(uid).unwrap_or_default()
    }

    /// A pod's turn has committed these rows of the outbox. `ends`: they are the first to tell of an end.
    pub(super) fn reports_committed(&mut self, uid: &str, rows: &[u64], ends: bool, now: Mono) {
        if ends || self.told.contains_key(uid) {
            self.unsynced.insert(uid.to_owned());
        }
        if self.unsynced.contains(uid) {
            self.withheld.extend(rows);
            self.committed(now);
        }
    }

    /// Whether this row of the outbox may leave: no end that it tells of is missing on the medium.
    pub(super) fn lets_leave(&self, row: u64) -> bool {
        !self.withheld.contains(&row)
    }

    /// When to sync, if that is later than now.
    fn wait(&self, store: &Store, now: Mono) -> Option<Mono> {
        self.due.filter(|due| now < *due && !store.is_synced())
    }

    /// Syncs what waits. Returns the exits that the monitor may forget.
    fn sync(&mut self, store: &mut Store, now: Mono) -> Result<Vec<String>, StoreError> {
        if self.due.is_some() {
            let began = Instant::now();
            store.sync()?;
            self.rest = rest_after(now, began.elapsed());
            self.due = None;
        }
        self.unsynced.clear();
        self.withheld.clear();
        Ok(std::mem::take(&mut self.exits))
    }

    /// A commit contains an end: it must be synced before it is reported.
    pub(super) fn committed(&mut self, now: Mono) {
        self.due.get_or_insert(now.after(GATHER).max(self.rest));
    }

    /// The exit is committed: once that is on the medium, the monitor may forget it.
    pub(super) fn exit_committed(&mut self, id: &str, now: Mono) {
        self.exits.push(id.to_owned());
        self.committed(now);
    }

    /// The pod has taken a turn: the ends in its record are committed.
    pub(super) fn turn_committed(&mut self, uid: &str, now: Mono) {
        let exits = self.turned(uid);
        if !exits.is_empty() {
            self.unsynced.insert(uid.to_owned());
        }
        exits.iter().for_each(|id| self.exit_committed(id, now));
    }

    /// Syncs if due. Returns when to call again if a sync is due later.
    pub(super) fn sync_due(&mut self, cx: &mut Context, monitor: &MonitorClient) -> Result<Option<Mono>, StoreError> {
        match self.wait(&cx.store, cx.mono()) {
            Some(due) => Ok(Some(due)),
            None => self.sync_now(cx, monitor).map(|()| None),
        }
    }

    pub(super) fn sync_now(&mut self, cx: &mut Context, monitor: &MonitorClient) -> Result<(), StoreError> {
        let now = cx.mono();
        let exits = self.sync(&mut cx.store, now)?;
        for id in exits {
            let monitor = monitor.clone();
            let forget = async move {
                if let Err(error) = monitor.forget(&id).await {
                    log::debug!("exit record of {id} stays: {error}");
                }
            };
            cx.tasks.spawn(forget).detach();
        }
        Ok(())
    }
}

/// The earliest time of the sync after one that began `now` and took this long.
fn rest_after(now: Mono, took: Duration) -> Mono {
    now.after(took + (took * SHARE).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::Fact;

    #[test]
    fn no_end_leaves_before_it_is_on_the_medium() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("store.db")).unwrap().store;
        let mut ends = ExitSync::default();
        let commit = |store: &mut Store| store.write(|writer| writer.set_fact(Fact::Cluster, "ended")).unwrap();

        commit(&mut store);
        ends.exits.push("id".into());
        ends.reports_committed("a", &[1], true, Mono(1_000));
        let due = ends.wait(&store, Mono(1_000)).unwrap();
        assert!(due > Mono(1_000) && ends.wait(&store, due).is_none(), "others that end at once come along");

        // A medium that takes nothing: SQLite's log cannot even be opened for it.
        let log = dir.path().join("store.db-wal");
        fs::rename(&log, dir.path().join("kept")).unwrap();
        std::os::unix::fs::symlink(&log, &log).unwrap();
        for _ in 0..2 {
            assert!(ends.sync(&mut store, due).is_err(), "neither may leave");
            assert!(!store.is_synced() && ends.due.is_some() && !ends.lets_leave(1));
        }
        fs::rename(dir.path().join("kept"), &log).unwrap();
        assert_eq!(ends.sync(&mut store, due).unwrap(), ["id"]);
        assert!(store.is_synced() && ends.wait(&store, due).is_none() && ends.lets_leave(1));

        // An end that another commit's sync included does not wait; one soon after a slow sync waits longer.
        ends.rest = Mono(9_000);
        commit(&mut store);
        ends.committed(Mono(5_000));
        assert_eq!(ends.wait(&store, Mono(5_000)), Some(Mono(9_000)));
        store.write_durable(|writer| writer.set_fact(Fact::Cluster, "other")).unwrap();
        assert_eq!(ends.wait(&store, Mono(5_000)), None);
    }

    #[test]
    fn reports_of_other_pods_do_not_wait_for_an_end() {
        let mut store = Store::in_memory().unwrap();
        let mut ends = ExitSync::default();
        let leaving = |ends: &ExitSync| (1..=8).filter(|row| ends.lets_leave(*row)).collect::<Vec<u64>>();
        ends.reports_committed("bystander", &[1], false, Mono(0));
        // The exit is taken in the turn that writes its report.
        ends.told("ended", "c1");
        ends.reports_committed("ended", &[2, 3], false, Mono(0));
        ends.turn_committed("ended", Mono(0));
        // Reports of later turns tell of the same end, although they are not the first.
        ends.reports_committed("ended", &[4], false, Mono(1));
        ends.reports_committed("gone", &[5], true, Mono(1));
        ends.reports_committed("gone", &[6], false, Mono(1));
        ends.reports_committed("bystander", &[7, 8], false, Mono(2));
        assert_eq!(leaving(&ends), [1, 7, 8]);
        assert_eq!(ends.sync(&mut store, Mono(10)).unwrap(), ["c1"]);
        assert_eq!(leaving(&ends), [1, 2, 3, 4, 5, 6, 7, 8]);
        ends.reports_committed("ended", &[9], false, Mono(11));
        assert!(ends.lets_leave(9), "the end is on the medium");
    }

    #[test]
    fn slow_medium_is_waited_for_a_part_of_the_time_only() {
        let rest = |ms| rest_after(Mono(1_000), Duration::from_millis(ms)).0 - 1_000;
        assert_eq!([rest(0), rest(1), rest(100), rest(200), rest(201)], [0, 11, 1_100, 2_200, 2_201]);
        assert_eq!(rest(60_000), 62_000, "reports do not wait longer than that beside the sync itself");
    }

    #[test]
    fn later_ends_do_not_put_a_sync_off() {
        let mut ends = ExitSync::default();
        ends.committed(Mono(1_000));
        ends.committed(Mono(1_009));
        assert_eq!(ends.due, Some(Mono(1_010)));
        ends.committed(Mono(0));
        assert_eq!(ends.due, Some(Mono(1_010)));
    }

    #[test]
    fn exit_that_is_told_twice_is_committed_once() {
        let mut ends = ExitSync::default();
        (0..2).for_each(|_| ends.told("a", "c1"));
        ends.turn_committed("a", Mono(0));
        assert_eq!(ends.exits, ["c1"]);
        ends.turn_committed("a", Mono(1));
        ends.turn_committed("unknown", Mono(1));
        assert_eq!(ends.exits, ["c1"]);
    }
}
