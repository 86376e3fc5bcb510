//! What a reader is asked for and what it finds. Values only.

use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use thiserror::Error;

use sampan_monitor::logs::cri::Stream;

/// Fields as in core/v1 PodLogOptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub follow: bool,
    pub timestamps: bool,
    /// Limits the output to this many last lines.
    pub tail_lines: Option<u64>,
    /// Skips older lines; the caller resolves `sinceSeconds`.
    pub since: Option<Timestamp>,
    /// Maximum length of the output, in bytes.
    pub limit_bytes: Option<u64>,
    /// Selects one of the streams; `None` means both.
    pub stream: Option<Stream>,
}

#[derive(Debug, Error)]
pub enum LogError {
    #[error("log file {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What [`LogReader::next_chunk`](super::LogReader::next_chunk) found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Some output, never empty.
    Data(Vec<u8>),
    /// Nothing new now, but the container may write more: wait, then call again. Only when following.
    Wait,
    /// The end: all is read, or the limit is reached.
    End,
}
