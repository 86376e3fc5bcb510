//! Devices that mappers hold, recorded beside the socket at once: the successor of a killed helper finds them there.
//! Knows not what they mean.
//!
//! The store is on the medium and is written rarely. What a mapper holds need not survive a reboot, because a mapper
//! does not survive it. But a moved device must not be moved again because a helper died. So the journal is in the
//! folder of the socket, which is in memory. It has one row per line; the last row of a name counts.

use std::collections::BTreeMap;
use std::fs::{File, rename};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sampan_devices_control::Row;
use sampan_sys::gather::Gather;

/// Bytes of lines that no longer count before they are left out.
const STALE: u64 = 128 << 10;
/// Bytes that are read: more than all mappers of a node have rows.
const MOST: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// `None` if it cannot be written.
    file: Option<File>,
    bytes: u64,
    /// Size of the valid rows when it was last rewritten, in bytes.
    fresh: u64,
    /// Rows of an earlier process.
    left: BTreeMap<String, String>,
}

impl Journal {
    /// The one of the helper that serves at this socket.
    pub(crate) fn open(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".mappers");
        let path = PathBuf::from(path);
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut text));
        if let Err(error) = read.as_ref()
            && error.kind() != io::ErrorKind::NotFound
        {
            log::warn!("{}: what mappers hold is as the store has it: {error}", path.display());
        }
        // A process that is killed during a write leaves half a line.
        let rows = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let left = rows.map(|Row { uid, record }| (uid, record)).into_map();
        Self { path, file: None, bytes: 0, fresh: 0, left }
    }

    /// Takes the rows of an earlier process. An empty record means deleted, whatever the store says.
    pub(crate) fn take_left(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.left)
    }

    /// Before anything else is done.
    pub(crate) fn note(&mut self, rows: &[Row]) {
        let (Some(file), false) = (&mut self.file, rows.is_empty()) else { return };
        let text = lines(rows);
        // One write appends the whole line: a reader finds all of it or nothing.
        if let Err(error) = file.write_all(&text) {
            self.failed(&error);
        }
        self.bytes += text.len() as u64;
    }

    pub(crate) const fn is_long(&self) -> bool {
        self.file.is_some() && self.bytes > self.fresh * 2 + STALE
    }

    /// Starts with exactly these rows.
    pub(crate) fn begin(&mut self, rows: &[Row]) {
        let text = lines(rows);
        let mut beside = self.path.as_os_str().to_owned();
        beside.push(".new");
        let write = || {
            let mut file = File::options().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&text)?;
            rename(&beside, &self.path)?;
            Ok(file)
        };
        match write() {
            Ok(file) => self.file = Some(file),
            Err(error) => return self.failed(&error),
        }
        (self.bytes, self.fresh) = (text.len() as u64, text.len() as u64);
    }

    /// Deletes the journal: half of it may be worse than none. The store gets all rows a second later.
    fn failed(&mut self, error: &io::Error) {
        log::warn!("{}: what mappers hold is noted in the store alone: {error}", self.path.display());
        self.file = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

fn lines(rows: &[Row]) -> Vec<u8> {
    let mut text = Vec::new();
    for row in rows {
        // Strings alone, which can all be written.
        let _ = serde_json::to_writer(&mut text, row);
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(uid: &str, record: &str) -> Row {
        Row { uid: uid.into(), record: record.into() }
    }

    #[test]
    fn last_row_counts_and_half_a_line_is_ignored() {
        let folder = tempfile::tempdir().expect("temp dir");
        let socket = folder.path().join("devices.sock");
        let mut journal = Journal::open(&socket);
        assert!(journal.take_left().is_empty());
        journal.note(&[row("before", "1")]);
        journal.begin(&[row("a", "1"), row("b", "1")]);
        journal.note(&[row("a", "2")]);
        journal.note(&[row("b", ""), row("c", "\"\n")]);
        let path = folder.path().join("devices.sock.mappers");
        let mut text = std::fs::read(&path).expect("a file");
        text.extend(b"{\"uid\":\"a\",\"rec");
        std::fs::write(&path, text).expect("written");
        let left = Journal::open(&socket).take_left();
        let left: Vec<_> = left.iter().map(|(uid, record)| (uid.as_str(), record.as_str())).collect();
        assert_eq!(left, [("a", "2"), ("b", ""), ("c", "\"\n")]);
    }

    #[test]
    fn long_journal_is_rewritten() {
        let folder = tempfile::tempdir().expect("temp dir");
        let socket = folder.path().join("devices.sock");
        let mut journal = Journal::open(&socket);
        journal.begin(&[]);
        let mut anew = 0;
        for n in 0..100_000 {
            journal.note(&[row("mapper/1/default/t1", &format!("{n:016x}"))]);
            if journal.is_long() {
                journal.begin(&[row("mapper/1/default/t1", &format!("{n:016x}"))]);
                anew += 1;
            }
        }
        let bytes = std::fs::metadata(folder.path().join("devices.sock.mappers")).expect("a file").len();
        assert!(bytes <= STALE + 200 && anew < 100, "{bytes} bytes, {anew} times anew");
        assert_eq!(Journal::open(&socket).take_left().values().collect::<Vec<_>>(), [&format!("{:016x}", 99_999)]);
    }

    #[test]
    fn missing_journal_is_empty() {
        let mut journal = Journal::open(Path::new("/proc/none/devices.sock"));
        journal.begin(&[row("a", "1")]);
        journal.note(&[row("a", "2")]);
        assert!(!journal.is_long() && journal.take_left().is_empty());
    }
}
