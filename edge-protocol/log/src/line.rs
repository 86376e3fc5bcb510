//! One log line as text: untrusted content cannot forge other lines or fill the log.

use std::fmt::{self, Write};
use std::time::Duration;

use log::Level;

use crate::printable::shown;
use crate::time;

/// The longest line, its end included, in bytes: `PIPE_BUF` of Linux, what a pipe with room takes at once.
pub(crate) const LONGEST: usize = 4096;
const CUT: &str = "… (cut)";

/// `LEVEL [target] message` and a line feed, behind the time if there is one (`since` 1970). What would be another line or is not seen is escaped (`printable`), what is
/// longer than [`LONGEST`] is cut.
pub(crate) fn of(since: Option<Duration>, level: Level, target: &str, message: &fmt::Arguments<'_>) -> String {
    let mut line = Escaped { text: String::new(), full: false };
    // A String takes everything.
    let _ = since.map(|since| time::write(&mut line.text, since));
    let _ = write!(line.text, "{:<5} [{target}] ", level.as_str());
    // Fails when the line is full: the rest of a long message is not even made into words.
    if line.write_fmt(*message).is_err() || line.full {
        line.text.push_str(CUT);
    }
    line.text.push('\n');
    line.text
}

struct Escaped {
    text: String,
    full: bool,
}

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        const ROOM: usize = LONGEST - CUT.len() - 1;
        for one in text.chars() {
            let length: usize = shown(one).map(char::len_utf8).sum();
            if self.text.len() + length > ROOM {
                self.full = true;
                return Err(fmt::Error);
            }
            self.text.extend(shown(one));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        let stranger = "a\nWARN  [edge] forged\r\u{1b}[2J\u{85}\u{202e}é";
        let line = of(None, Level::Info, "t", &format_args!("node {stranger}"));
        assert_eq!(line, "INFO  [t] node a\\nWARN  [edge] forged\\r\\u{1b}[2J\\u{85}\\u{202e}é\n");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        for stranger in ["é".repeat(1 << 20), "\n".repeat(1 << 20), "x".repeat(LONGEST)] {
            let line = of(Some(Duration::ZERO), Level::Error, "target", &format_args!("{stranger}"));
            assert!(line.len() <= LONGEST && line.len() > LONGEST - 16, "{}", line.len());
            assert!(line.starts_with("1970-01-01T00:00:00.000Z ERROR [target] ") && line.ends_with("… (cut)\n"));
        }
    }
}
