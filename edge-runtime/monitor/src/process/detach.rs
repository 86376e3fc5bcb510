//! How the monitor detaches from its parent: its own session and standard streams, and a parent that ends.
//!
//! The verb is executed twice. The first process starts the second, waits until that accepts connections, and ends, so
//! the caller has nothing to reap later and learns the result from the exit code.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::files;
use sampan_sys::program;

/// The log is truncated beyond this size, in bytes, here and while the monitor runs: it is not rotated.
pub(super) const LOG_MAX: u64 = 256 * 1024;

/// In the first process: starts the second with `arguments` and waits for its word.
///
/// # Errors
/// The monitor could not be started, or ended before it was ready; its log has the reason.
pub fn launch(arguments: &[std::ffi::OsString], run: &Path) -> io::Result<()> {
    fs::create_dir_all(run)?;
    let log_path = files::log(run);
    if fs::metadata(&log_path).is_ok_and(|m| m.len() > LOG_MAX) {
        fs::remove_file(&log_path)?;
    }
    let log = File::options().create(true).append(true).mode(0o600).open(&log_path)?;
    let (mut ready, ready_end) = io::pipe()?;
    let mut command = program::itself("monitor");
    command.args(arguments).current_dir("/");
    command.stdin(Stdio::null()).stdout(OwnedFd::from(ready_end)).stderr(log);
    command.spawn()?;
    // Our copy of the writing end must close, or a death of the other side would not be noticed.
    drop(command);
    let mut word = [0];
    match ready.read(&mut word)? {
        1 => Ok(()),
        _ => Err(io::Error::other(format!("the monitor did not start, see {}", log_path.display()))),
    }
}

/// Called in the second process when it is ready: reports that and closes the pipe.
///
/// # Errors
/// `/dev/null` cannot be had.
pub fn say_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    // The first process may have been killed, which does not matter.
    let _ = stdout.write_all(b"\n").and_then(|()| stdout.flush());
    let null = File::options().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null)?;
    Ok(())
}
