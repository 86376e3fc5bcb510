//! Ends of containers and pods on their way to the cloud: onto the medium first.
//!
//! An end that the API was told of is never run again, whatever a power cut takes. Commits of a pod's turn are not
//! synced one by one; those that hold an end are synced together a moment later, and until then no report leaves and
//! the monitor keeps its exit records. What the pod itself does next (a restart) waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::context::Context;
use super::outgoing::Leave;
use crate::monitor::client::MonitorClient;
use crate::pod::clock::Mono;
use crate::store::{Store, StoreError};

/// A pod's containers end at once.
const GATHER: Duration = Duration::from_millis(10);
/// On a slow medium the loop spends no more than one part in so many with waiting for it...
const SHARE: u32 = 10;
/// ...unless reports would wait for longer than this.
const LONGEST: Duration = Duration::from_secs(2);

/// What waits for the next sync.
#[derive(Default)]
pub(super) struct ExitSync {
    due: Option<Mono>,
    /// Not sooner than this, if it can be helped.
    rest: Mono,
    /// Exits whose records the monitor may forget then.
    exits: Vec<String>,
    /// Exits that are known in memory alone, by the uid of their pod: not every pod takes a turn at once.
    told: BTreeMap<String, BTreeSet<String>>,
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

    /// When to come again if no report may leave now.
    fn wait(&self, store: &Store, now: Mono) -> Option<Mono> {
        self.due.filter(|due| now < *due && !store.is_synced())
    }

    /// Syncs what waits. Gives the exits that the monitor may forget, too.
    fn sync(&mut self, store: &mut Store, now: Mono) -> Result<(Leave, Vec<String>), StoreError> {
        if self.due.is_some() {
            let began = Instant::now();
            store.sync()?;
            let took = began.elapsed();
            self.rest = now.after(took + (took * SHARE).min(LONGEST));
            self.due = None;
        }
        Ok((Leave::synced(), std::mem::take(&mut self.exits)))
    }

    /// A commit holds an end: it goes to the medium before anything is told.
    pub(super) fn committed(&mut self, now: Mono) {
        self.due.get_or_insert(now.after(GATHER).max(self.rest));
    }

    /// The exit is committed: once that is on the medium, the monitor may forget it.
    pub(super) fn exit_committed(&mut self, id: &str, now: Mono) {
        self.exits.push(id.to_owned());
        self.committed(now);
    }

    /// The pod has taken a turn: what its record says of ends is committed.
    pub(super) fn turn_committed(&mut self, uid: &str, now: Mono) {
        self.turned(uid).iter().for_each(|id| self.exit_committed(id, now));
    }

    /// Syncs what is due. Gives when to come again if no report may leave before.
    pub(super) fn sync_due(
        &mut self,
        cx: &mut Context,
        monitor: &MonitorClient,
    ) -> Result<Result<Leave, Mono>, StoreError> {
        match self.wait(&cx.store, cx.mono()) {
            Some(due) => Ok(Err(due)),
            None => self.sync_now(cx, monitor).map(Ok),
        }
    }

    pub(super) fn sync_now(&mut self, cx: &mut Context, monitor: &MonitorClient) -> Result<Leave, StoreError> {
        let now = cx.mono();
        let (leave, exits) = self.sync(&mut cx.store, now)?;
        for id in exits {
            let monitor = monitor.clone();
            let forget = async move {
                if let Err(error) = monitor.forget(&id).await {
                    log::debug!("exit record of {id} stays: {error}");
                }
            };
            cx.tasks.spawn(forget).detach();
        }
        Ok(leave)
    }
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
        ends.committed(Mono(1_000));
        let due = ends.wait(&store, Mono(1_000)).unwrap();
        assert!(due > Mono(1_000) && ends.wait(&store, due).is_none(), "others that end at once come along");

        // A medium that takes nothing: SQLite's log cannot even be opened for it.
        let log = dir.path().join("store.db-wal");
        fs::rename(&log, dir.path().join("kept")).unwrap();
        std::os::unix::fs::symlink(&log, &log).unwrap();
        for _ in 0..2 {
            assert!(ends.sync(&mut store, due).is_err(), "neither may leave");
            assert!(!store.is_synced() && ends.due.is_some());
        }
        fs::rename(dir.path().join("kept"), &log).unwrap();
        let (_leave, exits) = ends.sync(&mut store, due).unwrap();
        assert_eq!(exits, ["id"]);
        assert!(store.is_synced() && ends.wait(&store, due).is_none());

        // What another commit's sync has taken along waits for nothing; what comes soon after a slow one waits longer.
        ends.rest = Mono(9_000);
        commit(&mut store);
        ends.committed(Mono(5_000));
        assert_eq!(ends.wait(&store, Mono(5_000)), Some(Mono(9_000)));
        store.write_durable(|writer| writer.set_fact(Fact::Cluster, "other")).unwrap();
        assert_eq!(ends.wait(&store, Mono(5_000)), None);
    }
}
