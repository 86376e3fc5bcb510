//! Untrusted texts in a line of the log: shortened, with line breaks and control characters escaped. Pure.

use std::fmt;

/// Characters that are shown.
const MOST: usize = 256;

/// Shows a text, or anything that is shown as one.
pub fn printable<T: fmt::Display>(text: T) -> Printable<T> {
    Printable(text)
}

/// What [`printable`] gives.
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer { out: f, left: MOST, failed: false };
        // The writer refuses what does not fit, which is not an error here.
        let shown = fmt::Write::write_fmt(&mut writer, format_args!("{}", self.0));
        let Writer { left, failed, .. } = writer;
        match shown {
            Err(_) if failed => Err(fmt::Error),
            Err(_) if left == 0 => f.write_str("..."),
            other => other,
        }
    }
}

struct Writer<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
    failed: bool,
}

impl Writer<'_, '_> {
    fn put(&mut self, written: fmt::Result) -> fmt::Result {
        self.failed |= written.is_err();
        written
    }
}

impl fmt::Write for Writer<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.left == 0 {
                return Err(fmt::Error);
            }
            self.left -= 1;
            let written = shown(c).try_for_each(|c| self.out.write_char(c));
            self.put(written)?;
        }
        Ok(())
    }
}

/// Returns the printed form of a character: itself, or its escape as in Rust's strings.
pub(crate) fn shown(c: char) -> impl Iterator<Item = char> {
    let (itself, escape) = if harmless(c) { (Some(c), None) } else { (None, Some(c.escape_default())) };
    itself.into_iter().chain(escape.into_iter().flatten())
}

/// Control characters begin lines and speak to terminals; of the others that are not seen, some turn the direction of
/// the text, and two end lines (Unicode Standard Annex 9, and 5.8 of the standard).
fn harmless(c: char) -> bool {
    !(c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line() {
        let forged = "x\nnode admin: connected\r\u{1b}[2J\u{202e}ä";
        let shown = printable(forged).to_string();
        assert_eq!(shown, "x\\nnode admin: connected\\r\\u{1b}[2J\\u{202e}ä");
        assert_eq!(printable("web-0").to_string(), "web-0");
    }

    #[test]
    fn a_long_text_is_cut_before_it_is_copied() {
        let long = "y".repeat(2 << 20);
        assert_eq!(printable(&long).to_string().len(), MOST + 3);
        assert_eq!(printable("y".repeat(MOST)).to_string().len(), MOST);
        let nested = printable(format_args!("{} and {}", printable(&long), "more")).to_string();
        assert_eq!(nested.len(), MOST + 3);
    }
}
