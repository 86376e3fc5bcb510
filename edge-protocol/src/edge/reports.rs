//! The window of outbox rows that are on their way up, by number and by bytes.

use crate::frame::{Message, encode};
use crate::message::{Report, ToCloud};
use std::collections::{HashMap, VecDeque};

/// Rows sent or queued and not acknowledged.
const WINDOW: usize = 64;

/// Bytes of those rows; one more row is let through below it.
const WINDOW_BYTES: usize = 512 << 10;

/// The window for reports is full; offer the row again after an acknowledgement.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("too many reports are unacknowledged")]
pub struct WindowFull;

/// What became of a row.
pub(super) enum Pushed {
    Queued,
    /// It can never be sent: longer than any message may be.
    TooLarge(usize),
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Texts of messages.
    queued: VecDeque<String>,
    /// Sizes by row.
    unsettled: HashMap<u64, usize>,
    bytes: usize,
}

impl Reports {
    pub(super) fn room(&self) -> usize {
        if self.bytes >= WINDOW_BYTES { 0 } else { WINDOW - self.unsettled.len() }
    }

    /// A row already on its way is not sent twice.
    pub(super) fn push(&mut self, id: u64, report: Report) -> Result<Pushed, WindowFull> {
        if self.unsettled.contains_key(&id) {
            return Ok(Pushed::Queued);
        }
        if self.room() == 0 {
            return Err(WindowFull);
        }
        let text = encode(&ToCloud::Up { id, report });
        let size = text.len();
        if size > ToCloud::MAX {
            return Ok(Pushed::TooLarge(size));
        }
        self.unsettled.insert(id, size);
        self.bytes += size;
        self.queued.push_back(text);
        Ok(Pushed::Queued)
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.queued.pop_front()
    }

    /// True if the row was on its way.
    pub(super) fn settle(&mut self, id: u64) -> bool {
        let size = self.unsettled.remove(&id);
        self.bytes -= size.unwrap_or_default();
        size.is_some()
    }
}
