//! `edge-runtime shutdown`: the machine goes down; the daemon stops its pods in order and ends. For the service
//! manager's stop at shutdown.

use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::CliError;
use super::verb::{Given, Operands, Verb};
use crate::node::SHUTDOWN_MARK;
use crate::sys::files::{named, unless_missing};

/// More than any sensible budget: the service manager has the last word.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(50);

pub(super) const VERB: Verb = Verb {
    name: "shutdown",
    about: "Stop all pods in order and end the daemon (for the unit)",
    operands: Operands::None,
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let run = given.paths()?.run();
    let (lock, mark) = (run.join("daemon.lock"), run.join(SHUTDOWN_MARK));
    let text = unless_missing(std::fs::read_to_string(&lock)).map_err(named(&lock))?;
    let pid = text.and_then(|text| text.trim().parse::<i32>().ok());
    let Some(pid) = pid.filter(|_| !is_free(&lock)) else {
        return Err(CliError::Failed("no edge-runtime runs on this root".into()));
    };
    std::fs::write(&mark, "").map_err(|error| CliError::Failed(format!("{}: {error}", mark.display())))?;
    kill(Pid::from_raw(pid), Signal::SIGTERM)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if is_free(&lock) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(CliError::Failed(format!("the daemon (process {pid}) still runs after {} s", PATIENCE.as_secs())))
}

/// Whether a daemon's lock is free: none runs.
pub fn is_free(path: &std::path::Path) -> bool {
    match std::fs::File::open(path) {
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
