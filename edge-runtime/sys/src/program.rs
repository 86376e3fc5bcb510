//! Runs another program to its end, within bounded time and with bounded output. One that is late is killed with all
//! that it started. Knows nothing of what the programs do.
//!
//! | file | owns |
//! |---|---|
//! | `ask` | programs that run before the loop |
//! | `follow` | programs that print line by line, for any time |
//! | `family` | a program's end, with its descendants |

mod ask;
mod family;
mod follow;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};

pub use self::ask::ask;
use self::family::Family;
pub use self::follow::follow;

/// How much of a program's standard error is kept.
const STDERR_LIMIT: usize = 8 * 1024;

/// Variable with the daemon's settings of the allocator, which keep little memory and cost time: only its own helpers
/// inherit them.
pub(crate) const TUNABLES: &str = "GLIBC_TUNABLES";

/// Result of a program.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// The beginning of it.
    pub stderr: Vec<u8>,
}

/// Starts this program again, for one of its verbs. Not by its path, which an upgrade may have given to another file;
/// ps(1) shows the name anyway.
pub fn itself(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("edge-runtime").arg(verb);
    command
}

/// Runs `command` beside the loop. It need not read all of `stdin`.
///
/// # Errors
/// It cannot be run, printed more than `limit` bytes, or did not end within `patience`.
pub async fn run(mut command: Command, stdin: &[u8], limit: usize, patience: Duration) -> io::Result<Output> {
    command.env_remove(TUNABLES);
    run_with(command, Stdio::piped(), stdin, limit, patience).await
}

/// Same as [`run`], for a program whose memory use others decide: it does not inherit this process's protection from
/// the OOM killer.
///
/// # Errors
/// Same as [`run`].
pub async fn run_unprotected(
    mut command: Command,
    stdin: &[u8],
    limit: usize,
    patience: Duration,
) -> io::Result<Output> {
    command.env_remove(TUNABLES);
    run_in(command, (Stdio::piped(), true), stdin, limit, patience).await
}

/// Same as [`run`], with the standard error of this process: the helper logs there.
///
/// # Errors
/// Same as [`run`].
pub async fn help(command: Command, stdin: &[u8], limit: usize, patience: Duration) -> io::Result<Output> {
    run_with(command, Stdio::inherit(), stdin, limit, patience).await
}

async fn run_with(
    command: Command,
    stderr: Stdio,
    stdin: &[u8],
    limit: usize,
    patience: Duration,
) -> io::Result<Output> {
    run_in(command, (stderr, false), stdin, limit, patience).await
}

async fn run_in(
    mut command: Command,
    (stderr, unprotected): (Stdio, bool),
    stdin: &[u8],
    limit: usize,
    patience: Duration,
) -> io::Result<Output> {
    command.process_group(0);
    let mut command = smol::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn()?;
    let mut family = Family::of(child.id());
    if unprotected {
        super::oom::unprotect(child.id());
    }
    let work = async {
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut input) = input {
                // Its answer tells how it used the part that it read.
                let _ = input.write_all(stdin).await;
            }
        };
        let read = async { read_bounded(output, limit.saturating_add(1), true).await };
        let read_errors = async { read_bounded(errors, STDERR_LIMIT, false).await };
        let ((), (stdout, stderr)) = smol::future::zip(write, smol::future::zip(read, read_errors)).await;
        if stdout.len() > limit {
            return Err(talkative(limit));
        }
        Ok(Output { status: child.status().await?, stdout, stderr })
    };
    let late = async {
        smol::Timer::after(patience).await;
        Err(late(patience))
    };
    let output = work.or(late).await?;
    family.spare();
    Ok(output)
}

fn late(patience: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it did not end within {} s", patience.as_secs()))
}

fn talkative(limit: usize) -> io::Error {
    io::Error::other(format!("it printed more than {limit} bytes"))
}

/// Reads at most `limit` bytes; then ends, or reads on without keeping so that the writer is not held.
async fn read_bounded(from: Option<impl AsyncReadExt + Unpin>, limit: usize, end: bool) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let room = limit.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..length.min(room)]);
        if end && kept.len() >= limit {
            break;
        }
    }
    kept
}

#[cfg(test)]
mod tests;
