//! Writes the progress to standard error, at its pace.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use edge_runtime::paths::Paths;
use sampan_sys::terminal;

use super::pulls;
use super::show::{Pace, Rate, Seen, line};

/// Clears the line that the cursor is in (ECMA-48).
const CLEAR: &str = "\r\x1b[K";

pub(crate) struct Printer {
    began: Instant,
    is_terminal: bool,
    pace: Pace,
    rate: Rate,
    /// There is a line to clear.
    is_shown: bool,
}

impl Printer {
    pub(crate) fn new() -> Self {
        let knows_codes = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let is_terminal = knows_codes && io::stderr().is_terminal();
        Self {
            began: Instant::now(),
            is_terminal,
            pace: Pace::new(is_terminal),
            rate: Rate::default(),
            is_shown: false,
        }
    }

    /// Between two looks, in milliseconds.
    pub(crate) fn look_every(&self) -> u16 {
        self.pace.look_every()
    }

    /// # Errors
    /// Standard error is closed.
    pub(crate) fn show(&mut self, what: &str, seen: &Seen) -> io::Result<()> {
        let at = self.began.elapsed();
        let rate = self.rate.after(at, seen.bytes());
        self.write(at, || line(what, seen, rate))
    }

    /// Shows how many of `total` are done: `checked layer 3 of 12`.
    ///
    /// # Errors
    /// Same as [`Printer::show`].
    pub(crate) fn count(&mut self, what: &str, done: usize, total: usize) -> io::Result<()> {
        self.write(self.began.elapsed(), || format!("{what} {done} of {total}"))
    }

    fn write(&mut self, at: Duration, text: impl FnOnce() -> String) -> io::Result<()> {
        if !self.pace.is_due(at) {
            return Ok(());
        }
        let (stderr, text) = (io::stderr(), text());
        if !self.is_terminal {
            return writeln!(&stderr, "{text}");
        }
        self.is_shown = true;
        let width = terminal::size(&stderr).map_or(80, |size| usize::from(size.width));
        let text: String = text.chars().take(width.saturating_sub(1)).collect();
        write!(&stderr, "{CLEAR}{text}")
    }

    /// # Errors
    /// Same as [`Printer::show`].
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_shown) { write!(io::stderr(), "{CLEAR}") } else { Ok(()) }
    }
}

/// Shows the pull of `image` while `work` runs it.
pub(crate) fn beside<T>(paths: &Paths, image: &str, work: impl FnOnce() -> T) -> T {
    let (running, ended) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut printer = Printer::new();
            let wait = Duration::from_millis(printer.look_every().into());
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                if let Some((what, seen)) = pulls::all(paths).into_iter().find(|(what, _)| what == image) {
                    // Without a reader there is nothing to do.
                    let _ = printer.show(&what, &seen);
                }
            }
            let _ = printer.end();
        });
        let result = work();
        drop(running);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_beside_and_its_result_returned() {
        let root = tempfile::tempdir().unwrap();
        let began = Instant::now();
        assert_eq!(beside(&Paths::new(root.path()), "web:1", || 7), 7);
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
