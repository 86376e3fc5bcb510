//! Bounds what a tar may say of an entry before the entry itself: long names, PAX headers, maps of sparse files. The reader
//! of tars keeps all of it in memory, whatever size it claims.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Bytes of all records before one entry. Attributes of a file are at most 64 KiB each (xattr(7)).
const MOST: u64 = 1 << 20;

/// The bytes that may be read before the next entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    /// The next entry is looked for.
    pub(super) fn records(&self) {
        self.0.set(MOST);
    }

    /// Its content is read, which is counted elsewhere.
    pub(super) fn content(&self) {
        self.0.set(u64::MAX);
    }
}

/// A tar that is read within the allowance.
pub(super) struct Bounded<R> {
    pub(super) tar: R,
    pub(super) allowance: Allowance,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.0.get();
        if left == 0 {
            return Err(io::Error::other("the records before an entry (long names, PAX headers) have more than 1 MiB"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.tar.read(&mut buffer[..most])?;
        self.allowance.0.set(left.saturating_sub(read as u64));
        Ok(read)
    }
}
