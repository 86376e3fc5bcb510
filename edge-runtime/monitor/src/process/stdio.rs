//! The named pipes between a container and the monitor, and the way from them to the log file.
//!
//! Both sides open a pipe for reading and writing. So a container does not get SIGPIPE or block forever when the
//! monitor dies: its output waits in the pipe for the next monitor. The price is that a pipe has no end of file; the
//! end of the container is the end of its output.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;

use crate::logs::cri::Stream;
use crate::logs::write::LogWriter;
use sampan_sys::terminal;

/// Bytes per read; a pipe's buffer holds four of it.
const READ_SIZE: usize = 16 * 1024;
/// Reads per turn of the loop, so that one flood does not starve the others.
const READS_PER_TURN: usize = 4;
/// Reads at the end of a container: more than any pipe holds. A process that outlives the container's first one
/// could otherwise keep the monitor here forever.
const READS_AT_END: usize = 128;

/// Sees what a container writes.
pub(crate) type Tap<'a> = &'a mut dyn FnMut(Stream, &[u8]);

/// Space shared by all containers of the monitor.
pub(crate) struct Buffers {
    input: Box<[u8]>,
    formatted: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { input: vec![0; READ_SIZE].into_boxed_slice(), formatted: Vec::new() }
    }
}

/// The monitor's ends of a container's pipes, and its log.
#[derive(Debug)]
pub(crate) struct Output {
    /// A terminal has no second output.
    pub(crate) stdout: File,
    pub(crate) stderr: Option<File>,
    /// Held open so that the container's input does not end before its time.
    pub(crate) stdin: Option<File>,
    /// The container has let go of its terminal.
    pub(crate) hung_up: bool,
    log: LogWriter,
    /// Why the last write failed, if it did: said once, not with every line.
    failing: Option<String>,
}

impl Output {
    /// Makes the pipes where they are missing and opens them with the log.
    pub(crate) fn open(bundle: &Path, log: LogWriter, hold_stdin: bool) -> io::Result<Self> {
        let stdout = open_pipe(&bundle.join("stdout"), O_NONBLOCK)?;
        let stderr = open_pipe(&bundle.join("stderr"), O_NONBLOCK)?;
        let stdin = hold_stdin.then(|| open_pipe(&bundle.join("stdin"), O_NONBLOCK)).transpose()?;
        Ok(Self { stdout, stderr: Some(stderr), stdin, hung_up: false, log, failing: None })
    }

    /// The container uses a terminal: its output comes from there, and goes to the same log.
    pub(crate) fn switch_to(&mut self, terminal: File) {
        self.stdout = terminal;
        self.stderr = None;
    }

    /// What keeps the log from being written now.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.failing.as_deref()
    }

    /// Copies what is there, up to a fair share. The error is one to report, of the log file.
    /// `tap` is shown all bytes as they are.
    pub(crate) fn copy(&mut self, stream: Stream, buffers: &mut Buffers, tap: Tap<'_>) -> Option<io::Error> {
        self.copy_reads(stream, buffers, READS_PER_TURN, tap)
    }

    /// The container has ended: all that is left, and the unfinished last lines.
    pub(crate) fn finish(mut self, buffers: &mut Buffers, tap: Tap<'_>) -> Option<io::Error> {
        let first = self.copy_reads(Stream::Stdout, buffers, READS_AT_END, tap);
        let second = self.copy_reads(Stream::Stderr, buffers, READS_AT_END, tap);
        let last = self.log.finish(&stamp(), &mut buffers.formatted).err();
        first.or(second).or(last)
    }

    /// Returns the output of the OCI runtime when the container did not start.
    pub(crate) fn take_error_text(mut self, buffers: &mut Buffers) -> String {
        let read = self.stderr.as_mut().map_or(0, |pipe| pipe.read(&mut buffers.input).unwrap_or(0));
        String::from_utf8_lossy(&buffers.input[..read]).trim().to_owned()
    }

    fn copy_reads(&mut self, stream: Stream, buffers: &mut Buffers, reads: usize, tap: Tap<'_>) -> Option<io::Error> {
        let is_terminal = self.stderr.is_none();
        let pipe = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => self.stderr.as_mut()?,
        };
        let mut error = None;
        let mut time = String::new();
        for _ in 0..reads {
            let count = match pipe.read(&mut buffers.input) {
                Ok(count) if count > 0 => count,
                Err(e) if terminal::is_hung_up(&e) => {
                    self.hung_up = true;
                    break;
                }
                _ => break,
            };
            if time.is_empty() {
                time = stamp();
            }
            let written = self.log.write(stream, &buffers.input[..count], &time, &mut buffers.formatted);
            // After the log: what a client has seen must be in the log.
            tap(stream, &buffers.input[..count]);
            let failing = written.as_ref().err().map(ToString::to_string);
            if let Err(e) = written
                && self.failing.is_none()
            {
                error = Some(e);
            }
            self.failing = failing;
            // Less than asked for: the pipe is empty. A terminal gives a line or a page at a time.
            if count < READ_SIZE && !is_terminal {
                break;
            }
        }
        error
    }
}

/// The container's end of a pipe; it keeps the default, blocking mode, which is the open file's own.
pub(crate) fn container_end(bundle: &Path, name: &str) -> io::Result<File> {
    open_pipe(&bundle.join(name), 0)
}

/// The container's end of its standard input. If it may end, the container does not open it for writing; another
/// process must hold it open before this is called.
pub(crate) fn container_stdin(bundle: &Path, may_end: bool) -> io::Result<File> {
    if may_end { File::open(bundle.join("stdin")) } else { open_pipe(&bundle.join("stdin"), 0) }
}

fn open_pipe(path: &Path, flags: i32) -> io::Result<File> {
    match nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(e) => return Err(e.into()),
    }
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

/// Now, in RFC 3339 with nanoseconds.
pub(crate) fn stamp() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}
