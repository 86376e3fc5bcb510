//! The time at the beginning of a line, and whether a line needs one.

use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Whether standard error is a stream of the journal, which stamps each line itself. `JOURNAL_STREAM` is inherited by
/// processes whose stderr is another file, so device and inode are compared (systemd.exec(5)).
pub(crate) fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    stderr.is_ok_and(|stderr| is_stream(&stream, stderr.dev(), stderr.ino()))
}

/// `stream`: `DEVICE:INODE` in decimal digits.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    let parts = stream.split_once(':').map(|(a, b)| (a.parse::<u64>(), b.parse::<u64>()));
    parts == Some((Ok(device), Ok(inode)))
}

/// Writes `2026-11-28T12:26:20.123Z `. `since`: since 1970, UTC.
pub(crate) fn write(out: &mut String, since: Duration) -> fmt::Result {
    const DAY: u64 = 24 * 3600;
    let (days, second) = (since.as_secs() / DAY, since.as_secs() % DAY);
    // Days to a date of the Gregorian calendar, in years that begin in March (Howard Hinnant, "chrono-Compatible Low-Level
    // Date Algorithms").
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z ", since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_date_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (1_767_225_599, "2025-12-31T23:59:59"),
            (1_767_225_600, "2026-01-01T00:00:00"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let mut text = String::new();
            write(&mut text, Duration::new(seconds, 7_999_999)).unwrap();
            assert_eq!(text, format!("{wanted}.007Z "), "{seconds}");
        }
    }

    #[test]
    fn only_the_stream_itself_is_the_journal() {
        assert!(is_stream("9:12345", 9, 12345));
        for other in ["9:1234", "8:12345", "", "9", "9:", "x:12345", "9:12345:1"] {
            assert!(!is_stream(other, 9, 12345), "{other:?}");
        }
    }
}
