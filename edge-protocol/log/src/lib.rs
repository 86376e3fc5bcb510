//! The log of all programs: lines on stderr, with the time unless the journal adds it. Knows nothing of what is logged.
//!
//! `simple_logger` decides which lines are written. It cannot write them here: its macro panics when stderr is a full
//! disk or a closed pipe, and waits forever if the reader of a pipe hangs. A line that cannot be written is dropped and
//! counted, and the next written line reports the number.

mod line;
pub mod printable;
mod time;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use simple_logger::SimpleLogger;

/// How long a line waits for a slow reader, in milliseconds. After such a wait without a read, lines do not wait until
/// there is a read again.
const PATIENCE: u8 = 100;

/// Starts the log of this process.
///
/// # Errors
/// It has one already.
pub fn start(levels: SimpleLogger) -> Result<(), SetLoggerError> {
    let most: LevelFilter = levels.max_level();
    log::set_boxed_logger(Box::new(StderrLog { levels, out: Lines::new(io::stderr(), !time::stderr_is_journal()) }))?;
    log::set_max_level(most);
    Ok(())
}

struct StderrLog {
    levels: SimpleLogger,
    out: Lines<io::Stderr>,
}

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.levels.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.out.write(&line::of(self.out.now(), record.level(), record.target(), record.args()));
        }
    }

    fn flush(&self) {}
}

/// Lines on their way to a file, pipe or socket.
struct Lines<W> {
    to: W,
    /// Lines begin with the time.
    dated: bool,
    dropped: AtomicU64,
    /// The last line found no room within [`PATIENCE`].
    stuck: AtomicBool,
}

impl<W: AsFd> Lines<W>
where
    for<'a> &'a W: Write,
{
    const fn new(to: W, dated: bool) -> Self {
        Self { to, dated, dropped: AtomicU64::new(0), stuck: AtomicBool::new(false) }
    }

    /// Time since 1970 for the next line, if lines have one.
    fn now(&self) -> Option<Duration> {
        self.dated.then(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    fn write(&self, line: &str) {
        if !self.has_room() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let missing = if dropped == 0 {
            Ok(())
        } else {
            let told = line::of(
                self.now(),
                log::Level::Warn,
                module_path!(),
                &format_args!("{dropped} log lines were dropped"),
            );
            (&self.to).write_all(told.as_bytes())
        };
        let written =
            missing.and_then(|()| if self.has_room() { (&self.to).write_all(line.as_bytes()) } else { Ok(()) });
        if written.is_err() {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }

    /// Whether a line can be written without waiting. Where poll(2) finds room a pipe takes `PIPE_BUF` bytes at once
    /// (pipe(7)), and no line is longer.
    fn has_room(&self) -> bool {
        let patience = if self.stuck.load(Ordering::Relaxed) { PollTimeout::ZERO } else { PollTimeout::from(PATIENCE) };
        let mut ready = [PollFd::new(self.to.as_fd(), PollFlags::POLLOUT)];
        // What poll refuses (a closed descriptor) is left to the write, which fails and is counted.
        let room = !matches!(poll(&mut ready, patience), Ok(0));
        self.stuck.store(!room, Ordering::Relaxed);
        room
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reader_that_hangs_stops_nobody_and_learns_what_it_missed() {
        let (mut reader, writer) = io::pipe().unwrap();
        let lines = Lines::new(writer, false);
        let start = Instant::now();
        let line = "x".repeat(1000) + "\n";
        for _ in 0..10_000 {
            lines.write(&line);
        }
        assert!(start.elapsed() < Duration::from_secs(5), "waited {:?}", start.elapsed());
        let dropped = lines.dropped.load(Ordering::Relaxed);
        assert!(dropped > 9_000, "{dropped}");
        let mut held = vec![0; 64 * 1024];
        let _ = reader.read(&mut held).unwrap();
        lines.write("after\n");
        drop(lines);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with(&format!("{dropped} log lines were dropped\nafter\n")), "{rest}");
    }

    #[test]
    fn a_full_disk_and_a_closed_pipe_are_counted() {
        let full = Lines::new(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap(), true);
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let closed = Lines::new(writer, true);
        for _ in 0..3 {
            full.write("a\n");
            closed.write("a\n");
        }
        assert_eq!(full.dropped.load(Ordering::Relaxed), 3);
        assert_eq!(closed.dropped.load(Ordering::Relaxed), 3);
    }
}
