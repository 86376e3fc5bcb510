//! The window of outbox rows that are on their way up, by number, by bytes, and by what they take at the bridge.

use crate::frame::{MAX_REPORT_WEIGHT, Message, encode, too_large};
use crate::message::{Report, ToCloud};
use crate::weight::weight;
use std::collections::{HashMap, VecDeque};

/// Rows sent or queued and not acknowledged.
const WINDOW: usize = 64;

/// Rows of those that events may be. The API takes events of one node slowly once there were many; statuses of pods must
/// not wait for them.
const WINDOW_EVENTS: usize = 48;

/// Bytes of those rows; one more row is let through below it.
const WINDOW_BYTES: usize = 512 << 10;

/// [Weight](crate::weight) of those rows; one more row is let through below it. A bridge ends the connection of a node
/// that exceeds [`MAX_REPORT_WEIGHT`].
const WINDOW_WEIGHT: usize = MAX_REPORT_WEIGHT - ToCloud::MAX_WEIGHT;

/// The window for reports is full; offer the row again after an acknowledgement.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("too many reports are unacknowledged")]
pub struct WindowFull;

/// What became of a row.
pub(super) enum Pushed {
    Queued,
    /// It can never be sent, and why: larger than any message may be.
    TooLarge(String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: usize,
    weight: usize,
    is_event: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Texts of messages.
    queued: VecDeque<String>,
    /// Sizes by row.
    unsettled: HashMap<u64, Size>,
    bytes: usize,
    weight: usize,
    events: usize,
}

impl Reports {
    pub(super) fn room(&self) -> usize {
        let full = self.bytes >= WINDOW_BYTES || self.weight >= WINDOW_WEIGHT;
        if full { 0 } else { WINDOW - self.unsettled.len() }
    }

    /// A row already on its way is not sent twice.
    pub(super) fn push(&mut self, id: u64, report: Report) -> Result<Pushed, WindowFull> {
        if self.unsettled.contains_key(&id) {
            return Ok(Pushed::Queued);
        }
        let is_event = matches!(report, Report::Event { .. });
        if self.room() == 0 || (is_event && self.events >= WINDOW_EVENTS) {
            return Err(WindowFull);
        }
        let text = encode(&ToCloud::Up { id, report });
        if let Some(why) = too_large::<ToCloud>(&text) {
            return Ok(Pushed::TooLarge(why));
        }
        let size = Size { bytes: text.len(), weight: weight(&text), is_event };
        self.unsettled.insert(id, size);
        self.bytes += size.bytes;
        self.weight += size.weight;
        self.events += usize::from(is_event);
        self.queued.push_back(text);
        Ok(Pushed::Queued)
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.queued.pop_front()
    }

    /// True if the row was on its way.
    pub(super) fn settle(&mut self, id: u64) -> bool {
        let Some(size) = self.unsettled.remove(&id) else { return false };
        self.bytes -= size.bytes;
        self.weight -= size.weight;
        self.events -= usize::from(size.is_event);
        true
    }
}
