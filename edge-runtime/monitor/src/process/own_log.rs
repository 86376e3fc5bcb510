//! The monitor's own log.

use std::io::{self, Write};
use std::os::fd::AsFd;

use super::detach::LOG_MAX;
use super::stdio::stamp;

/// Characters of a line in it.
const LINE_MAX: usize = 1024;

/// Writes a line into the monitor's log. Never fails: the monitor must not stop. The log is not rotated, so it is
/// truncated when it is full.
pub(crate) fn note(text: &str) {
    note_in(&mut io::stderr(), text);
}

fn note_in(log: &mut (impl Write + AsFd), text: &str) {
    // A terminal or a pipe has no such length.
    if nix::sys::stat::fstat(&*log).is_ok_and(|file| u64::try_from(file.st_size).is_ok_and(|size| size > LOG_MAX)) {
        let _ = nix::unistd::ftruncate(&*log, 0);
    }
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LINE_MAX).collect();
    let _ = writeln!(log, "{} {line}", stamp());
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_log_that_is_full_begins_anew_and_its_lines_are_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor.log");
        // As `detach` opens it.
        let mut log = File::options().create(true).append(true).open(&path).unwrap();
        log.write_all(&vec![b'x'; usize::try_from(LOG_MAX).unwrap()]).unwrap();
        note_in(&mut log, "the last");
        assert!(fs::metadata(&path).unwrap().len() > LOG_MAX, "it was not full yet");
        note_in(&mut log, "the first\nof a new log");
        note_in(&mut log, &"y".repeat(2 * LINE_MAX));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].ends_with(" the first of a new log"), "{text}");
        assert!(lines[1].ends_with(&format!(" {}", "y".repeat(LINE_MAX))), "{text}");
    }
}
