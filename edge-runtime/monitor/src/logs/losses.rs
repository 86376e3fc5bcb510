//! Lost lines, until the log can report their number. Pure.

use std::io;

/// Counts what a log has lost since it was last written.
#[derive(Debug, Default)]
pub(super) struct Losses {
    lines: u64,
    /// Why, of the first of them.
    why: String,
}

impl Losses {
    /// All lines of `batch` are lost.
    pub(super) fn add(&mut self, batch: &[u8], why: &io::Error) {
        if self.lines == 0 {
            self.why = why.to_string();
        }
        self.lines = self.lines.saturating_add(count_lines(batch));
    }

    /// What to write into the log, if anything was lost.
    pub(super) fn notice(&self) -> Option<String> {
        (self.lines > 0)
            .then(|| format!("[edge-runtime: {} lines dropped, they could not be written: {}]", self.lines, self.why))
    }

    /// It has been said.
    pub(super) fn told(&mut self) {
        *self = Self::default();
    }
}

/// Number of lines in formatted text, where each line has its end.
pub(super) fn count_lines(batch: &[u8]) -> u64 {
    batch.iter().filter(|byte| **byte == b'\n').count() as u64
}
