//! The window of outbox rows that are on their way up.

use crate::message::Report;
use std::collections::{HashSet, VecDeque};

/// Rows sent or queued and not acknowledged.
pub(crate) const WINDOW: usize = 64;

/// The window for reports is full; offer the row again after an acknowledgement.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{WINDOW} reports are unacknowledged")]
pub struct WindowFull;

#[derive(Debug, Default)]
pub(super) struct Reports {
    queued: VecDeque<(u64, Report)>,
    unsettled: HashSet<u64>,
}

impl Reports {
    pub(super) fn room(&self) -> usize {
        WINDOW - self.unsettled.len()
    }

    /// A row already on its way is not sent twice.
    pub(super) fn push(&mut self, id: u64, report: Report) -> Result<(), WindowFull> {
        if self.unsettled.contains(&id) {
            return Ok(());
        }
        if self.room() == 0 {
            return Err(WindowFull);
        }
        self.unsettled.insert(id);
        self.queued.push_back((id, report));
        Ok(())
    }

    pub(super) fn next(&mut self) -> Option<(u64, Report)> {
        self.queued.pop_front()
    }

    /// True if the row was on its way.
    pub(super) fn settle(&mut self, id: u64) -> bool {
        self.unsettled.remove(&id)
    }
}
