//! How commands print: tables, JSON, YAML, names and durations. Knows no command.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use sampan_log::printable::printable;
use serde::Serialize;

/// Forms of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Wide,
    Json,
    Yaml,
    Name,
}

/// Forms of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structured {
    Json,
    Yaml,
}

impl Structured {
    /// The value in this form, with a line end.
    pub(crate) fn text(self, value: &impl Serialize) -> anyhow::Result<String> {
        match self {
            Self::Json => Ok(serde_json::to_string_pretty(value)? + "\n"),
            Self::Yaml => yaml(value),
        }
    }
}

/// JSON is YAML, so a bridge without the embedded API, which has the writer, prints that.
fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_vec(value)?;
    #[cfg(feature = "standalone")]
    if let Some(text) = apiserver::yaml_from_json(&json) {
        return Ok(String::from_utf8(text)?);
    }
    Ok(String::from_utf8(json)? + "\n")
}

/// Rows with their columns aligned; the first row is the head. A node says some of the texts about itself, such as its version:
/// they are cut, and speak to no terminal.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell).to_string()).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    rows.iter().fold(String::new(), |mut text, row| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
        text
    })
}

/// A duration in its largest unit: `45s`, `12m`, `3h`, `6d`.
pub(crate) fn rough(duration: Duration) -> String {
    match duration.as_secs() {
        s if s < 120 => format!("{s}s"),
        s if s < 2 * 3600 => format!("{}m", s / 60),
        s if s < 2 * 86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// The reader of standard output has gone, as `head` goes after some lines.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has gone")]
pub struct ReaderGone;

/// Prints all of it at once.
///
/// # Errors
/// [`ReaderGone`], or standard output cannot be written.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_to(std::io::stdout(), text)
}

fn print_to(mut out: impl Write, text: &str) -> anyhow::Result<()> {
    // Standard output keeps a last line without an end, and a failure when the process ends is not reported.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        done => done.context("stdout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["NAME", "NODE"], ["join-1", "ä"], ["j", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "NAME     NODE\njoin-1   ä\nj\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn text_of_a_node_forges_no_row_and_speaks_to_no_terminal() {
        let rows = [vec!["0.1.0\nedge-2   True\u{1b}[2J".to_owned(), "x".repeat(1 << 20)]];
        let text = table(&rows);
        assert!(text.starts_with("0.1.0\\nedge-2   True\\u{1b}[2J   xxx"), "{text}");
        assert!(text.lines().count() == 1 && text.len() < 400, "{}", text.len());
    }

    #[test]
    fn reader_that_has_gone_is_told_from_a_full_disk() {
        struct Broken(ErrorKind);
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        assert!(print_to(Broken(ErrorKind::BrokenPipe), "a").unwrap_err().is::<ReaderGone>());
        assert!(!print_to(Broken(ErrorKind::StorageFull), "a").unwrap_err().is::<ReaderGone>());
        print_to(Vec::new(), "a").unwrap();
    }

    #[test]
    fn text_that_stays_in_a_buffer_is_no_success() {
        let mut full = std::io::LineWriter::new(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        print_to(&mut full, "no end of line").unwrap_err();
    }

    #[test]
    fn structured_forms_hold_the_same() {
        let value = serde_json::json!({"node": "edge-1", "bridges": ["https://b:1"]});
        assert_eq!(Structured::Json.text(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap() + "\n");
        let yaml = Structured::Yaml.text(&value).unwrap();
        assert!(yaml.contains("edge-1") && yaml.ends_with('\n'), "{yaml}");
    }

    #[test]
    fn durations_are_rounded_down() {
        for (seconds, text) in [(0, "0s"), (119, "119s"), (121, "2m"), (7199, "119m"), (90_000, "25h"), (604_800, "7d")]
        {
            assert_eq!(rough(Duration::from_secs(seconds)), text);
        }
    }
}
