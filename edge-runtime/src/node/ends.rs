//! Ends of containers and pods on their way to the cloud: onto the medium first.
//!
//! An end that the API was told of is never run again, whatever a power cut takes. Commits of a pod's turn are not
//! synced one by one; those that hold an end are synced together a moment later, and until then no report leaves and
//! the monitor keeps its exit records. What the pod itself does next (a restart) waits for nothing.

use std::time::{Duration, Instant};

use super::Node;
use crate::pod::clock::Mono;
use crate::store::StoreError;

/// A pod's containers end at once.
const GATHER: Duration = Duration::from_millis(10);
/// On a slow medium the loop spends no more than one part in so many with waiting for it...
const SHARE: u32 = 10;
/// ...unless reports would wait for longer than this.
const LONGEST: Duration = Duration::from_secs(2);

/// What waits for the next sync.
#[derive(Default)]
pub(super) struct Ends {
    due: Option<Mono>,
    /// Not sooner than this, if it can be helped.
    rest: Mono,
    /// Exits whose records the monitor may forget then.
    exits: Vec<String>,
}

impl Node {
    /// A commit holds an end: it goes to the medium before anything is told.
    pub(super) fn end_committed(&mut self) {
        let soon = self.mono().after(GATHER).max(self.ends.rest);
        self.ends.due.get_or_insert(soon);
    }

    /// The exit is committed: once that is on the medium, the monitor may forget it.
    pub(super) fn exit_committed(&mut self, id: &str) {
        self.ends.exits.push(id.to_owned());
        self.end_committed();
    }

    /// Syncs what is due. Gives when to come again; none if reports may leave.
    pub(super) fn sync_ends(&mut self, now: Mono) -> Result<Option<Mono>, StoreError> {
        match self.ends.due {
            None => return Ok(None),
            Some(due) if now < due && !self.store.is_synced() => return Ok(Some(due)),
            Some(_) => self.sync_ends_now()?,
        }
        Ok(None)
    }

    pub(super) fn sync_ends_now(&mut self) -> Result<(), StoreError> {
        let began = Instant::now();
        self.store.sync()?;
        self.ends.rest = self.mono().after((began.elapsed() * SHARE).min(LONGEST));
        self.ends.due = None;
        for id in std::mem::take(&mut self.ends.exits) {
            let monitor = self.monitor.clone();
            self.executor
                .spawn(async move {
                    if let Err(error) = monitor.forget(&id).await {
                        log::debug!("exit record of {id} stays: {error}");
                    }
                })
                .detach();
        }
        Ok(())
    }
}
