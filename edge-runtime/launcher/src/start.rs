//! Starts one of the node's programs: this process executes the active version. For the daemon it first decides whether
//! a trial continues.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use sampan_sys::files::{private_dir, replace};

use crate::decide::{ROW, Row, Start, decide};
use crate::main_process::MainProcess;
use crate::trial;
use crate::versions::{DAEMON, Ended, State, Subject, Versions, boot_id};

/// Writes a message to the daemon's log.
pub type Say<'a> = &'a dyn Fn(&str);

const BACK: &str = "what was there before is in force again";
/// What the disk did not take.
const CANNOT_BE_REMEMBERED: &str = "the trial cannot be remembered";

/// Whether these arguments start the daemon. `run` with a flag that only prints does not: otherwise it would count as a
/// start within a trial, or replace the daemon that upgrades find.
#[must_use]
pub fn starts_daemon(args: &[OsString]) -> bool {
    let only_prints = |word: &OsString| ["--print-config", "--help", "-h"].iter().any(|flag| word == flag);
    args.first().is_some_and(|verb| verb == "run") && !args.iter().any(only_prints)
}

/// Becomes the daemon's program with these arguments; comes back only if no version can be started.
pub fn daemon(versions: &Versions, launcher: &Path, args: &[OsString], say: Say<'_>) -> io::Error {
    let mut state = settle(versions, launcher, say);
    if let Some(why) = ends_at_once(versions, &state) {
        say(&format!("{why}; the package's version is started"));
        let _ = versions.change(|state| give_up(state, &why).clone());
        give_up(&mut state, &why);
    }
    // With this the process that the supervisor knows is known to others, too.
    if let Err(error) = MainProcess::note_own(versions) {
        say(&format!("upgrades will not find the daemon: {error}"));
    }
    loop {
        let program = versions.programs(state.current.as_deref()).join(DAEMON);
        let error = become_program(&program, args);
        let why = format!("{}: {error}", program.display());
        if state.current.is_none() {
            return io::Error::new(error.kind(), why);
        }
        say(&format!("{why}; what was there before is started"));
        // Also where it cannot be written.
        match versions.change(|state| give_up(state, &why).clone()) {
            Ok(changed) => state = changed,
            Err(_) => drop(give_up(&mut state, &why)),
        }
    }
}

/// Handles a version that cannot be executed: a trial is rolled back, otherwise the package's version becomes active.
fn give_up<'a>(state: &'a mut State, why: &str) -> &'a State {
    match &state.trial {
        Some(trial) if trial.subject == Subject::Programs => state.end(false, why),
        _ => {
            let (version, reason) = (state.current.take(), why.to_owned());
            state.last = Some(Ended { version, reason, ..Ended::default() });
        }
    }
    state
}

/// Reason why the active version is not started again: without a trial, no other program would notice that it cannot
/// run.
fn ends_at_once(versions: &Versions, state: &State) -> Option<String> {
    let version = state.current.as_deref().filter(|_| state.trial.is_none())?;
    // A daemon that ends in order deletes it (`forget_starts` in edge-runtime's `cli/run.rs`).
    let file = versions.own_run_folder().join("starts.json");
    let before: Row = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let now = uptime.split('.').next()?.parse().ok()?;
    let row = before.with(version, now);
    // If /run cannot be written, nothing is counted, and the version starts as usual.
    private_dir(&versions.own_run_folder()).ok()?;
    replace(&file, &serde_json::to_vec(&row).ok()?, false).ok()?;
    (row.starts > ROW).then(|| format!("version {version} has crashed {ROW} times in a row soon after its start"))
}

/// Returns the state for this start.
fn settle(versions: &Versions, launcher: &Path, say: Say<'_>) -> State {
    // As in `Versions::go_back`.
    let lock = versions.lock_configuration();
    let decided = versions.change(|state| {
        let before = state.clone();
        let start = decide(state, &boot_id());
        // As in `Versions::go_back`: before the trial is over.
        if let Start::Back { subject, .. } = &start
            && let Err(error) = versions.restore(*subject)
        {
            *state = before;
            return Err(error);
        }
        Ok((start, state.clone()))
    });
    drop(lock);
    let (start, state) = match decided.and_then(|decided| decided) {
        Ok(decided) => decided,
        // What cannot be remembered cannot be tried.
        Err(error) => return end(versions, versions.read(), &format!("{CANNOT_BE_REMEMBERED}: {error}"), say),
    };
    match start {
        Start::Plain => {}
        Start::OnTrial => {
            say(&format!("{} is on trial", shown(&state)));
            if let Err(error) = trial::spawn(launcher, versions.root()) {
                return end(versions, state, &format!("nobody watches the trial: {error}"), say);
            }
        }
        Start::Back { reason, .. } => say(&format!("{BACK}: {reason}")),
    }
    state
}

/// The trial of this state, if there is one, is over for this start. Where that cannot be written the next one finds it so again.
fn end(versions: &Versions, mut state: State, why: &str, say: Say<'_>) -> State {
    if state.trial.is_some() {
        say(&format!("{BACK}: {why}"));
        if let Err(error) = versions.go_back(|_| true, why) {
            say(&error.to_string());
        }
        state.end(false, why);
    }
    state
}

fn shown(state: &State) -> String {
    match (&state.trial, &state.current) {
        (Some(trial), _) if trial.subject == Subject::Configuration => "another configuration".to_owned(),
        (_, Some(version)) => format!("version {version}"),
        (_, None) => "the package's version".to_owned(),
    }
}

/// The package's version is in force, without a trial; one under way is over.
///
/// # Errors
/// The disk takes nothing: all is as it was.
pub fn use_packaged(versions: &Versions) -> io::Result<()> {
    versions.go_back(|_| true, "the package's version was put in force meanwhile")?;
    versions.change(|state| state.current = None)
}

/// Becomes another program of the version in force, for a person: `edge-runtime status` and all others.
pub fn other(versions: &Versions, args: &[OsString]) -> io::Error {
    let current = versions.read().current;
    let folders = [versions.programs(current.as_deref()), versions.packaged().to_path_buf()];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        let program = folder.join(DAEMON);
        last = become_program(&program, args);
        last = io::Error::new(last.kind(), format!("{}: {last}", program.display()));
    }
    last
}

fn become_program(program: &Path, args: &[OsString]) -> io::Error {
    Command::new(program).arg0("edge-runtime").args(args).exec()
}

#[cfg(test)]
mod tests;
