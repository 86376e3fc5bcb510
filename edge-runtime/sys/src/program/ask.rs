//! Runs a program and waits for it, without the loop.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::family::Family;
use super::{Output, TUNABLES, late, talkative};

/// Between two looks whether a program that has closed its output has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs `command` without input and waits for it. For the start, before the loop runs. Ignores its standard error.
///
/// # Errors
/// Same as [`run`](super::run).
pub fn ask(mut command: Command, limit: usize, patience: Duration) -> io::Result<Output> {
    command.process_group(0).env_remove(TUNABLES);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let until = Instant::now() + patience;
    let mut child = command.spawn()?;
    let mut family = Family::of(child.id());
    let mut stdout = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        let mut piece = [0; 4096];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], wait) {
                Ok(0) => return Err(late(patience)),
                Err(nix::errno::Errno::EINTR) => continue,
                other => other?,
            };
            match pipe.read(&mut piece)? {
                0 => break,
                length => stdout.extend_from_slice(&piece[..length]),
            }
            if stdout.len() > limit {
                return Err(talkative(limit));
            }
        }
    }
    loop {
        if let Some(status) = child.try_wait()? {
            family.spare();
            return Ok(Output { status, stdout, stderr: Vec::new() });
        }
        if Instant::now() >= until {
            return Err(late(patience));
        }
        std::thread::sleep(PAUSE);
    }
}
