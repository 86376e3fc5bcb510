//! The pages of a database file with the newer ones of its log (<https://sqlite.org/fileformat2.html>, 1 and 4). Reads
//! page by page, so that an unreadable block of the disk costs only that page. Does not know the content of pages.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// SQLite's default, which every store has.
pub(super) const PAGE: usize = 4096;
/// Header sizes of a log and of each of its frames, in bytes.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// "wal-format": the last bit says how its checksums read words.
const LOG_MAGIC: u32 = 0x377f_0682;

pub(super) type Page = [u8; PAGE];

pub(super) struct Pages {
    file: File,
    log: Option<File>,
    /// Where in the log the newest committed state of a page begins.
    logged: HashMap<u32, u64>,
    count: u32,
}

impl Pages {
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path, log: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let whole = u32::try_from(file.metadata()?.len() / PAGE as u64).unwrap_or(u32::MAX);
        let mut pages = Self { file, log: File::open(log).ok(), logged: HashMap::new(), count: whole };
        pages.read_log();
        let last = pages.logged.keys().copied().max().unwrap_or(0);
        pages.count = pages.count.max(last);
        Ok(pages)
    }

    /// Pages are numbered from 1 to this.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// `None` for a page that does not exist or cannot be read.
    pub(super) fn get(&self, number: u32) -> Option<Page> {
        let mut page = [0; PAGE];
        match (self.logged.get(&number), &self.log) {
            (Some(at), Some(log)) => log.read_exact_at(&mut page, *at).ok()?,
            _ => {
                let index = u64::from(number.checked_sub(1).filter(|_| number <= self.count)?);
                self.file.read_exact_at(&mut page, index.checked_mul(PAGE as u64)?).ok()?;
            }
        }
        Some(page)
    }

    /// Reads the log like SQLite: frames count up to the first incomplete one, and of these those before a commit.
    fn read_log(&mut self) {
        let Some(log) = &self.log else { return };
        let mut header = [0; LOG_HEADER];
        if log.read_exact_at(&mut header, 0).is_err() {
            return;
        }
        let magic = be32(&header, 0);
        if magic & !1 != LOG_MAGIC || be32(&header, 8) as usize != PAGE {
            return;
        }
        let big_endian = magic & 1 == 1;
        let mut sum = checksum(big_endian, (0, 0), &header[..24]);
        if sum != (be32(&header, 24), be32(&header, 28)) {
            return;
        }
        let (mut at, mut uncommitted) = (LOG_HEADER as u64, Vec::new());
        loop {
            let mut frame = [0; FRAME_HEADER];
            let mut page = [0; PAGE];
            let body = at + FRAME_HEADER as u64;
            if log.read_exact_at(&mut frame, at).is_err() || log.read_exact_at(&mut page, body).is_err() {
                return;
            }
            sum = checksum(big_endian, checksum(big_endian, sum, &frame[..8]), &page);
            let number = be32(&frame, 0);
            if frame[8..16] != header[16..24] || sum != (be32(&frame, 16), be32(&frame, 20)) || number == 0 {
                return;
            }
            uncommitted.push((number, body));
            let pages_after_commit = be32(&frame, 4);
            if pages_after_commit != 0 {
                self.logged.extend(uncommitted.drain(..));
                self.logged.retain(|number, _| *number <= pages_after_commit);
            }
            at = body + PAGE as u64;
        }
    }
}

/// Words of two, each added to the other's sum.
fn checksum(big_endian: bool, (mut s0, mut s1): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let word = |bytes: &[u8], at: usize| if big_endian { be32(bytes, at) } else { be32(bytes, at).swap_bytes() };
    for pair in bytes.chunks_exact(8) {
        s0 = s0.wrapping_add(word(pair, 0)).wrapping_add(s1);
        s1 = s1.wrapping_add(word(pair, 4)).wrapping_add(s0);
    }
    (s0, s1)
}

/// The big-endian word at `at`; zero beyond the end.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_be_bytes(*word))
}
