//! How far a page of the storage goes: the objects that it has, and the bytes of all that is read for it. Pure.

/// Maximum extent of one page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// Maximum number of selected objects.
    pub items: usize,
    /// Maximum bytes of all objects that are read; the object that exceeds it is the last.
    pub bytes: usize,
}

/// Extent of a page so far.
#[derive(Debug, Default)]
pub(super) struct Walked {
    bytes: usize,
}

/// What looking at any object counts for beside its bytes.
const LOOK: usize = 256;
/// What walking over a change counts for that says nothing of the past.
const ROW: usize = 32;

impl Walked {
    pub(super) fn over(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(LOOK);
    }

    pub(super) fn over_change(&mut self) {
        self.bytes = self.bytes.saturating_add(ROW);
    }

    /// Counts an object that is read and not looked at.
    pub(super) fn read(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether a page with this many selected objects is full.
    pub(super) fn enough(&self, most: &Most, selected: usize) -> bool {
        selected >= most.items || self.is_long(most)
    }

    pub(super) fn is_long(&self, most: &Most) -> bool {
        self.bytes >= most.bytes
    }
}
