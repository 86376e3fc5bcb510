//! The process that watches a trial from outside. It starts with the daemon and consists of the launcher's own code, so
//! that it does not depend on the version on trial. It observes repeatedly, and ends the trial with success or
//! rollback.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use sampan_sys::files::private_dir;

use crate::judge::{Judge, Verdict};
use crate::look;
use crate::main_process::MainProcess;
use crate::versions::{State, Trial, Versions};

/// The verb of the launcher that is this process.
pub const VERB: &str = "watch-trial";
/// The word for the process in between.
pub const BEGIN: &str = "--begin";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// Time for a full disk: then a working version is rolled back, too.
const FOR_A_DISK: Duration = Duration::from_secs(20);
const NOT_WRITTEN: &str = "the disk did not take that it stays";

/// Starts the process, which outlives this one. One that runs already is enough: the new one ends at once. A process in between
/// is its parent, for this one becomes a daemon that expects no such child.
///
/// # Errors
/// It cannot be started.
pub fn spawn(launcher: &Path, root: &Path) -> io::Result<()> {
    let done = command(launcher, root).arg(BEGIN).status()?;
    if done.success() { Ok(()) } else { Err(io::Error::other(format!("the watcher of the trial: {done}"))) }
}

/// The life of the intermediate process.
///
/// # Errors
/// Same as [`spawn`].
pub fn begin(launcher: &Path, root: &Path) -> io::Result<()> {
    command(launcher, root).spawn().map(drop)
}

fn command(launcher: &Path, root: &Path) -> Command {
    let mut command = Command::new(launcher);
    command
        .arg(VERB)
        .arg("--root")
        .arg(root)
        // Only the daemon itself may notify the supervisor.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// The life of that process.
///
/// # Errors
/// It cannot be known whether it is the only one, or an old version cannot be deleted.
pub fn watch(versions: &Versions) -> io::Result<()> {
    // A signal to the daemon's group, as of a terminal, is not for it.
    let _ = nix::unistd::setsid();
    private_dir(&versions.own_run_folder())?;
    let lock = File::create(versions.own_run_folder().join("trial.lock"))?;
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return Ok(()) };
    let Some(trial) = versions.read().trial else { return Ok(()) };
    let (began, mut judge) = (Instant::now(), Judge::default());
    loop {
        let second = began.elapsed().as_secs();
        let verdict = judge.look(&trial, second, &look::look(versions, &trial));
        // The launcher has rolled back, or another trial has begun.
        if !is_the_same(&versions.read(), &trial) {
            return Ok(());
        }
        match verdict {
            Verdict::Wait => {}
            Verdict::Good => return good(versions, &trial),
            Verdict::Bad(reason) => {
                bad(versions, &trial, &reason);
                return Ok(());
            }
        }
        let left = trial.seconds.saturating_sub(began.elapsed().as_secs());
        thread::sleep(PAUSE.min(Duration::from_secs(left.max(1))));
    }
}

/// A trial but for how often the daemon was started in it.
fn is_the_same(state: &State, trial: &Trial) -> bool {
    state.trial.as_ref().is_some_and(|now| Trial { starts: trial.starts, ..now.clone() } == *trial)
}

fn good(versions: &Versions, trial: &Trial) -> io::Result<()> {
    let until = Instant::now() + FOR_A_DISK;
    loop {
        let ended = versions.change(|state| {
            if is_the_same(state, trial) {
                state.end(true, "");
            }
            state.clone()
        });
        match ended {
            Ok(state) => return versions.prune(&state, &runs),
            Err(error) if Instant::now() >= until => {
                bad(versions, trial, &format!("{NOT_WRITTEN}: {error}"));
                return Ok(());
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Rolls back. If the disk cannot be written, the daemon is ended anyway: its next start detects that the state cannot
/// be stored, and uses the old version. The state is stored as soon as the disk permits.
fn bad(versions: &Versions, trial: &Trial, reason: &str) {
    let mut ended = false;
    loop {
        match versions.go_back(|state| is_the_same(state, trial), reason) {
            Ok(true) => break,
            Ok(false) => return,
            Err(_) => {
                if !std::mem::replace(&mut ended, true) {
                    end_daemon(versions);
                }
                thread::sleep(PAUSE);
            }
        }
    }
    end_daemon(versions);
}

fn end_daemon(versions: &Versions) {
    if let Some(daemon) = MainProcess::find(versions) {
        daemon.end();
    }
}

/// Whether a process runs one of the programs in this folder. The monitor of containers keeps its version while it has
/// containers.
#[must_use]
pub fn runs(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return true };
    let mut programs = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("exe")).ok());
    let real = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    programs.any(|program| program.starts_with(&real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_program_keeps_its_folder() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::copy("/bin/sleep", temp.path().join("sleep")).unwrap();
        assert!(!runs(temp.path()));
        let mut child = Command::new(temp.path().join("sleep")).arg("600").spawn().unwrap();
        assert!(runs(temp.path()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn another_start_belongs_to_the_same_trial() {
        let trial = Trial { seconds: 300, ..Trial::default() };
        let state = |trial| State { trial, ..State::default() };
        assert!(is_the_same(&state(Some(Trial { starts: 2, ..trial.clone() })), &trial));
        assert!(!is_the_same(&state(Some(Trial { job: Some("j".into()), ..trial.clone() })), &trial));
        assert!(!is_the_same(&state(None), &trial));
    }
}
