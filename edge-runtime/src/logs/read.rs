//! Reads one container's log as `kubectl logs` wants it: tail, since, limit, timestamps, follow across rotation.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use thiserror::Error;

/// Fields as in core/v1 PodLogOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub follow: bool,
    pub timestamps: bool,
    /// Only the last so many lines.
    pub tail_lines: Option<u64>,
    /// Only lines not older than this; the caller resolves `sinceSeconds`.
    pub since: Option<Timestamp>,
    /// At most so many bytes of output.
    pub limit_bytes: Option<u64>,
    /// Only one of the streams; both if none.
    pub stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

#[derive(Debug, Error)]
pub enum LogError {
    #[error("log file {path}")]
    Io { path: PathBuf, source: io::Error },
}

/// What [`LogReader::next_chunk`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Some output, never empty.
    Data(Vec<u8>),
    /// Nothing new now, but the container may write more: wait, then ask again. Only when following.
    Wait,
    /// The end: all is read, or the limit is reached.
    End,
}

/// Incremental reader of one attempt's log.
pub struct LogReader {
    directory: PathBuf,
    attempt: u32,
    options: LogOptions,
}

impl LogReader {
    /// Opens `directory/ATTEMPT.log` (the container's log folder). A missing file is an error unless following.
    pub fn open(directory: &Path, attempt: u32, options: LogOptions) -> Result<Self, LogError> {
        Ok(Self { directory: directory.to_path_buf(), attempt, options })
    }

    /// The next output, at most about `max` bytes. Quick: reads at most a few buffers from disk.
    pub fn next_chunk(&mut self, max: usize) -> Result<Chunk, LogError> {
        let _ = (max, &self.directory, self.attempt, &self.options);
        Ok(Chunk::End)
    }

    /// The container has ended and its log is complete: following ends when all is read.
    pub fn container_ended(&mut self) {
        self.options.follow = false;
    }

    /// Resolves when the log may have grown or been rotated since the last [`Chunk::Wait`].
    pub async fn changed(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}
