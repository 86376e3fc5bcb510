//! Writes one container's log file and rotates it. Used by the monitor alone.
//!
//! The container continues whatever the disk does. Lines that cannot be written are dropped and counted, and the log
//! reports the number when it can be written again. That may be a new file at the same path, perhaps on another medium.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cri::{LineSplitter, Stream, entry};
use super::folder::{Folder, open_file};
use super::limit::Limit;
use super::losses::Losses;
use super::rotate;
use sampan_sys::files::unless_missing;

/// Write once this much is formatted, so that a flood of short lines needs no large buffer.
const FLUSH_AT: usize = 32 * 1024;

/// Pause between attempts to write, open or rotate a log that would not be.
const AGAIN: Duration = Duration::from_secs(1);

/// Interval of checks whether the path still leads to the open file: something may have been mounted over it.
const LOOK: Duration = Duration::from_secs(10);

/// A log file, with the unfinished lines of both streams.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    /// `None` while it cannot be opened, and after a failed write: a file of a failed file system never accepts writes
    /// again, and would keep that file system from being unmounted.
    file: Option<File>,
    /// Device and inode of the file that was open last, and when its path was seen to lead to it.
    identity: Option<(u64, u64)>,
    seen: Instant,
    /// What of the file is whole lines.
    size: u64,
    /// There is half a batch behind `size`, which could not be taken back.
    torn: bool,
    max_bytes: u64,
    max_files: u32,
    stdout: LineSplitter,
    stderr: LineSplitter,
    limit: Option<Limit>,
    lost: Losses,
    since: Instant,
    /// Writing, opening or rotating failed, and why: not before then.
    again: Option<(Instant, String)>,
}

impl LogWriter {
    /// Opens or continues `path`. A last line torn by a crash is closed, so that the next one starts clean.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path, max_bytes: u64, max_files: u32) -> io::Result<Self> {
        let (log, opened) = Self::open_some_time(path, max_bytes, max_files);
        opened.map(|()| log)
    }

    /// Same as [`LogWriter::open`] for a running container: if the log cannot be opened now, it is tried again when
    /// there is output, and lost output is counted.
    pub fn open_some_time(path: &Path, max_bytes: u64, max_files: u32) -> (Self, io::Result<()>) {
        let mut log = Self::closed(path, max_bytes, max_files);
        let opened = log.reopen();
        (log, opened)
    }

    fn closed(path: &Path, max_bytes: u64, max_files: u32) -> Self {
        Self {
            path: path.to_path_buf(),
            file: None,
            identity: None,
            seen: Instant::now(),
            size: 0,
            torn: false,
            max_bytes: max_bytes.max(1),
            max_files: max_files.max(1),
            stdout: LineSplitter::default(),
            stderr: LineSplitter::default(),
            limit: None,
            lost: Losses::default(),
            since: Instant::now(),
            again: None,
        }
    }

    /// Maximum rate; `None` for no limit.
    #[must_use]
    pub fn limited(mut self, bytes_per_second: Option<u64>) -> Self {
        self.limit = bytes_per_second.map(Limit::new);
        self
    }

    /// Logs what the container wrote. `scratch` is borrowed space, empty before and after.
    pub fn write(&mut self, stream: Stream, input: &[u8], stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        let mut outcome = Ok(());
        // In pieces, because a piece of nothing but newlines grows forty-fold.
        for piece in input.chunks(2048) {
            self.splitter(stream).push(stamp, stream, piece, scratch);
            if scratch.len() >= FLUSH_AT {
                outcome = outcome.and(self.flush(stamp, scratch));
            }
        }
        outcome.and(self.flush(stamp, scratch))
    }

    /// Both streams have ended: unfinished lines go out.
    pub fn finish(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        self.stdout.finish(stamp, Stream::Stdout, scratch);
        self.stderr.finish(stamp, Stream::Stderr, scratch);
        let outcome = self.flush(stamp, scratch);
        if let Some(notice) = self.limit.as_mut().and_then(Limit::notice) {
            entry(stamp, Stream::Stderr, b'F', notice.as_bytes(), scratch);
        }
        outcome.and(self.put(stamp, scratch))
    }

    fn splitter(&mut self, stream: Stream) -> &mut LineSplitter {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Writes the lines that the limit permits, after a line about dropped ones.
    fn flush(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        if let Some(limit) = self.limit.as_mut().filter(|_| !scratch.is_empty()) {
            let admitted = limit.admit(scratch, self.since.elapsed());
            scratch.truncate(admitted.bytes);
            if let Some(notice) = admitted.notice {
                let mut with_notice = Vec::with_capacity(notice.len() + scratch.len());
                entry(stamp, Stream::Stderr, b'F', notice.as_bytes(), &mut with_notice);
                with_notice.append(scratch);
                *scratch = with_notice;
            }
        }
        self.put(stamp, scratch)
    }

    /// Writes a batch. A failed write loses whole batches only: lines are never torn, and the container never waits.
    /// `scratch` is empty afterwards in any case: all containers share it, so it must not grow, or carry lines of one
    /// container into the log of another.
    fn put(&mut self, stamp: &str, scratch: &mut Vec<u8>) -> io::Result<()> {
        let written = self.try_put(stamp, scratch);
        if let Err(error) = &written {
            self.lost.add(scratch, error);
        }
        scratch.clear();
        // The lines are there, or counted: that the file could not be changed for the next ones is another matter.
        written.and_then(|()| self.rotate_if_due(stamp))
    }

    fn try_put(&mut self, stamp: &str, batch: &[u8]) -> io::Result<()> {
        let said = self.lost.notice();
        if batch.is_empty() && said.is_none() {
            return Ok(());
        }
        if self.file.is_some() && self.seen.elapsed() >= LOOK {
            self.look();
        }
        if self.file.is_none() {
            self.wait_over()?;
            self.reopen().inspect_err(|error| self.wait(error))?;
        }
        if self.size >= self.max_bytes.saturating_mul(2) {
            self.rotate_if_due(stamp)?;
            if self.size > 0 {
                // Its folder may be gone, or another one.
                self.file = None;
                self.wait_over()?;
                return Err(io::Error::other("the log cannot be rotated"));
            }
        }
        let Some(file) = self.file.as_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let mut notice = Vec::new();
        if let Some(text) = said {
            entry(stamp, Stream::Stderr, b'F', text.as_bytes(), &mut notice);
        }
        match file.write_all(&notice).and_then(|()| file.write_all(batch)) {
            Ok(()) => {
                self.size += (notice.len() + batch.len()) as u64;
                self.lost.told();
                Ok(())
            }
            Err(error) => {
                // Refused, too, on a file system that has turned read-only.
                self.torn = file.set_len(self.size).is_err();
                self.file = None;
                self.wait(&error);
                Err(error)
            }
        }
    }

    /// Readers look for the log under its path.
    fn look(&mut self) {
        self.seen = Instant::now();
        let there = fs::symlink_metadata(&self.path).ok().map(|meta| identity(&meta));
        if there != self.identity {
            self.file = None;
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        let folder = Folder::make(&self.path)?;
        let mut file = open_file(&folder.path().join(self.name()), true)?;
        let meta = file.metadata()?;
        let identity = Some(identity(&meta));
        if self.torn && self.identity == identity && meta.len() > self.size {
            file.set_len(self.size)?;
        }
        let mut size = file.seek(SeekFrom::End(0))?;
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(size - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                size += 1;
            }
        }
        (self.file, self.identity, self.seen) = (Some(file), identity, Instant::now());
        (self.size, self.torn, self.again) = (size, false, None);
        Ok(())
    }

    fn wait(&mut self, why: &io::Error) {
        self.again = Some((Instant::now() + AGAIN, why.to_string()));
    }

    fn wait_over(&self) -> io::Result<()> {
        match &self.again {
            Some((at, why)) if Instant::now() < *at => Err(io::Error::other(why.clone())),
            _ => Ok(()),
        }
    }

    fn rotate_if_due(&mut self, stamp: &str) -> io::Result<()> {
        if self.size < self.max_bytes || self.wait_over().is_err() {
            return Ok(());
        }
        self.again = None;
        self.rotate(stamp).inspect_err(|error| self.wait(error))
    }

    /// Rotates the file. Until that succeeds, the file continues and may become twice as long.
    fn rotate(&mut self, stamp: &str) -> io::Result<()> {
        let folder = Folder::of(&self.path)?;
        let path = folder.path().join(self.name());
        let old = rotate::rotated_files(&path);
        let keep = (self.max_files as usize).saturating_sub(2);
        for path in old.iter().take(old.len().saturating_sub(keep)) {
            unless_missing(fs::remove_file(path))?;
        }
        if self.max_files == 1 {
            self.file.as_ref().map_or(Ok(()), |file| file.set_len(0))?;
        } else {
            let newest = old.last().and_then(|path| path.file_name()?.to_str());
            let rotated = folder.path().join(rotate::rotated_name(&self.name(), stamp, newest));
            // Absent: an attempt moved it, but could not create the new file or undo the move.
            unless_missing(fs::rename(&path, &rotated))?;
            match open_file(&path, true) {
                Ok(file) => {
                    self.identity = file.metadata().ok().map(|meta| identity(&meta));
                    self.file = Some(file);
                }
                Err(error) => {
                    // No inode is left, for one: readers look for the current file under its name.
                    let _ = fs::rename(&rotated, &path);
                    return Err(error);
                }
            }
        }
        (self.size, self.torn) = (0, false);
        Ok(())
    }

    fn name(&self) -> String {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("0.log").to_owned()
    }
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests;
