//! Reads one container's log as `kubectl logs` wants it: tail, since, limit, timestamps, follow across rotation.
//!
//! As the kubelet does (pkg/kubelet/kuberuntime/logs), with one thing more: `tail` and `since` look back into
//! rotated files when the current one does not reach far enough. Without them, reading starts with the current file.

mod follow;
mod options;
mod tail;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::sys::files::unless_missing;
use follow::Watch;
use sampan_monitor::logs::cri;
use sampan_monitor::logs::folder::{Folder, open_file};

pub use options::{Chunk, LogError, LogOptions};

/// Bytes per read from disk.
const READ_SIZE: usize = 16 * 1024;
/// This program writes no longer line, so a longer one is not from a log.
const MAX_LINE: usize = 4 * cri::MAX_PART;

/// Incremental reader of one attempt's log.
pub struct LogReader {
    /// Its name, for messages.
    name: PathBuf,
    /// What keeps `path` good.
    _folder: Folder,
    /// The current log file; its content moves away with each rotation.
    path: PathBuf,
    options: LogOptions,
    /// `options.since` in the form that the files have, so that text can be compared.
    since: Option<String>,
    /// Changes of the folder; only when following.
    watch: Option<Watch>,
    /// The container does not write any more.
    ended: bool,
    file: Option<File>,
    /// Files to read after `file`.
    next_files: VecDeque<PathBuf>,
    /// Read from the file, not yet taken apart; `taken` bytes of it are done.
    buffer: Vec<u8>,
    taken: usize,
    /// The line so far given out has not ended.
    within_line: bool,
    /// Bytes still allowed by `limit_bytes`.
    remaining: Option<u64>,
    /// Remaining entries of `tail_lines`, without following: a container that logs faster than it is read must not make
    /// the tail endless.
    left: Option<u64>,
}

impl LogReader {
    /// Opens `directory/ATTEMPT.log` (the container's log folder). A missing file is an error unless following.
    ///
    /// # Errors
    /// The file cannot be read, or the folder cannot be watched.
    pub fn open(directory: &Path, attempt: u32, options: LogOptions) -> Result<Self, LogError> {
        let file_name = format!("{attempt}.log");
        let name = directory.join(&file_name);
        let error = |source| LogError::Io { path: name.clone(), source };
        let folder = Folder::of(&name).map_err(error)?;
        let path = folder.path().join(file_name);
        // Before the first read, so that nothing happens unseen.
        let watch = options.follow.then(|| Watch::new(&folder.path())).transpose().map_err(error)?;
        let (files, offset) = tail::start(&path, &options).map_err(error)?;
        let mut next_files = VecDeque::from(files);
        let file = match next_files.pop_front() {
            Some(first) => open(&first, options.follow).map_err(error)?,
            None => None,
        };
        if let Some(mut file) = file.as_ref() {
            file.seek(SeekFrom::Start(offset)).map_err(error)?;
        }
        Ok(Self {
            since: options.since.map(|t| format!("{t:.9}")),
            remaining: options.limit_bytes,
            left: options.tail_lines.filter(|_| !options.follow),
            name,
            _folder: folder,
            path,
            options,
            watch,
            ended: false,
            file,
            next_files,
            buffer: Vec::new(),
            taken: 0,
            within_line: false,
        })
    }

    /// The next output, at most about `max` bytes. Quick: reads at most a few buffers from disk.
    ///
    /// # Errors
    /// Reading failed.
    pub fn next_chunk(&mut self, max: usize) -> Result<Chunk, LogError> {
        let mut out = Vec::new();
        while out.len() < max.max(1) {
            if self.remaining == Some(0) || self.left == Some(0) {
                return Ok(if out.is_empty() { Chunk::End } else { Chunk::Data(out) });
            }
            if let Some(line) = self.take_line() {
                self.give(&line, &mut out);
                continue;
            }
            if !self.fill()? {
                return Ok(match (out.is_empty(), self.options.follow && !self.ended) {
                    (false, _) => Chunk::Data(out),
                    (true, true) => Chunk::Wait,
                    (true, false) => Chunk::End,
                });
            }
        }
        Ok(Chunk::Data(out))
    }

    /// The container has ended and its log is complete: following ends when all is read.
    pub fn container_ended(&mut self) {
        self.ended = true;
    }

    /// Resolves when the log may have grown or been rotated since the last [`Chunk::Wait`].
    ///
    /// # Errors
    /// The folder can no longer be watched.
    pub async fn changed(&mut self) -> Result<(), LogError> {
        match &mut self.watch {
            Some(watch) => watch.changed().await.map_err(|source| LogError::Io { path: self.name.clone(), source }),
            None => Ok(()),
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.buffer[self.taken..];
        let end = rest.iter().position(|&b| b == b'\n')?;
        let line = rest[..end].to_vec();
        self.taken += end + 1;
        Some(line)
    }

    /// Writes one entry as the options want it.
    fn give(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(entry) = cri::parse(line) else { return };
        self.left = self.left.map(|left| left - 1);
        if self.options.stream.is_some_and(|s| s != entry.stream) {
            return;
        }
        if self.since.as_ref().is_some_and(|since| entry.stamp < since.as_str()) {
            return;
        }
        let start = out.len();
        if self.options.timestamps && !self.within_line {
            out.extend_from_slice(entry.stamp.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(entry.content);
        if !entry.partial {
            out.push(b'\n');
        }
        self.within_line = entry.partial;
        if let Some(remaining) = &mut self.remaining {
            let room = usize::try_from(*remaining).unwrap_or(usize::MAX);
            out.truncate(start.saturating_add(room));
            *remaining -= (out.len() - start) as u64;
        }
    }

    /// Reads more into the buffer, going on to newer files; false at the end of what there is.
    fn fill(&mut self) -> Result<bool, LogError> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if self.buffer.len() > MAX_LINE {
            self.buffer.clear();
        }
        let error = |source| LogError::Io { path: self.name.clone(), source };
        loop {
            if let Some(file) = &mut self.file {
                let held = self.buffer.len();
                self.buffer.resize(held + READ_SIZE, 0);
                let read = file.read(&mut self.buffer[held..]);
                self.buffer.truncate(held + *read.as_ref().unwrap_or(&0));
                if read.map_err(error)? > 0 {
                    return Ok(true);
                }
            }
            if let Some(next) = self.next_files.pop_front() {
                // A line torn at the end of a file has no second half in the next.
                self.buffer.clear();
                self.file = open(&next, self.options.follow).map_err(error)?;
                if self.file.is_some() {
                    continue;
                }
            }
            if !self.options.follow {
                return Ok(false);
            }
            self.next_files = follow::newer_files(self.file.as_ref(), &self.path).map_err(error)?.into();
            if self.next_files.is_empty() {
                return Ok(false);
            }
            // The old file was renamed, so nothing more is written to it. But bytes may have been added since the last
            // read: read once more, then continue with the new file.
        }
    }
}

/// Opens a file. When following, a missing file is not an error: rotation may be ahead.
fn open(path: &Path, following: bool) -> io::Result<Option<File>> {
    let file = open_file(path, false);
    if following { unless_missing(file) } else { file.map(Some) }
}
