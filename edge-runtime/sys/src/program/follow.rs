//! Runs a program that prints line by line, for as long as it prints.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};

use super::family::Family;
use super::talkative;

/// Runs `command` beside the loop without a time limit, and passes each line that it prints to `line`, without its end.
/// Its standard error is this process's. Dropping the future kills it with all its descendants.
///
/// # Errors
/// It cannot be run, a line has more than `limit` bytes, or it printed nothing for `silence`.
pub async fn follow(
    mut command: Command,
    stdin: &[u8],
    limit: usize,
    silence: Duration,
    mut line: impl FnMut(&[u8]),
) -> io::Result<ExitStatus> {
    command.process_group(0);
    let mut command = smol::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn()?;
    let mut family = Family::of(child.id());
    if let Some(mut input) = child.stdin.take() {
        // Ignores write errors: if a program ends at once, its exit status explains more, and a program need not read.
        let write = async {
            let _ = input.write_all(stdin).await;
            Ok(())
        };
        write.or(silent(silence)).await?;
    }
    if let Some(mut output) = child.stdout.take() {
        let (mut lines, mut piece) = (Lines { begun: Vec::new(), limit }, vec![0; 4096]);
        while let length @ 1.. = output.read(&mut piece).or(silent(silence)).await? {
            lines.take(&piece[..length], &mut line)?;
        }
    }
    let status = child.status().or(silent(silence)).await?;
    family.spare();
    Ok(status)
}

/// Comes after this time.
async fn silent<T>(silence: Duration) -> io::Result<T> {
    smol::Timer::after(silence).await;
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing was heard of it for {} s", silence.as_secs())))
}

/// Output as lines.
struct Lines {
    /// The beginning of a line.
    begun: Vec<u8>,
    /// Maximum length of a line, in bytes.
    limit: usize,
}

impl Lines {
    /// Passes each line that ends with this piece to `line`, without its end.
    fn take(&mut self, piece: &[u8], line: &mut impl FnMut(&[u8])) -> io::Result<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if let Some(whole) = self.begun.strip_suffix(b"\n") {
                line(whole);
                self.begun.clear();
            }
        }
        if self.begun.len() > self.limit { Err(talkative(self.limit)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let mut lines = Lines { begun: Vec::new(), limit: 4 };
        let mut told: Vec<String> = Vec::new();
        let mut take = |piece: &[u8]| {
            lines.take(piece, &mut |line: &[u8]| told.push(String::from_utf8_lossy(line).into_owned())).is_ok()
        };
        assert!(take(b"a\nb") && take(b"") && take(b"c\n\n") && take(b"defg"));
        assert!(!take(b"h"), "it has no end");
        assert_eq!(told, ["a", "bc", ""]);
    }
}
