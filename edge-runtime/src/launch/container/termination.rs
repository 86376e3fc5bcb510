//! Termination message of a container: its message file, otherwise the end of its log. Reads only; the pod's status
//! decides what is shown.
//!
//! As K8s pkg/kubelet/kuberuntime/kuberuntime_container.go (`getTerminationMessage`).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of one message, its end if it is longer.
const MAX_MESSAGE: u64 = 4096;
/// Limits of a message taken from the log, in bytes and lines.
const MAX_FROM_LOG: usize = 2048;
const MAX_LOG_LINES: usize = 80;
/// Enough of a log file for [`MAX_FROM_LOG`] bytes in [`MAX_LOG_LINES`] lines, each with its stamp.
const LOG_WINDOW: u64 = 64 * 1024;

/// `log` is read when the file is empty and the container's policy asks for it (after an error only).
pub(super) fn message(file: &Path, log: Option<&Path>) -> String {
    // A file that cannot be read is an empty message.
    let own = end_of(file, MAX_MESSAGE).unwrap_or_default();
    let bytes = match log {
        Some(log) if own.is_empty() => from_log(&end_of(log, LOG_WINDOW).unwrap_or_default()),
        _ => own,
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

fn end_of(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    // It may still grow: its own processes need not be the only ones that write it.
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the text of the last lines of a log in CRI format, without their stamps.
fn from_log(log: &[u8]) -> Vec<u8> {
    // `TIME STREAM TAG TEXT`; a line that is cut at the beginning of the window has no such form, or an early part
    // of it, which the limit cuts off in any case.
    let entry = |line: &'_ [u8]| -> Option<(bool, usize)> {
        let mut spaces = line.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(at, _)| at);
        let (_, second) = (spaces.next()?, spaces.next()?);
        let third = spaces.next()?;
        let tag = line.get(second + 1..third)?;
        Some((tag.first() == Some(&b'F'), third + 1))
    };
    let mut entries = Vec::new();
    let mut lines = 0;
    for line in log.strip_suffix(b"\n").unwrap_or(log).rsplit(|byte| *byte == b'\n') {
        let Some((full, at)) = entry(line) else { continue };
        lines += usize::from(full);
        if lines > MAX_LOG_LINES {
            break;
        }
        entries.push((full, line.get(at..).unwrap_or_default()));
    }
    let mut text = Vec::new();
    for (full, content) in entries.into_iter().rev() {
        text.extend_from_slice(content);
        if full {
            text.push(b'\n');
        }
    }
    text.split_off(text.len().saturating_sub(MAX_FROM_LOG))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|l| format!("2026-01-01T00:00:00.000000000Z stdout {l}\n").into_bytes()).collect()
    }

    #[test]
    fn the_log_without_its_stamps() {
        assert_eq!(from_log(b""), b"");
        assert_eq!(from_log(&log(&["F one", "P two", "F  three "])), b"one\ntwo three \n");
        assert_eq!(from_log(&log(&["P DONE"])), b"DONE");
        assert_eq!(from_log(&[b"0Z stderr F cut\n", log(&["F whole"]).as_slice()].concat()), b"cut\nwhole\n");
    }

    #[test]
    fn the_end_of_a_long_log() {
        let many: Vec<String> = (0..200).map(|i| format!("F {i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = String::from_utf8(from_log(&log(&many))).unwrap();
        assert_eq!((text.lines().next(), text.lines().count()), (Some("120"), MAX_LOG_LINES));
        let long = format!("F {}", "x".repeat(5000));
        assert_eq!(from_log(&log(&[&long])).len(), MAX_FROM_LOG);
    }

    #[test]
    fn the_file_goes_first_and_its_end_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (file, other) = (dir.path().join("file"), dir.path().join("0.log"));
        std::fs::write(&other, log(&["F said"])).unwrap();
        assert_eq!(message(&file, None), "");
        assert_eq!(message(&file, Some(&other)), "said\n");
        std::fs::write(&file, "words").unwrap();
        assert_eq!(message(&file, Some(&other)), "words");
        std::fs::write(&file, [b"a".repeat(10), b"z".repeat(4096)].concat()).unwrap();
        assert_eq!(message(&file, None), "z".repeat(4096));
    }
}
